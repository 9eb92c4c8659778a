"""A desktop of paper for tests of the gate: one text field, and a key that saves it.

Fast enough to put many bad tasks through every check; what real desktops do is tested on them.
Nothing that an attacker of the gate would run is run.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from legato.desktop.actions import Answer, AnyAction, Done, Fail, Key, Type
from legato.desktop.contract import (
    ActResult,
    Completed,
    Desktop,
    DesktopOptions,
    Machine,
    Ready,
    Score,
    Screenshot,
    Task,
)
from legato.tasks.planned import PlannedMachine
from legato.tasks.scoring import score_checks
from legato.tasks.seeded import SeededTask
from legato.tasks.verifier import run_judge

SAVED = "/home/user/note.txt"


class PaperMachine(PlannedMachine):
    typed = ""

    def run(self, argv: Any, **_: Any) -> Completed:
        return Completed(0, "", "")


class PaperDesktop(Desktop):
    def __init__(self, options: DesktopOptions, slot: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.machine = PaperMachine(Path(self._folder.name), "Note")
        self._task: Task | None = None

    def reset(self, task: Task) -> None:
        self.machine = PaperMachine(Path(self._folder.name), "Note")
        self._task = task
        task.setup(self.machine)

    def wait_after_reset(self) -> Ready:
        return Ready("idle", 0.0)

    wait_before_eval = wait_after_reset

    def observe(self) -> Screenshot:
        """Another picture for other files."""
        digest = hashlib.sha256(repr(sorted(self.machine.files.items())).encode()).digest()
        return Screenshot(np.frombuffer(digest[:12], np.uint8).reshape(2, 2, 3).copy(), 0.0)

    def act(self, action: AnyAction) -> ActResult:
        if isinstance(action, Done | Fail | Answer):
            self.machine.ended_by = action
        elif isinstance(action, Type):
            self.machine.typed += action.text
        elif isinstance(action, Key) and action.key == "ctrl+s":
            self.machine.files[SAVED] = self.machine.typed.encode()
        return ActResult(0.0, Ready("idle", 0.0))

    def evaluate(self) -> Score:
        assert self._task is not None
        return self._task.grade(self.machine)

    def close(self) -> None:
        self._folder.cleanup()


@dataclass(frozen=True)
class Note(SeededTask):
    """Type a word and save it. Sound; what is wrong with a copy of it, its ``judge`` says."""

    suite: ClassVar[str] = "paper"
    name: ClassVar[str] = "note"
    judge: ClassVar[Path] = Path("each has its own")

    verifier: Path = field(kw_only=True)

    @property
    def word(self) -> str:
        return f"word-{self.seed}"

    @property
    def instruction(self) -> str:
        return f"Type {self.word} and save it."

    def setup(self, machine: Machine) -> None:
        machine.write_file(SAVED, b"")

    def evidence(self, machine: Machine) -> dict[str, Any]:
        saved = (machine.read_file(SAVED) or b"").decode()
        ended = None if machine.ended_by is None else machine.ended_by.action_type
        return {"word": self.word, "saved": saved, "ended": ended}

    def grade(self, machine: Machine) -> Score:
        machine.freeze()
        return score_checks(run_judge(self.verifier, self.evidence(machine)))

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        yield from (Type(text=self.word), Key(key="ctrl+s"), Done())
