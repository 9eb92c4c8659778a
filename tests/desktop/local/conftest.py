"""One local desktop for many tests, made clean before each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from legato.desktop.contract import DesktopOptions, Machine, Score
from legato.desktop.local import LocalDesktop, check_requirements, make_desktop


@dataclass
class ScriptedTask:
    """A task whose set-up and grading are given; keeps the machine it was set up on."""

    on_setup: Callable[[Machine], None] = lambda machine: None
    on_grade: Callable[[Machine], Score] = lambda machine: Score(1.0)
    task_id: str = "scripted"
    domain: str = "tests"
    instruction: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    machines: list[Machine] = field(default_factory=list)

    def setup(self, machine: Machine) -> None:
        self.machines.append(machine)
        self.on_setup(machine)

    def grade(self, machine: Machine) -> Score:
        return self.on_grade(machine)

    @property
    def machine(self) -> Machine:
        return self.machines[-1]


@pytest.fixture(scope="package")
def shared_desktop() -> Iterator[LocalDesktop]:
    check_requirements()
    desktop = make_desktop(DesktopOptions(), 0)
    yield desktop
    desktop.close()


@pytest.fixture
def desktop(shared_desktop: LocalDesktop) -> LocalDesktop:
    """A clean desktop; tests that break one make their own."""
    shared_desktop.prepare()
    return shared_desktop


@pytest.fixture
def machine(desktop: LocalDesktop) -> Machine:
    task = ScriptedTask()
    desktop.reset(task)
    return task.machine


@pytest.fixture
def own_desktop() -> Iterator[Callable[..., LocalDesktop]]:
    """Makes desktops for tests that break them; closes them all."""
    made: list[LocalDesktop] = []

    def make(**options: Any) -> LocalDesktop:
        made.append(make_desktop(DesktopOptions(**options), len(made) + 1))
        return made[-1]

    yield make
    for desktop in made:
        desktop.close()
