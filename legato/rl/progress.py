"""What a batch looks like while it runs: bars on a terminal, nothing elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from legato.rl.driver import GroupResult
from legato.rl.types import VERDICTS, Rollout, Status


class Observer(Protocol):
    """Is told of a batch as it happens, on the event loop; must return at once."""

    def batch_started(self, groups: int, verdicts: int, done: int) -> None:
        """``groups`` to run for ``verdicts`` verdicts in all, of which ``done`` exist already."""
        ...

    def rollout_ended(self, rollout: Rollout) -> None: ...

    def group_ended(self, result: GroupResult) -> None: ...


class Silent:
    """The observer of a batch nobody watches."""

    def batch_started(self, groups: int, verdicts: int, done: int) -> None:
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


class Bars(Silent):
    """Two bars: rollouts with a verdict, and groups; mean reward, losses and ETA beside them."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("{task.description:>8}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._rollouts = self._bars.add_task("rollouts", total=None, note="")
        self._groups = self._bars.add_task("groups", total=None, note="")
        self._rewards: list[float] = []
        self._lost = 0

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def batch_started(self, groups: int, verdicts: int, done: int) -> None:
        self._bars.update(self._rollouts, total=verdicts, completed=done)
        self._bars.update(self._groups, total=groups)

    def rollout_ended(self, rollout: Rollout) -> None:
        if rollout.status in VERDICTS and rollout.reward is not None:
            self._rewards.append(rollout.reward)
            self._bars.advance(self._rollouts)
        self._lost += rollout.status in (Status.ERROR, Status.RETRIED)
        note = f"reward {sum(self._rewards) / len(self._rewards):.2f}" if self._rewards else ""
        if self._lost:
            note += f"  lost {self._lost}"
        self._bars.update(self._rollouts, note=note)

    def group_ended(self, result: GroupResult) -> None:
        self._bars.advance(self._groups)


def make_progress(console: Console) -> Silent:
    """Bars when ``console`` is a terminal, else silence."""
    return Bars(console) if console.is_terminal else Silent()
