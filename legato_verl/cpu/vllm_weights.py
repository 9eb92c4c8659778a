"""vLLM's CPU backend packs the weights of linear layers after loading and drops the originals.

verl then cannot load new ones in place. So the originals stay, and plain ``F.linear`` runs them
(vLLM ``model_executor/layers/utils.py``, ``dispatch_cpu_unquantized_gemm``).
"""

from __future__ import annotations

import sys
from typing import Any

_NAME = "dispatch_cpu_unquantized_gemm"


def keep() -> None:
    """Only where vLLM is imported already: its workers import verl after it."""
    if "vllm" not in sys.modules:
        return
    import torch
    from vllm.model_executor.layers import utils

    def dispatch(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = dispatch
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("vllm.") and _NAME in vars(module):
            setattr(module, _NAME, dispatch)
