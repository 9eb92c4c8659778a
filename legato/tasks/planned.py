"""A machine without a desktop: it takes a task's set-up, and nobody acts on it.

It shows what a task puts where, so that a reference episode can be written down and a verifier be
asked about the untouched start.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction
from legato.desktop.contract import Completed, EndedBy, Task, Window
from legato.errors import EnvFailure, FileTooLarge

SCREEN = (1280, 720)
"""Pixels."""


@dataclass
class PlannedMachine:
    """Implements :class:`~legato.desktop.contract.Machine`: files in memory, windows in place."""

    scratch: Path
    title: str
    """Of every window: whatever a program writes there, the task's instruction has its words."""
    screen: tuple[int, int] = SCREEN
    home: str = "/home/user"
    ended_by: EndedBy | None = None
    opened: list[Window] = field(default_factory=list)
    owned: list[Any] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def launch(self, argv: Sequence[str], **_: Any) -> int:
        number = len(self.opened) + 1
        self.opened.append(Window(number, self.title, argv[0], number, 0, 0, 640, 480))
        return number

    def launched(self, pid: int) -> tuple[int | None, str]:
        return None, ""

    def windows(self) -> list[Window]:
        return list(self.opened)

    def place_window(self, window_id: int, x: int, y: int, width: int, height: int) -> None:
        self.opened = [
            replace(w, x=x, y=y, width=width, height=height) if w.id == window_id else w
            for w in self.opened
        ]

    def activate_window(self, window_id: int) -> None:
        return

    def close_window(self, window_id: int) -> bool:
        self.opened = [w for w in self.opened if w.id != window_id]
        return True

    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        self.files[path] = data

    def read_file(self, path: str, *, limit: int = 64 * 2**20) -> bytes | None:
        data = self.files.get(path)
        if data is not None and len(data) > limit:
            raise FileTooLarge(f"{path} has more than {limit} bytes")
        return data

    def list_files(self, path: str) -> list[str]:
        below = f"{path}/"
        return sorted(p.removeprefix(below) for p in self.files if p.startswith(below))

    def expose(self, port: int, socket_path: Path) -> None:
        return

    def own(self, resource: Any) -> None:
        self.owned.append(resource)

    def freeze(self) -> None:
        return

    def input(self, action: AnyAction) -> None:
        raise EnvFailure("a planned machine takes no input")

    def run(self, argv: Sequence[str], **_: Any) -> Completed:
        raise EnvFailure("a planned machine runs no commands")


@contextlib.contextmanager
def planned(task: Task) -> Iterator[PlannedMachine]:
    """The machine as it is when the task has been set up and nothing was done."""
    with tempfile.TemporaryDirectory() as scratch:
        machine = PlannedMachine(Path(scratch), task.instruction)
        try:
            task.setup(machine)
            yield machine
        finally:
            while machine.owned:
                machine.owned.pop().close()
