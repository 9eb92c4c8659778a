"""``tasks.json``: a list of entries, read and checked as a whole before anything starts.

An entry has a ``task_id``, unique in the file, and one of three forms::

    {"task_id": "...", "domain": "os"}             an OSWorld task, found below ``--osworld``
    {"task_id": "...", "config": {...}}            an inline config in OSWorld's format;
                                                   "domain" may name what it counts as
    {"task_id": "...", "task": "edit_text",        a seeded task of ours; "suite" only where
     "seed": 3}                                    a task name is in several

Relative host paths in an inline config start at the file's own folder, those of an OSWorld task
at the checkout.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legato.desktop.contract import Machine, Score, Task
from legato.desktop.fake.generate import scene_of
from legato.desktop.osworld import catalogue
from legato.desktop.osworld.environment import Environment, default_path
from legato.errors import ConfigError
from legato.tasks.osworld.task import SUPPORTED, read_config
from legato.tasks.suites import load_task

EXAMPLES = Path("evaluation_examples") / "examples"
"""Where an OSWorld checkout keeps its task files, as ``<domain>/<task_id>.json``."""
SELF_GRADING = frozenset({"osworld", "fake"})
"""Backends that set up and grade a config by themselves."""
INLINE_DOMAIN = "inline"
_FIELDS = frozenset({"task_id", "domain", "config", "suite", "task", "seed"})
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SHOWN = 40
"""Most problems that one error lists."""


@dataclass(frozen=True, slots=True)
class CarriedTask:
    """A config for a backend that knows by itself what to do with it."""

    task_id: str
    domain: str
    instruction: str
    config: Mapping[str, Any]

    def setup(self, machine: Machine) -> None:
        raise ConfigError(f"task {self.task_id!r} was loaded for a backend that sets it up itself")

    def grade(self, machine: Machine) -> Score:
        raise ConfigError(f"task {self.task_id!r} was loaded for a backend that grades it itself")


def load_tasks(
    path: Path | str,
    *,
    backend: str,
    osworld_path: Path | None = None,
    environment: Path | None = None,
) -> list[Task]:
    """Read a tasks file for a backend (``local``, ``osworld``, ``fake`` or another one's name).

    ``osworld_path`` is a checkout; ``environment`` is where OSWorld's environment was set up, if
    not at its usual place.

    Raises :class:`~legato.errors.ConfigError` that lists every bad entry with its number and
    ``task_id`` and what to change.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as e:
        raise ConfigError(f"could not read the tasks file {path}: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path} is not UTF-8 text (byte {e.start})") from e
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as e:
        raise ConfigError(
            f"{path} is not valid JSON: {e.msg} at line {e.lineno}, column {e.colno}"
        ) from e
    except RecursionError as e:
        raise ConfigError(f"{path} is nested too deeply") from e
    except ValueError as e:
        raise ConfigError(f"{path} holds a number with too many digits") from e
    if not isinstance(entries, list):
        raise ConfigError(
            f"{path} must hold a list of task entries, not {_kind(entries)}: put it in [ ]"
        )
    return parse_tasks(
        entries,
        backend=backend,
        osworld_path=osworld_path,
        environment=environment,
        base=path.resolve().parent,
        source=str(path),
    )


def parse_tasks(
    entries: Sequence[Any],
    *,
    backend: str,
    osworld_path: Path | None = None,
    environment: Path | None = None,
    base: Path | None = None,
    source: str = "tasks",
) -> list[Task]:
    """The same for entries already read; ``base`` (the working directory) anchors host paths."""
    if not entries:
        raise ConfigError(f"{source}: no tasks: add at least one entry")
    reader = _Reader(backend, osworld_path, environment, base or Path.cwd())
    tasks: list[Task] = []
    problems: list[str] = []
    for number, entry in enumerate(entries):
        try:
            tasks.append(reader.task(number, entry))
        except _BadEntry as e:
            task_id = entry.get("task_id") if isinstance(entry, dict) else None
            named = f" ({task_id})" if isinstance(task_id, str) else ""
            problems += [f"entry {number}{named}: {problem}" for problem in e.problems]
    if problems:
        raise ConfigError(_report(source, problems))
    return tasks


class _BadEntry(Exception):  # noqa: N818 - never leaves this module
    """One entry cannot be used, for these reasons."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems


def _report(source: str, problems: Sequence[str]) -> str:
    shown = list(problems[:_SHOWN])
    if len(problems) > _SHOWN:
        shown.append(f"... and {len(problems) - _SHOWN} more")
    if any("is not supported" in problem for problem in problems):
        shown.append(f"supported without OSWorld's own desktops: {SUPPORTED}")
    return "\n  ".join([f"{source}: {len(problems)} problem(s):", *shown])


class _Reader:
    """Reads entries one by one; every method raises ``_BadEntry``."""

    def __init__(
        self, backend: str, osworld_path: Path | None, environment: Path | None, base: Path
    ) -> None:
        self.backend, self.osworld_path, self.base = backend, osworld_path, base
        self.environment = Environment(environment or default_path())
        self._seen: dict[str, int] = {}

    def task(self, number: int, entry: Any) -> Task:
        if not isinstance(entry, dict):
            raise _BadEntry(f"must be an object, not {_kind(entry)}")
        task_id = entry.get("task_id")
        if not isinstance(task_id, str) or not task_id.strip():
            raise _BadEntry("'task_id' must be a non-empty string")
        if _LONE_SURROGATE.search(task_id):
            raise _BadEntry("'task_id' holds half a character (a lone surrogate)")
        if task_id in self._seen:
            raise _BadEntry(f"'task_id' is that of entry {self._seen[task_id]} too: rename one")
        self._seen[task_id] = number
        if unknown := sorted(set(entry) - _FIELDS):
            raise _BadEntry(f"unknown field(s): {', '.join(unknown)}")
        for field in ("domain", "task", "suite"):
            if field in entry and (not isinstance(entry[field], str) or not entry[field]):
                raise _BadEntry(f"{field!r} must be a non-empty string")
        forms = {"config", "task"} & set(entry) or {"domain"} & set(entry)
        if len(forms) != 1:
            raise _BadEntry("needs either a 'domain', a 'config' or a 'task'")
        if "task" not in entry and (stray := sorted({"suite", "seed"} & set(entry))):
            raise _BadEntry(f"{stray[0]!r} belongs to a 'task', which this entry does not name")
        if "task" in entry:
            return self._seeded(task_id, entry)
        if "config" in entry:
            domain = entry.get("domain", INLINE_DOMAIN)
            return self._config(task_id, domain, entry["config"], self.base)
        return self._from_checkout(task_id, entry["domain"])

    def _seeded(self, task_id: str, entry: Mapping[str, Any]) -> Task:
        if "domain" in entry:
            raise _BadEntry("'domain' does not go with 'task': a seeded task's is its suite")
        try:
            return load_task(
                entry["task"], seed=entry.get("seed", 0), suite=entry.get("suite"), task_id=task_id
            )
        except ConfigError as e:
            raise _BadEntry(str(e)) from e

    def _from_checkout(self, task_id: str, domain: str) -> Task:
        if self.osworld_path is None:
            raise _BadEntry("an OSWorld task: pass --osworld with the path of the checkout")
        examples = self.osworld_path.expanduser() / EXAMPLES
        if not examples.is_dir():
            raise _BadEntry(f"--osworld {self.osworld_path} has no folder {EXAMPLES}")
        domains = sorted(folder.name for folder in examples.iterdir() if folder.is_dir())
        if domain not in domains:
            raise _BadEntry(f"unknown domain {domain!r}; there are: {', '.join(domains)}")
        file = examples / domain / f"{task_id}.json"
        if "/" in task_id or not file.is_file():
            raise _BadEntry(f"there is no task file {file}")
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as e:
            raise _BadEntry(f"could not read {file}: {e}") from e
        return self._config(task_id, domain, config, self.osworld_path)

    def _config(self, task_id: str, domain: str, config: Any, base: Path) -> Task:
        if not isinstance(config, dict):
            raise _BadEntry(f"'config' must be an object, not {_kind(config)}")
        if self.backend in SELF_GRADING:
            instruction = config.get("instruction")
            if not isinstance(instruction, str) or not instruction.strip():
                raise _BadEntry("'instruction' must be a non-empty string")
            if self.backend == "fake":
                try:
                    scene_of(task_id, config)
                except ConfigError as e:
                    raise _BadEntry(str(e)) from None
            if self.backend == "osworld":
                found = catalogue.problems(
                    config, checkout=self.osworld_path, environment=self.environment
                )
                if found:
                    raise _BadEntry(*found)
            return CarriedTask(task_id, domain, instruction, config)
        task, problems = read_config(
            task_id, domain, config, base=base, local=self.backend == "local"
        )
        if task is None:
            raise _BadEntry(*problems)
        return task


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", type(None): "null"}
    return names.get(type(value), f"the {type(value).__name__} {value!r}")
