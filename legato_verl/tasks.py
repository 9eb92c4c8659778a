"""How ``data.train_files`` and ``data.val_files`` name tasks, and how a row carries one.

::

    buttons/press:train:1000        the first 1000 training seeds of one task
    desktop_basics:heldout:16       16 held-out seeds of every task of a suite
    path/to/tasks.json              a tasks file
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from legato.desktop.contract import Task
from legato.desktop.osworld.catalogue import is_infeasible
from legato.errors import ConfigError
from legato.tasks import parse_tasks
from legato.tasks.suites import Split, suite_tasks
from legato.tasks.tasks_file import load_tasks

FORMS = "SUITE[/TASK]:SPLIT:SEEDS (buttons/press:train:1000), or the path of a tasks.json"


def name_tasks(
    files: str | Sequence[str],
    *,
    backend: str,
    osworld_path: str | None = None,
    environment: str | None = None,
    infeasible: bool = True,
) -> list[tuple[Task, str]]:
    """The tasks of all ``files``, checked for the backend, each with its row's text.

    ``environment`` as in :func:`~legato.tasks.tasks_file.load_tasks`, ``infeasible`` as in
    :class:`~legato.rl.config.RolloutConfig`. Raises :class:`~legato.errors.ConfigError` naming
    what cannot be read.
    """
    checkout, place = _path(osworld_path), _path(environment)
    named: list[tuple[Task, str]] = []
    for name in [files] if isinstance(files, str) else files:
        if str(name).endswith(".json"):
            path = Path(str(name)).expanduser().resolve()
            tasks = load_tasks(path, backend=backend, osworld_path=checkout, environment=place)
            entries = json.loads(path.read_text(encoding="utf-8-sig"))
            named += zip(tasks, (_text(e, path.parent) for e in entries), strict=True)
        else:
            seeded = _suite(str(name))
            named += [(task, _text(dict(task.config), Path.cwd())) for task in seeded]
    kept = [(task, text) for task, text in named if infeasible or not is_infeasible(task.config)]
    if named and not kept:
        raise ConfigError("all tasks are infeasible ones, which legato.infeasible=false leaves out")
    return kept


def read_task(
    text: str, *, backend: str, osworld_path: str | None = None, environment: str | None = None
) -> Task:
    """The task of a row's text."""
    row: dict[str, Any] = json.loads(text)
    (task,) = parse_tasks(
        [row["entry"]],
        backend=backend,
        osworld_path=_path(osworld_path),
        environment=_path(environment),
        base=Path(row["base"]),
    )
    return task


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name).expanduser()


def _suite(name: str) -> Sequence[Task]:
    parts = name.split(":")
    if len(parts) != 3 or not parts[2].isdecimal() or not int(parts[2]):
        raise ConfigError(f"{name!r} names no tasks: write data.train_files as {FORMS}")
    suite, split, seeds = parts
    return suite_tasks(suite, cast(Split, split), int(seeds))


def _text(entry: dict[str, Any], base: Path) -> str:
    return json.dumps({"entry": entry, "base": str(base)})
