"""Where a program's window is put: the seed decides, within the screen there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from legato.desktop.contract import Machine, Window
from legato.errors import EnvFailure
from legato.tasks.draw import Draw

PANEL, TITLE_BAR, EDGE = 38, 22, 2
"""Pixels of the screen that windows leave free at the bottom, above and beside their inside."""


@dataclass(frozen=True, slots=True)
class Place:
    """A window's place as shares in [0, 1] of what room there is beyond its least size."""

    across: float
    down: float
    wider: float
    taller: float

    def on(self, screen: tuple[int, int], least: tuple[int, int]) -> tuple[int, int, int, int]:
        """x, y, width and height in pixels of the inside of a window no smaller than ``least``.

        Raises :class:`~legato.errors.EnvFailure` if the screen has no room for it.
        """
        room = (screen[0] - 2 * EDGE, screen[1] - PANEL - TITLE_BAR)
        if room[0] < least[0] or room[1] < least[1]:
            wanted = f"{least[0] + 2 * EDGE}x{least[1] + PANEL + TITLE_BAR}"
            raise EnvFailure(
                f"the window needs a screen of at least {wanted} pixels", transient=False
            )
        width = least[0] + round(self.wider * (room[0] - least[0]))
        height = least[1] + round(self.taller * (room[1] - least[1]))
        x = EDGE + round(self.across * (room[0] - width))
        y = TITLE_BAR + round(self.down * (room[1] - height))
        return x, y, width, height


def draw_place(draw: Draw) -> Place:
    return Place(*(draw.below(101) / 100 for _ in range(4)))


def launch_placed(
    machine: Machine,
    argv: Sequence[str],
    place: Place,
    least: tuple[int, int],
    *,
    env: Mapping[str, str] | None = None,
) -> Window:
    """Start a program and put its first window at ``place``, no smaller than ``least`` pixels.

    Raises :class:`~legato.errors.EnvFailure` if the screen has no room for it.
    """
    where = place.on(machine.screen, least)
    known = {window.id for window in machine.windows()}
    machine.launch(argv, env=env)
    window = next((w for w in machine.windows() if w.id not in known), None)
    if window is None:
        raise EnvFailure(f"{argv[0]} closed its window at once")
    machine.place_window(window.id, *where)
    return window
