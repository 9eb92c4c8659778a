"""What a desktop or a task may offer beyond its contract; whoever uses it looks for it first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from legato.desktop.actions import AnyAction
from legato.desktop.contract import Task
from legato.errors import ActionError


@runtime_checkable
class CanPrepare(Protocol):
    """A desktop that can be made clean before it is known which task comes next (standby)."""

    def prepare(self) -> None:
        """Fast reset (or first boot) to the clean baseline, until its screen is stable.

        The next :meth:`~legato.desktop.contract.Desktop.reset` then only runs the task's set-up.
        """
        ...


@runtime_checkable
class CanKill(Protocol):
    """A desktop that can be stopped from another thread while a call hangs in it."""

    def kill(self) -> None:
        """Destroy the machine at once; a call blocked in it fails soon. Thread-safe, idempotent."""
        ...


@runtime_checkable
class CanCheckHealth(Protocol):
    """A desktop that can prove it is fit to be leased."""

    def check_health(self) -> None:
        """Return if the desktop works; raise :class:`~legato.errors.EnvFailure` if not."""
        ...


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Longest a desktop call may take, in seconds. Past it the desktop is killed."""

    prepare: float = 120.0
    reset: float = 180.0
    act: float = 60.0
    """On top of the ready timeout and of any wait that the action itself asks for."""
    observe: float = 20.0
    evaluate: float = 180.0
    close: float = 15.0


@runtime_checkable
class KnowsDeadlines(Protocol):
    """A desktop whose calls take longer than is usual, such as one that boots a machine."""

    deadlines: Deadlines


@runtime_checkable
class DeclinesStandby(Protocol):
    """A desktop too large for a clean spare beside it."""

    standby: Literal[False]


@runtime_checkable
class LimitsActions(Protocol):
    """A task that allows only some kinds of action."""

    allowed_actions: frozenset[str]
    """Values of ``action_type``."""


@runtime_checkable
class NeedsLockdown(Protocol):
    """A task whose desktop is handed out only if it is locked down (:mod:`.lockdown`)."""

    lockdown: bool


def check_allowed(task: Task, action: AnyAction) -> None:
    """Raise :class:`~legato.errors.ActionError` if the task does not allow this kind of action."""
    if isinstance(task, LimitsActions) and action.action_type not in task.allowed_actions:
        raise ActionError(
            f"this task does not allow {action.action_type!r}; "
            f"allowed: {', '.join(sorted(task.allowed_actions))}"
        )
