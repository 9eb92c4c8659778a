"""GUI actions as X input events, through the XTEST extension."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence

from legato.desktop.actions import (
    AnyAction,
    Click,
    DoubleClick,
    Drag,
    Key,
    KeyDown,
    KeyUp,
    MiddleClick,
    MouseDown,
    MouseUp,
    Move,
    RightClick,
    Scroll,
    TakeScreenshot,
    TripleClick,
    Type,
    Wait,
    check_on_screen,
)
from legato.desktop.x11.connection import XConnection
from legato.desktop.x11.keyboard import Keyboard
from legato.desktop.x11.windows import Windows
from legato.errors import ActionError, EnvFailure

BUTTON_PRESS, BUTTON_RELEASE, MOTION = 4, 5, 6

LEFT, MIDDLE, RIGHT = 1, 2, 3
BUTTONS = {"left": LEFT, "middle": MIDDLE, "right": RIGHT}
WHEEL = {"up": 4, "down": 5, "left": 6, "right": 7}

DOUBLE_CLICK_S = 0.51
DOUBLE_CLICK_PX = 5
"""Presses closer than this are one double click to every toolkit (GTK 0.4 s, Chromium 0.5 s).
Two ``click`` actions are two clicks, so the second waits the time out."""

APART_MS = 10
"""Between the clicks of one double click. Chromium takes presses of the same millisecond for one
and the same."""

STEP_PX = 24
STEP_S = 0.008
"""Toolkits merge motion within a frame and start a drag only after some; so it goes in steps."""
DROP_S = 0.08
"""Source and target of a drop talk to each other through the server, in a few exchanges, before a
release counts as a drop; there is no event by which a third party could tell."""


class Input:
    """Performs actions; the pointer and keys stay where they were left.

    Raises ``ActionError`` before anything was sent, ``EnvFailure`` if the server fails or
    ``cancelled`` is set.
    """

    def __init__(
        self,
        x: XConnection,
        windows: Windows,
        busy_seconds: Callable[[], float],
        cancelled: threading.Event,
    ) -> None:
        self._x = x
        self._cancelled = cancelled
        self._keyboard = Keyboard(x, windows, busy_seconds, cancelled)
        self._last_press = (-math.inf, 0, 0)
        self._pressed: tuple[int, int] | None = None
        """Where a press is under way to the server."""

    def perform(self, action: AnyAction) -> None:
        check_on_screen(action, self._x.width, self._x.height)
        match action:
            case Click():
                self._click(action.points()[0], LEFT, 1)
            case DoubleClick():
                self._click(action.points()[0], LEFT, 2)
            case TripleClick():
                self._click(action.points()[0], LEFT, 3)
            case RightClick():
                self._click(action.points()[0], RIGHT, 1)
            case MiddleClick():
                self._click(action.points()[0], MIDDLE, 1)
            case Move():
                self._move(action.points()[0])
            case Drag():
                self._drag(action.points())
            case MouseDown() | MouseUp():
                for point in action.points():
                    self._move(point)
                kind = BUTTON_PRESS if isinstance(action, MouseDown) else BUTTON_RELEASE
                self._x.fake_input(kind, BUTTONS[action.button])
            case Scroll():
                self._move(action.points()[0])
                for _ in range(action.amount):
                    self._press_and_release(WHEEL[action.direction])
            case Type():
                self._keyboard.type_text(action.text)
            case Key():
                self._keyboard.chord(action.key)
            case KeyDown():
                self._keyboard.down(action.key)
            case KeyUp():
                self._keyboard.up(action.key)
            case Wait():
                self._pause(action.seconds)
            case TakeScreenshot():
                return
            case _:
                raise ActionError(f"{action.action_type!r} is not something a desktop can do")
        self._x.sync()
        if self._pressed is not None:
            self._last_press, self._pressed = (time.monotonic(), *self._pressed), None

    def _click(self, point: tuple[int, int], button: int, times: int) -> None:
        then, x, y = self._last_press
        since = time.monotonic() - then
        near = max(abs(point[0] - x), abs(point[1] - y)) <= DOUBLE_CLICK_PX
        if button == LEFT and near and since < DOUBLE_CLICK_S:
            self._pause(DOUBLE_CLICK_S - since)
        self._move(point)
        for i in range(times):
            self._x.fake_input(BUTTON_PRESS, button, after_ms=APART_MS if i else 0)
            self._x.fake_input(BUTTON_RELEASE, button)
        if button == LEFT:
            self._pressed = point

    def _drag(self, points: Sequence[tuple[int, int]]) -> None:
        self._move(points[0])
        self._x.fake_input(BUTTON_PRESS, LEFT)
        for a, b in itertools.pairwise(points):
            steps = max(2, math.ceil(math.dist(a, b) / STEP_PX))
            for i in range(1, steps + 1):
                self._x.sync()
                self._pause(STEP_S)
                self._move((a[0] + (b[0] - a[0]) * i // steps, a[1] + (b[1] - a[1]) * i // steps))
        self._x.sync()
        self._pause(DROP_S)
        self._x.fake_input(BUTTON_RELEASE, LEFT)

    def _move(self, point: tuple[int, int]) -> None:
        self._x.fake_input(MOTION, 0, *point)

    def _press_and_release(self, button: int) -> None:
        self._x.fake_input(BUTTON_PRESS, button)
        self._x.fake_input(BUTTON_RELEASE, button)

    def _pause(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise EnvFailure("the desktop was stopped in the middle of an action")
