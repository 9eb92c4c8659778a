"""verl builds the name of a process group's backend from the platform's, twice the same on a CPU.

``cpu:gloo,cpu:gloo`` is an error to torch (verl ``utils/distributed.py``).
"""

from __future__ import annotations

from typing import Any

import verl.utils.distributed as distributed

BACKEND = "cpu:gloo"


def use() -> None:
    original = distributed.initialize_global_process_group_ray
    if getattr(original, "gloo", False):
        return

    def initialize(timeout_second: Any = None, backend: str | None = None) -> Any:
        return original(timeout_second=timeout_second, backend=backend or BACKEND)

    initialize.gloo = True  # type: ignore[attr-defined]
    distributed.initialize_global_process_group_ray = initialize
