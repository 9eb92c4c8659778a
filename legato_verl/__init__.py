"""verl trains vision-language policies on desktops: the agent loop ``legato``.

Imported in every process that imports verl, so importing it costs nothing; what is named here is
loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legato_verl.dataproto import to_dataproto
    from legato_verl.dataset import TaskDataset
    from legato_verl.loop import LegatoAgentLoop
    from legato_verl.manager import LegatoAgentLoopManager

__all__ = ["LegatoAgentLoop", "LegatoAgentLoopManager", "TaskDataset", "to_dataproto"]

_HOMES = {
    "LegatoAgentLoop": "loop",
    "LegatoAgentLoopManager": "manager",
    "TaskDataset": "dataset",
    "to_dataproto": "dataproto",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
