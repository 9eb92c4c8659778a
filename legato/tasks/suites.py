"""Suites of seeded tasks, and how to get at one task by name and seed.

A suite maps task names to makers; a maker turns any non-negative seed into a task, always the
same one, so there is no last variant. The first :data:`VARIANTS` are fixed: each ships with a
reference episode, and a change of what they show is a change of the task. Other packages bring
suites through the entry-point group :data:`ENTRY_POINTS`; ``python -m legato.tasks new`` writes
such a package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from itertools import count, islice
from typing import Literal, Protocol, get_args

from legato.errors import ConfigError
from legato.tasks import buttons, desktop_apps, desktop_basics
from legato.tasks.seeded import SeededTask

VARIANTS = 8
"""Seeds below this are the fixed variants of every task."""
Split = Literal["train", "heldout"]
HELDOUT_EVERY = 4
"""Of so many consecutive seeds the last is held out."""


class Maker(Protocol):
    def __call__(self, seed: int, task_id: str) -> SeededTask: ...


SUITES: Mapping[str, Mapping[str, Maker]] = {
    "desktop_basics": desktop_basics.TASKS,
    "desktop_apps": desktop_apps.TASKS,
    "buttons": buttons.TASKS,
}
"""Those that come with the package."""
ENTRY_POINTS = "legato.suites"
"""Entry-point group of further suites: the suite's name to its mapping of names to makers."""


@cache
def all_suites() -> Mapping[str, Mapping[str, Maker]]:
    """Ours and those of installed packages.

    Raises :class:`~legato.errors.ConfigError` for one that cannot be loaded or takes our name.
    """
    found = dict(SUITES)
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name in found:
            raise ConfigError(f"suite {entry.name!r} of {entry.value} has the name of another one")
        try:
            found[entry.name] = dict(entry.load())
        except Exception as e:
            raise ConfigError(
                f"suite {entry.name!r} ({entry.value}) does not load: {type(e).__name__}: {e}"
            ) from e
    return found


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task one can load, with any seed."""

    suite: str
    name: str
    summary: str
    variants: int = VARIANTS
    """How many seeds are fixed; any other seed works, too."""


def list_tasks() -> list[TaskInfo]:
    return [
        TaskInfo(suite, name, (maker.__doc__ or "").partition("\n")[0])
        for suite, makers in all_suites().items()
        for name, maker in makers.items()
    ]


def load_task(
    name: str,
    seed: int | None = None,
    *,
    variant: int | None = None,
    suite: str | None = None,
    task_id: str | None = None,
) -> SeededTask:
    """The task ``name`` (of ``suite``, where several have the name) for ``seed``, 0 by default.

    ``variant`` is another word for ``seed``. Raises :class:`~legato.errors.ConfigError` for an
    unknown name, a negative seed, or both words at once.
    """
    if seed is not None and variant is not None:
        raise ConfigError("'variant' is another word for 'seed': give one of them")
    number = next((n for n in (seed, variant) if n is not None), 0)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ConfigError(f"seed must be an integer of at least 0, got {number!r}")
    if suite is not None and suite not in all_suites():
        raise ConfigError(f"unknown suite {suite!r}; known: {', '.join(all_suites())}")
    named = [s for s in all_suites() if suite in (None, s) and name in all_suites()[s]]
    if not named:
        known = ", ".join(info.name for info in list_tasks() if suite in (None, info.suite))
        raise ConfigError(f"unknown task {name!r}; known: {known}")
    if len(named) > 1:
        raise ConfigError(f"task {name!r} is in {' and '.join(named)}: name its 'suite'")
    return all_suites()[named[0]][name](number, task_id or f"{named[0]}/{name}/{number}")


def split_of(seed: int) -> Split:
    """To which of the two disjoint sets of seeds one belongs."""
    return "heldout" if seed % HELDOUT_EVERY == HELDOUT_EVERY - 1 else "train"


def seeds(split: Split, number: int) -> list[int]:
    """The first ``number`` seeds of a split. Raises :class:`~legato.errors.ConfigError`."""
    if split not in get_args(Split):
        raise ConfigError(f"unknown split {split!r}; known: {', '.join(get_args(Split))}")
    return list(islice((seed for seed in count() if split_of(seed) == split), number))


def suite_tasks(name: str, split: Split, number: int) -> list[SeededTask]:
    """The first ``number`` variants in a split, of every task of a suite or of ``SUITE/TASK``.

    Raises :class:`~legato.errors.ConfigError` for an unknown name.
    """
    suite, _, task = name.partition("/")
    if suite not in all_suites():
        raise ConfigError(f"unknown suite {suite!r}; known: {', '.join(all_suites())}")
    names = [task] if task else sorted(all_suites()[suite])
    return [load_task(name, seed, suite=suite) for seed in seeds(split, number) for name in names]


def tasks_entries(suite: str, numbers: list[int]) -> str:
    """A tasks file (:mod:`legato.tasks.tasks_file`) with these seeds of every task of a suite."""
    if suite not in all_suites():
        raise ConfigError(f"unknown suite {suite!r}; known: {', '.join(all_suites())}")
    lines = [
        json.dumps({"task_id": f"{name}-{seed}", "suite": suite, "task": name, "seed": seed})
        for seed in numbers
        for name in all_suites()[suite]
    ]
    return "[\n  " + ",\n  ".join(lines) + "\n]\n"
