"""Suites of seeded tasks, and how to get at one task by name and seed.

A suite maps task names to makers; a maker turns any non-negative seed into a task, always the
same one. To add a suite, write its package and name it in :data:`SUITES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from legato.errors import ConfigError
from legato.tasks import basics
from legato.tasks.seeded import SeededTask


class Maker(Protocol):
    def __call__(self, seed: int, task_id: str) -> SeededTask: ...


SUITES: Mapping[str, Mapping[str, Maker]] = {"basics": basics.TASKS}


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task one can load, with any seed."""

    suite: str
    name: str
    summary: str


def list_tasks() -> list[TaskInfo]:
    return [
        TaskInfo(suite, name, (maker.__doc__ or "").partition("\n")[0])
        for suite, makers in SUITES.items()
        for name, maker in makers.items()
    ]


def load_task(
    name: str, seed: int = 0, *, suite: str | None = None, task_id: str | None = None
) -> SeededTask:
    """The task ``name`` (of ``suite``, where several have the name) for ``seed``.

    Raises :class:`~legato.errors.ConfigError` for an unknown name or a negative seed.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"seed must be an integer of at least 0, got {seed!r}")
    if suite is not None and suite not in SUITES:
        raise ConfigError(f"unknown suite {suite!r}; known: {', '.join(SUITES)}")
    named = [s for s in SUITES if suite in (None, s) and name in SUITES[s]]
    if not named:
        known = ", ".join(info.name for info in list_tasks() if suite in (None, info.suite))
        raise ConfigError(f"unknown task {name!r}; known: {known}")
    if len(named) > 1:
        raise ConfigError(f"task {name!r} is in {' and '.join(named)}: name its 'suite'")
    return SUITES[named[0]][name](seed, task_id or f"{named[0]}/{name}/{seed}")
