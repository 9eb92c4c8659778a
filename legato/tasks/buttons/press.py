"""Press buttons in dialogs of xmessage: those that the instruction names, or the one there is.

The dialog itself tells which button ended it, on an output that only the machine's first process
reads: no other program on the desktop can write there.
"""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from legato.desktop.actions import AnyAction, Click, Done
from legato.desktop.contract import Machine
from legato.errors import EnvFailure
from legato.tasks.draw import Draw
from legato.tasks.seeded import SeededTask

LABELS = ("A", "B", "C", "D")
SIDE = 30
"""Width and height of a button, in pixels."""
PITCH, FIRST, ROW = 36, 19, 40
"""Between the centres of two buttons; of the first one, and down to all, from the window's edge."""
WIDTH, HEIGHT = 150, 60
"""Of the window, its frame apart."""
NARROW = 60
"""Width of a window with one button."""
HALVES = {"left": 6, "right": 88}
"""Where such a window begins, on a screen of 160 pixels."""

_PID = "dialogs.pid"
"""Where set-up notes for grading what it launched."""
_QUESTIONS = ("Which one?", "Your choice:", "Pick one", "Ready.", "Go on?", "Next:", "Well?")


@dataclass(frozen=True)
class _Buttons(SeededTask):
    suite = "buttons"
    lockdown = False  # a shell shows one dialog after the other
    judge = Path(__file__).with_name("press_judge.py")
    labels: ClassVar[tuple[str, ...]] = LABELS

    @property
    @abstractmethod
    def targets(self) -> list[str]:
        """Labels to press, in order."""

    @property
    def geometry(self) -> str:
        """Size and place of the dialogs, as X programs take them."""
        return f"{WIDTH}x{HEIGHT}+0+0"

    @cached_property
    def _draw(self) -> Draw:
        return Draw(self.name, self.seed)

    @cached_property
    def _looks(self) -> list[tuple[str, str, str]]:
        """Question, colour of the window and of its buttons, for each dialog."""
        draw = Draw(f"{self.name} looks", self.seed)

        def colour(low: int, high: int) -> str:
            return "#" + "".join(f"{draw.between(low, high):02x}" for _ in range(3))

        return [(draw.choice(_QUESTIONS), colour(190, 235), colour(110, 220)) for _ in self.targets]

    def setup(self, machine: Machine) -> None:
        dialogs = "; ".join(shlex.join(self._dialog(*look)) for look in self._looks)
        # What the toolkit has to say about fonts is no answer.
        pid = machine.launch(["sh", "-c", f"exec 2>/dev/null; {dialogs}"])
        (machine.scratch / _PID).write_text(str(pid))

    def evidence(self, machine: Machine) -> dict[str, Any]:
        _, printed = machine.launched(int((machine.scratch / _PID).read_text()))
        return {"targets": self.targets, "pressed": printed.split()}

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        for target in self.targets:
            window = next((w for w in machine.windows() if w.wm_class == "Xmessage"), None)
            if window is None:
                raise EnvFailure("no dialog is on the screen")
            yield self.click(target, window.x, window.y)
        yield Done()

    @classmethod
    def click(cls, label: str, window_x: int, window_y: int) -> Click:
        """A click on the middle of a button of a dialog at this place."""
        number = cls.labels.index(label)
        return Click(x=window_x + FIRST + PITCH * number, y=window_y + ROW)

    def _dialog(self, question: str, paper: str, ink: str) -> list[str]:
        looks = {
            "*background": paper,
            "*Command.background": ink,
            "*Command.width": str(SIDE),
            "*Command.height": str(SIDE),
        }
        return [
            *("xmessage", "-print", "-buttons", ",".join(self.labels)),
            *("-geometry", self.geometry),
            *(word for name, value in looks.items() for word in ("-xrm", f"{name}: {value}")),
            question,
        ]


@dataclass(frozen=True)
class Press(_Buttons):
    """Press one named button of a dialog."""

    name = "press"

    @cached_property
    def targets(self) -> list[str]:
        # Every fourth seed is held out; of four in a row, in either split, each asks for another
        # button. A batch that asks for one more often than for others teaches to press that one.
        block, place = divmod(self.seed, len(LABELS))
        return [LABELS[(place - block) % len(LABELS)]]

    @property
    def instruction(self) -> str:
        return f"press {self.targets[0]}"


@dataclass(frozen=True)
class PressInOrder(_Buttons):
    """Press a named button in each of three dialogs, one after the other."""

    name = "press_in_order"

    @cached_property
    def targets(self) -> list[str]:
        return [self._draw.choice(LABELS) for _ in range(3)]

    @property
    def instruction(self) -> str:
        return f"press {' then '.join(self.targets)}"


@dataclass(frozen=True)
class Find(_Buttons):
    """Press the button of a dialog in the left or the right half of the screen.

    The instruction is always the same: only the screenshot tells where to click.
    """

    name = "find"
    labels = ("OK",)

    @cached_property
    def half(self) -> str:
        return self._draw.choice(list(HALVES))

    @property
    def geometry(self) -> str:
        return f"{NARROW}x{HEIGHT}+{HALVES[self.half]}+0"

    @property
    def targets(self) -> list[str]:
        return ["OK"]

    @property
    def instruction(self) -> str:
        return "press OK"
