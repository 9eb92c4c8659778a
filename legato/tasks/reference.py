"""Reference episodes of the fixed variants, as plain actions: ``reference_actions.json``.

Each suite ships one file, task name to one list of actions for every fixed variant. It is written
from what the tasks know of their own layout, with no desktop and no list of pixels kept by hand;
any other seed has its episode the same way (:meth:`~legato.tasks.seeded.SeededTask.
reference_actions`). ``python -m legato.tasks reference`` writes the files anew.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

from legato.desktop.actions import AnyAction, action_json, parse_action
from legato.errors import ConfigError
from legato.tasks.planned import SCREEN, planned
from legato.tasks.seeded import SeededTask
from legato.tasks.suites import SUITES, VARIANTS, load_task

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
    with planned(task) as machine:
        return list(task.reference_actions(machine))
