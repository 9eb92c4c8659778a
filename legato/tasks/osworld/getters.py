"""OSWorld's getters for files, command output and rules: what a metric looks at.

Every getter gives one piece of evidence (see :mod:`legato.tasks.osworld.metrics`) or ``None``
when there is nothing: a file the agent should have made and did not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from legato.desktop.contract import Machine
from legato.errors import EnvFailure, FileTooLarge
from legato.tasks.osworld import commands
from legato.tasks.osworld.fetch import fetch
from legato.tasks.osworld.steps import GuestPath, bad_source, guest_path
from legato.tasks.verifier import pack_bytes

MAX_FILE = 4 * 2**20
"""Largest file a metric looks at; a larger one counts as not being the file asked for."""

Evidence = dict[str, Any] | None
Gives = Literal["text", "file", "rule"]


class Getter(BaseModel, ABC):
    model_config = ConfigDict(frozen=True, extra="forbid")

    gives: ClassVar[Gives]
    live: ClassVar[bool] = False
    """Whether it needs the machine's processes, and so must come before they are frozen."""

    def problems(self, base: Path) -> Iterator[str]:
        """Reasons, known beforehand, why this getter cannot work."""
        yield from ()

    def prepare(self, machine: Machine, base: Path, slot: str) -> None:
        """Fetch at set-up what does not depend on the agent, to fail before the episode."""

    @abstractmethod
    def get(self, machine: Machine, slot: str) -> Evidence:
        """Raises :class:`~legato.errors.EnvFailure` if the machine is gone."""


class Rule(Getter):
    gives = "rule"

    rules: Any

    def get(self, machine: Machine, slot: str) -> Evidence:
        return {"rule": self.rules}


class VmFile(Getter):
    """A file of the guest. ``dest`` names OSWorld's copy of it and means nothing here."""

    gives = "file"

    path: GuestPath
    dest: str = ""

    def get(self, machine: Machine, slot: str) -> Evidence:
        try:
            data = machine.read_file(guest_path(self.path, machine.home), limit=MAX_FILE)
        except FileTooLarge:
            return None
        return None if data is None else {"file": pack_bytes(data)}


class CloudFile(Getter):
    """A file by URL, usually the gold one. Fetched at set-up and kept beside the episode."""

    gives = "file"

    path: Annotated[str, Field(min_length=1)]
    dest: str = ""

    def problems(self, base: Path) -> Iterator[str]:
        yield from bad_source(self.path, base)

    def prepare(self, machine: Machine, base: Path, slot: str) -> None:
        kept = machine.scratch / slot
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(fetch(self.path, base))

    def get(self, machine: Machine, slot: str) -> Evidence:
        try:
            return {"file": pack_bytes((machine.scratch / slot).read_bytes())}
        except OSError as e:
            raise EnvFailure(f"the file fetched for grading is gone: {e}") from e


class VmCommandLine(Getter):
    """Standard output of a command run in the guest as the agent's user."""

    gives = "text"
    live = True
    stream: ClassVar[Literal["stdout", "stderr"]] = "stdout"

    command: Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1)]
    shell: bool = False

    def problems(self, base: Path) -> Iterator[str]:
        yield from commands.impossible(self.command)

    def get(self, machine: Machine, slot: str) -> Evidence:
        done = commands.run(
            machine, commands.argv_of(self.command, shell=self.shell, home=machine.home)
        )
        if done.returncode == commands.TIMED_OUT or commands.could_not_run(done):
            return None
        return {"text": getattr(done, self.stream)}


class VmCommandError(VmCommandLine):
    """Standard error of a command run in the guest."""

    stream = "stderr"


GETTERS: Mapping[str, type[Getter]] = {
    "rule": Rule,
    "vm_file": VmFile,
    "cloud_file": CloudFile,
    "vm_command_line": VmCommandLine,
    "vm_command_error": VmCommandError,
}
