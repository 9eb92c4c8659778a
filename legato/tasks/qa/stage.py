"""One variant on one desktop: set up, acted on, graded. What every check of the gate does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from legato.desktop.actions import AnyAction, Wait
from legato.desktop.contract import Desktop, Machine, Score
from legato.errors import ActionError, EnvFailure
from legato.tasks.seeded import SeededTask

LOOKS = 10
"""Most seconds for which the first screen may go on changing, waits for it to be ready apart."""


class _Witness:
    """A task that lets the gate see the machine it was set up on."""

    def __init__(self, task: SeededTask) -> None:
        self._task = task
        self.machine: Machine | None = None
        self.task_id, self.domain = task.task_id, task.domain
        self.lockdown: bool = task.lockdown

    @property
    def instruction(self) -> str:
        return self._task.instruction

    @property
    def config(self) -> Mapping[str, Any]:
        return self._task.config

    def setup(self, machine: Machine) -> None:
        self.machine = machine
        self._task.setup(machine)

    def grade(self, machine: Machine) -> Score:
        return self._task.grade(machine)


class Stage:
    """Raises ``EnvFailure`` and ``GradeFailure``, as the desktop does."""

    def __init__(self, desktop: Desktop, task: SeededTask) -> None:
        self.desktop, self.task = desktop, task
        self.first_screens: list[str] = []
        """Hashes of what :meth:`show_first_screen` saw."""

    def start(self) -> Machine:
        """Reset to the variant's beginning."""
        witness = _Witness(self.task)
        self.desktop.reset(witness)
        self.desktop.wait_after_reset()
        if witness.machine is None:
            raise EnvFailure("the desktop did not set the task up on a machine")
        return witness.machine

    def show_first_screen(self) -> None:
        """Note the first screen after a start, once it stays.

        On a loaded machine a program may start in fits, with long rests in between.
        """
        seen = self.desktop.observe().sha256
        for _ in range(LOOKS):
            before = seen
            self.desktop.act(Wait(seconds=1.0))
            seen = self.desktop.observe().sha256
            if seen == before:
                break
        self.first_screens.append(seen)

    def play(self, actions: Iterable[AnyAction]) -> None:
        """Act; what the desktop rejects is nothing."""
        for action in actions:
            with contextlib.suppress(ActionError):
                self.desktop.act(action)

    def verdict(self, actions: Iterable[AnyAction] = ()) -> Score:
        self.play(actions)
        self.desktop.wait_before_eval()
        return self.desktop.evaluate()
