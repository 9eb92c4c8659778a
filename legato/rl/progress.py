"""What a batch looks like while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from legato.desktop.actions import describe
from legato.rl.board import Board, Doing
from legato.rl.driver import GroupResult
from legato.rl.observer import Observer, Phase, Silent
from legato.rl.types import Rollout

REFRESH_PER_S = 2.0
LINE_EVERY_S = 10.0
"""Shortest time between two plain lines that no ended group asked for."""
PHASE_STYLES: dict[Phase, str] = {
    "reset": "magenta",
    "settle": "yellow",
    "model": "blue",
    "act": "green",
    "grade": "cyan",
}

__all__ = ["LiveTable", "Observer", "PlainLines", "Silent", "make_progress"]


class LiveTable(Board):
    """Desktops and what each is doing, then groups, rewards, rates, ETA and what was lost."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._live = Live(
            console=console, get_renderable=self.render, refresh_per_second=REFRESH_PER_S
        )

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._live.stop()

    def render(self) -> RenderableType:
        """What the terminal shows now, no taller than the terminal."""
        bar = ProgressBar(total=max(1, self.wanted), completed=self.verdicts, width=30)
        head = Table.grid(padding=(0, 1))
        head.add_row(bar, Text(tally(self)))
        desktops = sorted(self.desktops.items())
        room = max(1, self._console.height - 4)
        table = Table(box=None, pad_edge=False, expand=True)
        for name, width in (("desktop", 7), ("phase", 6), ("s", 6), ("step", 4)):
            table.add_column(name, width=width, no_wrap=True, justify="right", header_style="dim")
        table.add_column("rollout", min_width=16, no_wrap=True, header_style="dim")
        table.add_column("last", ratio=1, no_wrap=True, header_style="dim")
        for slot, doing in desktops[:room]:
            table.add_row(*_row(slot, doing))
        hidden = len(desktops) - room
        more = [Text(f"and {hidden} more desktops", style="dim")] if hidden > 0 else []
        return Group(table, *more, head)


class PlainLines(Board):
    """One line per ended group, and at most one per ten seconds in between."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._last = time.monotonic()

    def __enter__(self) -> PlainLines:
        return self

    def rollout_ended(self, rollout: Rollout) -> None:
        super().rollout_ended(rollout)
        if time.monotonic() - self._last >= LINE_EVERY_S:
            self._say()

    def group_ended(self, result: GroupResult) -> None:
        super().group_ended(result)
        rewards = " ".join(f"{reward:.2f}" for _, reward in sorted(result.rewards.items()))
        self._say(f"group {result.group_id}: {rewards or 'no verdict'}  ")

    def _say(self, news: str = "") -> None:
        self._last = time.monotonic()
        try:
            self._console.print(
                _printable(news + tally(self)), highlight=False, markup=False, soft_wrap=True
            )
        except OSError:
            self._console.quiet = True  # nobody can read it; that must not cost the batch


def make_progress(console: Console) -> LiveTable | PlainLines:
    """A live table when ``console`` is a terminal, else plain lines."""
    return LiveTable(console) if console.is_terminal else PlainLines(console)


def tally(board: Board) -> str:
    """The batch in one line."""
    parts = [
        *([board.title] if board.title else []),
        f"{board.verdicts}/{board.wanted} verdicts",
        f"{board.groups_done}/{board.groups} groups",
    ]
    if board.mean_reward is not None:
        parts.append(f"reward {board.mean_reward:.2f}")
    if board.per_hour is not None:
        parts.append(f"{board.per_hour:.0f} per hour")
    if board.eta_s is not None:
        parts.append(f"ETA {_clock(board.eta_s)}")
    if board.lost:
        parts.append("lost: " + ", ".join(f"{kind} {n}" for kind, n in sorted(board.lost.items())))
    return "  ".join(parts)


def _row(slot: int, doing: Doing) -> tuple[str | Text, ...]:
    rollout = doing.rollout
    return (
        str(slot),
        Text(doing.phase, style=PHASE_STYLES.get(doing.phase, "")),
        f"{max(0.0, time.time() - doing.since):.1f}",
        str(len(rollout.steps)),
        Text(_printable(rollout.rollout_id)),
        Text(_printable(_last(rollout)), overflow="ellipsis"),
    )


def _last(rollout: Rollout) -> str:
    if not rollout.steps or not rollout.steps[-1].actions:
        return ""
    taken = list(rollout.steps[-1].actions)[-1]
    if taken.error is not None:
        return f"! {taken.error}"
    return "" if taken.action is None else describe(taken.action)


def _printable(text: str) -> str:
    """Without control characters: what a model wrote must not steer the terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
