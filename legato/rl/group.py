"""The bookkeeping of one group, without any waiting or I/O.

A group wants ``size`` verdicts on one task. It starts ``size + extra`` attempts, closes as soon
as ``size`` of them have a verdict, and starts a new attempt for each one that infrastructure took
(at most ``size`` times in one run: a resumed run may replace what an outage took from the last
one). An attempt number is final once and only once; only its tries may repeat.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from legato.errors import FailureKind
from legato.rl.types import VERDICTS, Status


def extra_attempts(size: int, oversample: float) -> int:
    """Attempts started beyond ``size``: ``ceil(size * oversample)``."""
    return math.ceil(size * oversample - 1e-9)


@dataclass(frozen=True, slots=True)
class Ended:
    """What the group makes of an attempt that came to its end."""

    status: Status
    """The status to record."""
    start: tuple[int, ...] = ()
    """Attempt numbers to start now: the same one again, or a refill."""


@dataclass(slots=True)
class Group:
    """State of one group. Feed it every end in the order they happen."""

    size: int
    extra: int = 0
    env_retries: int = 1
    rewards: dict[int, float] = field(default_factory=dict)
    """Verdicts that count, by attempt number."""
    refills: int = 0
    """Attempts started in place of lost ones since :meth:`begin`."""
    _next: int = 0
    _tries: dict[int, int] = field(default_factory=dict)
    _final: set[int] = field(default_factory=set)

    @property
    def closed(self) -> bool:
        return len(self.rewards) >= self.size

    def begin(
        self,
        finished: Iterable[tuple[int, Status, float | None]] = (),
        tries: Mapping[int, int] | None = None,
    ) -> tuple[int, ...]:
        """Attempts to start now.

        ``finished`` (number, status, reward) are final since an earlier run; ``tries`` counts what
        it already spent on attempts that are not.
        """
        self._tries.update(tries or {})
        lost = 0
        for attempt, status, reward in finished:
            self._final.add(attempt)
            if status in VERDICTS and reward is not None:
                self.rewards[attempt] = reward
            lost += status is Status.ERROR
        planned = self.size + self.extra + lost
        self._next = max(planned, 1 + max(self._final, default=-1))
        if self.closed:
            return ()
        return tuple(a for a in range(planned) if a not in self._final)

    def try_number(self, attempt: int) -> int:
        """Which try of this attempt is running: 0 for the first."""
        return self._tries.get(attempt, 0)

    def verdict(self, attempt: int, status: Status, reward: float) -> Ended:
        """A graded end (``ok`` or ``truncated``); one that comes too late is ``surplus``."""
        self._finish(attempt)
        if self.closed:
            return Ended(Status.SURPLUS)
        self.rewards[attempt] = reward
        return Ended(status)

    def failure(self, attempt: int, kind: FailureKind) -> Ended:
        """Infrastructure ended the attempt: try it again, refill, or give up on it."""
        if kind == "env" and not self.closed and self.try_number(attempt) < self.env_retries:
            self._tries[attempt] = self.try_number(attempt) + 1
            return Ended(Status.RETRIED, (attempt,))
        self._finish(attempt)
        if self.closed or self.refills >= self.size:
            return Ended(Status.ERROR)
        self.refills += 1
        refill = self._next
        self._next += 1
        return Ended(Status.ERROR, (refill,))

    def stopped(self, attempt: int, *, started: bool) -> Ended:
        """The group closed before this attempt came to a verdict."""
        self._finish(attempt)
        return Ended(Status.CANCELLED if started else Status.SKIPPED)

    def _finish(self, attempt: int) -> None:
        if attempt in self._final:
            raise AssertionError(f"attempt {attempt} is final already")
        self._final.add(attempt)
