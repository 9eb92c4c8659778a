"""legato: graded desktop rollouts for computer-use RL."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legato.desktop.actions import Action
    from legato.rl.session import Observation, Session, run_episode, session
    from legato.tasks import list_tasks, load_task

__all__ = [
    "Action",
    "Observation",
    "Session",
    "__version__",
    "list_tasks",
    "load_task",
    "run_episode",
    "session",
]

try:
    __version__ = version("legatolabs")
except PackageNotFoundError:  # a source tree on the path, not installed
    __version__ = "0+unknown"

_HOMES = {
    "Action": "legato.desktop.actions",
    "Observation": "legato.rl.session",
    "Session": "legato.rl.session",
    "list_tasks": "legato.tasks",
    "load_task": "legato.tasks",
    "run_episode": "legato.rl.session",
    "session": "legato.rl.session",
}


def __getattr__(name: str) -> Any:
    """Found on first use, so that importing one part does not load the others."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
