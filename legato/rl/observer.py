"""Who is told of a batch while it runs: progress on a terminal, the live view, a trainer."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from legato.rl.types import Rollout

if TYPE_CHECKING:
    from legato.rl.driver import GroupResult

Phase: TypeAlias = Literal["reset", "settle", "model", "act", "grade", "ended"]
"""What a leased desktop is being used for.

``reset``: task set-up; ``settle``: the first screen gets ready; ``model``: the policy is asked;
``act``: an action, the wait after it and the next screenshot; ``grade``: the verdict; ``ended``:
the desktop was given back.
"""


class Observer(Protocol):
    """Is told of a batch as it happens, on the event loop; must return at once."""

    def batch_started(self, groups: int, verdicts: int, done: int) -> None:
        """``groups`` to run for ``verdicts`` verdicts in all, of which ``done`` exist already."""
        ...

    def phase_began(self, rollout: Rollout, phase: Phase) -> None:
        """A rollout under way goes on to ``phase``; ``rollout`` holds all that it did so far."""
        ...

    def rollout_ended(self, rollout: Rollout) -> None: ...

    def group_ended(self, result: GroupResult) -> None: ...


class Silent:
    """The observer of a batch nobody watches."""

    def batch_started(self, groups: int, verdicts: int, done: int) -> None:
        return

    def phase_began(self, rollout: Rollout, phase: Phase) -> None:
        return

    def rollout_ended(self, rollout: Rollout) -> None:
        return

    def group_ended(self, result: GroupResult) -> None:
        return

    def __enter__(self) -> Silent:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        return


class Several(Silent):
    """Tells several observers, in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def batch_started(self, groups: int, verdicts: int, done: int) -> None:
        for observer in self._observers:
            observer.batch_started(groups, verdicts, done)

    def phase_began(self, rollout: Rollout, phase: Phase) -> None:
        for observer in self._observers:
            observer.phase_began(rollout, phase)

    def rollout_ended(self, rollout: Rollout) -> None:
        for observer in self._observers:
            observer.rollout_ended(rollout)

    def group_ended(self, result: GroupResult) -> None:
        for observer in self._observers:
            observer.group_ended(result)
