"""verl keeps a reference model's weights in pinned memory, which only an accelerator can pin.

It does so for every model of FSDP2 that is never trained (verl ``workers/engine/fsdp``).
"""

from __future__ import annotations

from typing import Any

import torch.distributed.fsdp as fsdp


class PageableOffload(fsdp.CPUOffloadPolicy):
    """Pins nothing, whatever it is told."""

    def __init__(self, pin_memory: bool = False) -> None:
        super().__init__(pin_memory=False)


def use() -> None:
    """Before verl takes the name over from torch."""
    torch_fsdp: Any = fsdp
    torch_fsdp.CPUOffloadPolicy = PageableOffload
