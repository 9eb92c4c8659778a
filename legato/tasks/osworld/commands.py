"""Commands in OSWorld's format: an argv list, or a string with or without a shell."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Sequence

from legato.desktop.contract import Completed, Machine

GUEST_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where a local desktop, which shares the host's ``/usr``, finds programs."""
COMMAND_S = 120.0
"""Deadline of one command, as OSWorld's in-guest server has it."""
TIMED_OUT = 124
"""Exit status with which coreutils ``timeout`` says that it ended the command."""

Command = str | list[str]

_SHELL_WORD = re.compile(
    r"[:.\[{(!]|alias|break|case|cd|command|continue|echo|eval|exec|exit|export|false|fg|for|"
    r"getopts|hash|if|kill|printf|pwd|read|readonly|return|set|shift|test|times|trap|true|type|"
    r"ulimit|umask|unset|until|wait|while"
)
_NOT_IN_GUEST = {
    "pyautogui": "pyautogui is not in the guest; drive the GUI by actions instead",
    "{CLIENT_PASSWORD}": "there is no password: the agent's user has no sudo",
}


def argv_of(command: Command, *, shell: bool, home: str) -> list[str]:
    """What to run; ``~/`` is expanded as OSWorld's server does for plain arguments."""
    if shell:
        return ["sh", "-c", command if isinstance(command, str) else shlex.join(command)]
    words = shlex.split(command) if isinstance(command, str) else command
    return [f"{home}/{word[2:]}" if word.startswith("~/") else word for word in words]


def fill_in(command: Command, screen: tuple[int, int]) -> Command:
    """Replace OSWorld's ``{SCREEN_WIDTH}`` and its kin."""
    width, height = screen
    values = {
        "{SCREEN_WIDTH_HALF}": width // 2,
        "{SCREEN_HEIGHT_HALF}": height // 2,
        "{SCREEN_WIDTH}": width,
        "{SCREEN_HEIGHT}": height,
    }

    def fill(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, str(value))
        return text

    return fill(command) if isinstance(command, str) else [fill(word) for word in command]


def program_of(command: Command, *, shell: bool) -> str | None:
    """The program a command starts with; ``None`` where only a shell could tell."""
    if isinstance(command, list) and not shell:
        return command[0]
    text = command if isinstance(command, str) else shlex.join(command)
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    for word in words:
        if shell and re.fullmatch(r"\w+=.*", word, re.DOTALL):
            continue
        known = re.fullmatch(r"[\w./+~-]+", word) and not _SHELL_WORD.fullmatch(word)
        return word if known or not shell else None
    return None


def impossible(command: Command) -> Iterator[str]:
    """Why a command cannot work on any of our machines."""
    text = command if isinstance(command, str) else "\n".join(command)
    for word, why in _NOT_IN_GUEST.items():
        if word in text:
            yield why
    if re.search(r"(^|[;&|\s])sudo\s", text):
        yield "sudo: the agent's user has none"


def not_installed(program: str | None) -> Iterator[str]:
    """Whether a local desktop lacks a program of this name."""
    if program is None or program.startswith(("~", "/home/", "/tmp/", ".")):
        return
    if shutil.which(program, path=GUEST_PATH) is None:
        yield f"program {program!r} is not installed (local desktops use this machine's /usr)"


def run(machine: Machine, argv: Sequence[str]) -> Completed:
    """Run in the guest; a command that passes its deadline there ends with ``TIMED_OUT``.

    The inner deadline tells the agent's doing (a command that hangs on what it left behind) from
    a machine that is gone, which raises :class:`~legato.errors.EnvFailure`.
    """
    bounded = ["timeout", "-k", "5", f"{COMMAND_S:g}", *argv]
    return machine.run(bounded, timeout=COMMAND_S + 30.0, cwd=machine.home)


def could_not_run(done: Completed) -> bool:
    """Whether the program was not there at all (a shell's own "not found" is an output)."""
    return done.returncode in (126, 127) and done.stderr.startswith("timeout: ")
