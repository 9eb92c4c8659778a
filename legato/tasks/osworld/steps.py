"""OSWorld's set-up steps, those a desktop without OSWorld's own guest server can take.

A step is a validated model of its ``parameters``. :meth:`Step.problems` names what can be known
to fail before anything starts; :meth:`Step.run` takes the step. The same steps serve as
``postconfig`` before grading: there, what the agent may have caused (a closed window, a failing
command) is passed over, as OSWorld does, and only a lost machine raises.
"""

from __future__ import annotations

import mimetypes
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from legato.desktop.contract import Machine, Window
from legato.errors import EnvFailure
from legato.tasks.osworld import commands
from legato.tasks.osworld.commands import Command
from legato.tasks.osworld.fetch import fetch, is_remote, local_source

WINDOW_S = 15.0
"""How long set-up waits for a window that a step names."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where in the episode a step runs."""

    base: Path
    """Host folder that relative host paths start from: that of the task file."""
    after_agent: bool = False
    """``postconfig``: what is missing now may be the agent's doing."""


class Step(BaseModel, ABC):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def problems(self, base: Path, *, local: bool) -> Iterator[str]:
        """Reasons why this step cannot work; ``local``: the guest has this host's programs."""
        yield from ()

    @abstractmethod
    def run(self, machine: Machine, stage: Stage) -> None:
        """Take the step. Raises :class:`~legato.errors.EnvFailure`."""


GuestPath = Annotated[str, Field(min_length=1)]


def guest_path(path: str, home: str) -> str:
    """An absolute guest path; relative ones start at the home, as does ``~``."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return str(PurePosixPath(home) / path)


class _CommandStep(Step):
    command: Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1)]
    shell: bool = False

    def problems(self, base: Path, *, local: bool) -> Iterator[str]:
        impossible = list(commands.impossible(self.command))
        yield from impossible
        if local and not impossible:
            yield from commands.not_installed(commands.program_of(self.command, shell=self.shell))

    def argv(self, machine: Machine) -> list[str]:
        command: Command = commands.fill_in(self.command, machine.screen)
        return commands.argv_of(command, shell=self.shell, home=machine.home)


class Launch(_CommandStep):
    """Start a program; set-up waits for its window if it is one that opens windows."""

    def run(self, machine: Machine, stage: Stage) -> None:
        program = commands.program_of(self.command, shell=self.shell)
        waits = not stage.after_agent and program is not None and _opens_windows(machine, program)
        machine.launch(self.argv(machine), wait_window=waits)


def _opens_windows(machine: Machine, program: str) -> bool:
    """Whether an application menu entry starts this program."""
    name = PurePosixPath(program).name.replace(".", "[.]").replace("+", "[+]")
    entry = f"^Exec=(/usr/bin/)?{name}( |$)"
    found = machine.run(["grep", "-rlsE", entry, "/usr/share/applications"], timeout=20.0)
    return found.returncode == 0


class Execute(_CommandStep):
    """Run a command to its end. Its exit status does not matter, unless it could not run."""

    def run(self, machine: Machine, stage: Stage) -> None:
        done = commands.run(machine, self.argv(machine))
        if stage.after_agent:
            return
        if done.returncode == commands.TIMED_OUT:
            raise EnvFailure(f"set-up command took longer than {commands.COMMAND_S:g} s: {self}")
        if commands.could_not_run(done):
            raise EnvFailure(
                f"set-up command could not run: {self}: {done.stderr.strip()[-300:]}",
                transient=False,
            )


class _Upload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    local_path: Annotated[str, Field(min_length=1)]
    path: GuestPath


class UploadFile(Step):
    """Copy host files into the guest; relative host paths start at the task file's folder."""

    files: Annotated[list[_Upload], Field(min_length=1)]

    def problems(self, base: Path, *, local: bool) -> Iterator[str]:
        for file in self.files:
            yield from _missing(file.local_path, base)

    def run(self, machine: Machine, stage: Stage) -> None:
        for file in self.files:
            data = fetch(file.local_path, stage.base)
            machine.write_file(guest_path(file.path, machine.home), data)


class _Download(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    url: Annotated[str, Field(min_length=1)]
    path: GuestPath


class Download(Step):
    """Fetch ``http(s)://`` or ``file://`` URLs on the host and write them into the guest."""

    files: Annotated[list[_Download], Field(min_length=1)]

    def problems(self, base: Path, *, local: bool) -> Iterator[str]:
        for file in self.files:
            yield from bad_source(file.url, base)

    def run(self, machine: Machine, stage: Stage) -> None:
        for file in self.files:
            data = fetch(file.url, stage.base)
            machine.write_file(guest_path(file.path, machine.home), data)


def bad_source(source: str, base: Path) -> Iterator[str]:
    """Why a URL cannot be fetched, as far as can be known without fetching it."""
    if is_remote(source):
        return
    if not source.startswith("file://"):
        yield f"{source!r} is neither an http(s):// nor a file:// URL"
        return
    yield from _missing(source, base)


def _missing(source: str, base: Path) -> Iterator[str]:
    path = local_source(source, base)
    if not path.is_file():
        yield f"there is no file {path}"


class Open(Step):
    """Open a guest file with the program for its kind and wait for the window."""

    path: GuestPath

    def problems(self, base: Path, *, local: bool) -> Iterator[str]:
        if local:
            yield from commands.not_installed(opener(self.path))

    def run(self, machine: Machine, stage: Stage) -> None:
        path = guest_path(self.path, machine.home)
        machine.launch([opener(self.path), path], wait_window=not stage.after_agent)


_OFFICE = re.compile(r"\.(docx?|odt|rtf|xlsx?|ods|csv|tsv|pptx?|odp|odg)")


def opener(path: str) -> str:
    """The program that opens a path, by what its name says it is.

    Names without a suffix are taken for folders, as in ``/home/user/Desktop``.
    """
    suffix = PurePosixPath(path).suffix.lower()
    kind = mimetypes.guess_type(path, strict=False)[0] or ""
    if not suffix or path.endswith("/"):
        return "pcmanfm"
    if _OFFICE.fullmatch(suffix):
        return "libreoffice"
    if kind in {"text/html", "application/pdf"} or kind.startswith(("image/", "video/", "audio/")):
        return "chromium"
    if kind.startswith("text/") or suffix in {".md", ".log", ".conf", ".ini", ".json", ".yaml"}:
        return "mousepad"
    return "xdg-open"


class Sleep(Step):
    seconds: Annotated[float, Field(ge=0.0, le=300.0, allow_inf_nan=False)]

    def run(self, machine: Machine, stage: Stage) -> None:
        # In the guest, so that it ends with the machine and not after it.
        machine.run(["sleep", f"{self.seconds}"], timeout=self.seconds + 30.0)


class _WindowStep(Step):
    window_name: Annotated[str, Field(min_length=1)]
    strict: bool = False
    """The whole title, case included; otherwise any part of it."""
    by_class: bool = False

    def find(self, machine: Machine, stage: Stage) -> Window | None:
        """The window, awaited in set-up; ``None`` only after the agent has been at it."""
        ends = time.monotonic() + (0.0 if stage.after_agent else WINDOW_S)
        while True:
            windows = machine.windows()
            for window in windows:
                if self._names(window.wm_class if self.by_class else window.title):
                    return window
            if stage.after_agent:
                return None
            if time.monotonic() >= ends:
                there = ", ".join(repr(window.title) for window in windows) or "none"
                raise EnvFailure(f"no window named {self.window_name!r}; there are: {there}")
            time.sleep(0.05)

    def _names(self, title: str) -> bool:
        if self.strict:
            return title == self.window_name
        return self.window_name.lower() in title.lower()


class ActivateWindow(_WindowStep):
    def run(self, machine: Machine, stage: Stage) -> None:
        if window := self.find(machine, stage):
            machine.activate_window(window.id)


class CloseWindow(_WindowStep):
    def run(self, machine: Machine, stage: Stage) -> None:
        if window := self.find(machine, stage):
            machine.close_window(window.id)


STEPS: Mapping[str, type[Step]] = {
    "launch": Launch,
    "execute": Execute,
    "command": Execute,
    "upload_file": UploadFile,
    "download": Download,
    "open": Open,
    "sleep": Sleep,
    "activate_window": ActivateWindow,
    "close_window": CloseWindow,
}
