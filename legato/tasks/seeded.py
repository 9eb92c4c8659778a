"""What every seeded task of ours has in common.

A seed decides names, values, layout and initial data; nothing on the screen depends on a clock
or on chance. Grading freezes the machine, collects plain evidence and lets a judge in the
verifier process say which checks hold (:mod:`legato.tasks.verifier`).
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from legato.desktop.actions import AnyAction, Done
from legato.desktop.contract import Machine, Score, Window
from legato.errors import EnvFailure, FileTooLarge
from legato.tasks.planned import planned
from legato.tasks.scoring import score_checks
from legato.tasks.verifier import pack_bytes, run_judge

MAX_FILE = 2**20
"""Largest file that is handed to a judge, in bytes; of larger ones it learns only that."""
MAX_FILES = 200
"""Most files of a folder that are handed to a judge."""
MAX_FOLDER = 16 * 2**20
"""Most bytes of one folder's files together; a file past them counts as too large."""


@dataclass(frozen=True)
class SeededTask(ABC):
    """One variant. Implements :class:`legato.desktop.contract.Task` on any machine."""

    suite: ClassVar[str]
    name: ClassVar[str]
    judge: ClassVar[Path]
    """The judge's file."""
    lockdown: ClassVar[bool] = True
    """Whether the desktop must be locked down; what is launched then runs in the agent's view."""

    seed: int
    task_id: str

    @property
    def domain(self) -> str:
        return self.suite

    @property
    def config(self) -> Mapping[str, Any]:
        """The entry of a tasks file that loads this very task."""
        return {
            "task_id": self.task_id,
            "suite": self.suite,
            "task": self.name,
            "seed": self.seed,
        }

    @property
    @abstractmethod
    def instruction(self) -> str: ...

    @abstractmethod
    def setup(self, machine: Machine) -> None: ...

    @abstractmethod
    def evidence(self, machine: Machine) -> dict[str, Any]:
        """What the judge needs to know, from a frozen machine; JSON-serialisable.

        What the agent may have made stands under ``found``.
        """

    @abstractmethod
    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        """A way to solve the task by GUI actions alone, ending with ``done``.

        The machine serves to look at windows between actions, as eyes would; nothing else.
        """

    def cheap_actions(self, machine: Machine) -> Iterator[AnyAction]:
        """What one does who is after partial credit: all that takes no typing, and saving it.

        It must earn nothing. By default there is nothing of the kind.
        """
        yield Done()

    def settle(self, machine: Machine) -> None:  # noqa: B027 - most have nothing to do
        """Before the machine is frozen: have a program show what it would not tell otherwise.

        Nothing may be saved by it that the agent has not saved, and a second time must find what
        the first has left. By default there is nothing to do.
        """

    def grade(self, machine: Machine) -> Score:
        self.settle(machine)
        machine.freeze()
        evidence = self.evidence(machine)
        return score_checks(run_judge(self.judge, evidence, untouched=self._untouched))

    def _untouched(self) -> dict[str, Any]:
        """The evidence of the start state, from a machine on which nobody acts."""
        with planned(self) as machine:
            self.settle(machine)
            return self.evidence(machine)


def window_titles(machine: Machine) -> list[str]:
    """Titles of the open windows; of a long one the ends, by which programs tell what they are."""
    return [shortened(window.title) for window in machine.windows()]


def shortened(title: str) -> str:
    """Its first and its last 150 characters, if it has more than 300."""
    return title if len(title) <= 300 else f"{title[:150]}…{title[-150:]}"


def close_editor(machine: Machine, program: str) -> None:
    """Have an editor show whether anything in it is unsaved, in tabs behind others included.

    Asked to close its only window, it asks back if there is, and the window stays. Dialogs are
    closed before it: under some of them it does not listen. ``program`` is how the title of such
    a window ends, and the windows' class.
    """
    windows = [w for w in machine.windows() if w.wm_class == program]
    edited = [w for w in windows if w.title.endswith(program)]
    if len(edited) == 1:
        for window in (*reversed([w for w in windows if w not in edited]), *edited):
            close_if_it_can(machine, window)


def close_if_it_can(machine: Machine, window: Window) -> None:
    """Ask a window to close, as :meth:`SeededTask.settle` may.

    One whose program does not even answer (the agent had it work out something endless) stays
    open. That the machine is gone is told by whatever is asked of it next.
    """
    with contextlib.suppress(EnvFailure):
        machine.close_window(window.id)


def pack_folder(machine: Machine, path: str) -> dict[str, Any]:
    """Everything below a guest folder as evidence: ``{"files": {relative path: file}}``.

    A file is ``{"data": base64}``, ``{"too_large": True}``, or ``None`` if it is no regular file.
    Folders end in ``/`` and are listed when empty. Past ``MAX_FILES``, ``files`` is ``None``.
    """
    try:
        names = machine.list_files(path)
    except FileTooLarge:
        return {"files": None}
    if len(names) > MAX_FILES:
        return {"files": None}
    files: dict[str, Any] = {}
    left = MAX_FOLDER
    for name in names:
        if name.endswith("/"):
            files[name] = None
            continue
        try:
            data = machine.read_file(f"{path}/{name}", limit=min(MAX_FILE, left))
        except FileTooLarge:
            files[name] = {"too_large": True}
            continue
        files[name] = None if data is None else {"data": pack_bytes(data)}
        left -= len(data or b"")
    return {"files": files}
