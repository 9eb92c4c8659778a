"""Reference episodes of the fixed variants, as plain actions: ``reference_actions.json``.

Each suite ships one file, task name to one list of actions for every fixed variant. It is written
from what the tasks know of their own layout, with no desktop and no list of pixels kept by hand;
any other seed has its episode the same way (:meth:`~legato.tasks.seeded.SeededTask.
reference_actions`). ``python -m legato.tasks reference`` writes the files anew.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction, action_json, parse_action
from legato.desktop.contract import Completed, EndedBy, Window
from legato.errors import ConfigError, EnvFailure
from legato.tasks.seeded import SeededTask
from legato.tasks.suites import SUITES, VARIANTS, load_task

SCREEN = (1280, 720)
"""The screen, in pixels, that the files are for."""
SHIPPED = ("desktop_basics", "desktop_apps")
"""Suites that ship one."""
NAME = "reference_actions.json"


def reference_file(suite: str) -> Path:
    """Where a suite's file is. Raises :class:`~legato.errors.ConfigError` if it ships none."""
    if suite not in SHIPPED:
        raise ConfigError(f"suite {suite!r} ships no reference file; {', '.join(SHIPPED)} do")
    home = import_module(f"legato.tasks.{suite}").__file__
    assert home is not None
    return Path(home).with_name(NAME)


def shipped_actions(task: SeededTask) -> list[AnyAction] | None:
    """The shipped episode of a fixed variant; ``None`` for any other seed, suite or screen."""
    if task.suite not in SHIPPED or task.seed >= VARIANTS:
        return None
    data = json.loads(reference_file(task.suite).read_text(encoding="utf-8"))
    return [parse_action(action) for action in data["tasks"][task.name][task.seed]]


def generate(suite: str) -> str:
    """The text of a suite's file."""
    tasks = {
        name: [
            [action_json(action) for action in planned_actions(load_task(name, seed, suite=suite))]
            for seed in range(VARIANTS)
        ]
        for name in SUITES[suite]
    }
    return json.dumps({"screen": list(SCREEN), "tasks": tasks}, ensure_ascii=False, indent=1) + "\n"


def planned_actions(task: SeededTask) -> list[AnyAction]:
    """The reference episode of one variant, without a desktop."""
    with tempfile.TemporaryDirectory() as scratch:
        machine = PlannedMachine(Path(scratch), task.instruction)
        try:
            task.setup(machine)
            return list(task.reference_actions(machine))
        finally:
            machine.release()


@dataclass
class PlannedMachine:
    """A machine on which programs open one window, where they are put, and do nothing else."""

    scratch: Path
    title: str
    """Of every window: whatever a program writes there, the task's instruction has its words."""
    screen: tuple[int, int] = SCREEN
    home: str = "/home/user"
    ended_by: EndedBy | None = None
    opened: list[Window] = field(default_factory=list)
    owned: list[Any] = field(default_factory=list)

    def launch(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        wait_window: bool = True,
        timeout: float = 30.0,
    ) -> int:
        number = len(self.opened) + 1
        self.opened.append(Window(number, self.title, argv[0], number, 0, 0, 640, 480))
        return number

    def windows(self) -> list[Window]:
        return list(self.opened)

    def place_window(self, window_id: int, x: int, y: int, width: int, height: int) -> None:
        self.opened = [
            replace(w, x=x, y=y, width=width, height=height) if w.id == window_id else w
            for w in self.opened
        ]

    def own(self, resource: Any) -> None:
        self.owned.append(resource)

    def release(self) -> None:
        while self.owned:
            self.owned.pop().close()

    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        return

    def expose(self, port: int, socket_path: Path) -> None:
        return

    def read_file(self, path: str, *, limit: int = 64 * 2**20) -> bytes | None:
        return None

    def list_files(self, path: str) -> list[str]:
        return []

    def freeze(self) -> None:
        return

    def activate_window(self, window_id: int) -> None:
        return

    def close_window(self, window_id: int) -> None:
        self.opened = [w for w in self.opened if w.id != window_id]

    def input(self, action: AnyAction) -> None:
        raise EnvFailure("a planned machine takes no input")

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 60.0,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Completed:
        raise EnvFailure("a planned machine runs no commands")

    def launched(self, pid: int) -> tuple[int | None, str]:
        return None, ""
