"""What a batch looks like while it runs: a live table on a terminal, plain lines elsewhere.

A trainer prints lines of its own, so beside them there are fewer: one every :data:`LINE_EVERY_S`
while verdicts come in."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from legato.rl.board import Board
from legato.rl.driver import GroupResult
from legato.rl.observer import Observer, Silent
from legato.rl.types import Rollout

REFRESH_PER_S = 2.0
LINE_EVERY_S = 10.0
"""Seconds, the shortest between two plain lines that no ended group asked for."""
PHASE_STYLES: dict[str, str] = {
    "reset": "magenta",
    "settle": "yellow",
    "model": "blue",
    "act": "green",
    "grade": "cyan",
}

__all__ = ["LiveTable", "Observer", "PlainLines", "Silent", "make_progress", "say"]


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
        return draw(self.state(), self._console.height)


class PlainLines(Board):
    """One line per ended group, and at most one per :data:`LINE_EVERY_S` in between."""

    def __init__(self, console: Console, *, every_group: bool = True) -> None:
        """Without ``every_group`` an ended group asks for no line of its own."""
        super().__init__()
        self._console = console
        self._every_group = every_group
        self._last = time.monotonic()

    def __enter__(self) -> PlainLines:
        return self

    def rollout_ended(self, rollout: Rollout) -> None:
        super().rollout_ended(rollout)
        self._report_if_due()

    def group_ended(self, result: GroupResult) -> None:
        super().group_ended(result)
        if not self._every_group:
            self._report_if_due()
            return
        rewards = " ".join(f"{reward:.2f}" for _, reward in sorted(result.rewards.items()))
        self.report(f"group {result.group_id}: {rewards or 'no verdict'}  ")

    def _report_if_due(self) -> None:
        if time.monotonic() - self._last >= LINE_EVERY_S:
            self.report()

    def report(self, news: str = "") -> None:
        """Print a line now."""
        self._last = time.monotonic()
        say(self._console, news + tally(self.state()))


def make_progress(console: Console) -> LiveTable | PlainLines:
    """A live table when ``console`` is a terminal, else plain lines."""
    return LiveTable(console) if console.is_terminal else PlainLines(console)


def say(console: Console, line: str) -> None:
    """Print one plain line, whole and without styles."""
    try:
        console.print(_printable(line), highlight=False, markup=False, soft_wrap=True)
    except OSError:
        console.quiet = True  # nobody can read it; that must not cost the batch


def draw(state: Mapping[str, Any], height: int) -> RenderableType:
    """A board's state as a table of at most ``height`` lines."""
    bar = ProgressBar(total=max(1, state["wanted"]), completed=state["verdicts"], width=30)
    head = Table.grid(padding=(0, 1))
    head.add_row(bar, Text(_printable(tally(state))))
    desktops = state["desktops"]
    room = max(1, height - 4)
    table = Table(box=None, pad_edge=False, expand=True)
    for name, width in (("desktop", 7), ("phase", 6), ("s", 6), ("step", 4)):
        table.add_column(name, width=width, no_wrap=True, justify="right", header_style="dim")
    table.add_column("rollout", min_width=16, no_wrap=True, header_style="dim")
    table.add_column("last", ratio=1, no_wrap=True, header_style="dim")
    for desktop in desktops[:room]:
        table.add_row(*_row(desktop))
    hidden = len(desktops) - room
    more = [Text(f"and {hidden} more desktops", style="dim")] if hidden > 0 else []
    return Group(table, *more, head)


def tally(state: Mapping[str, Any]) -> str:
    """A board's batch in one line."""
    parts = [
        *([state["title"]] if state["title"] else []),
        f"{state['verdicts']}/{state['wanted']} verdicts",
        f"{state['groups_done']}/{state['groups']} groups",
    ]
    if state["mean_reward"] is not None:
        parts.append(f"reward {state['mean_reward']:.2f}")
    if state["per_hour"] is not None:
        parts.append(f"{state['per_hour']:.0f} per hour")
    if state["eta_s"] is not None:
        parts.append(f"ETA {_clock(state['eta_s'])}")
    if lost := state["lost"]:
        parts.append("lost: " + ", ".join(f"{kind} {n}" for kind, n in sorted(lost.items())))
    return "  ".join(parts)


def _row(desktop: Mapping[str, Any]) -> tuple[str | Text, ...]:
    phase = desktop["phase"]
    return (
        str(desktop["slot"]),
        Text(phase, style=PHASE_STYLES.get(phase, "")),
        f"{max(0.0, time.time() - desktop['since']):.1f}",
        str(desktop["steps"]),
        Text(_printable(desktop["rollout_id"])),
        Text(_printable(desktop["last"]), overflow="ellipsis"),
    )


def _printable(text: str) -> str:
    """Without control characters: what a model wrote must not steer the terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
