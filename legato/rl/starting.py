"""Ctrl-C while a command of ours is still being imported: a line and exit code 130, no traceback.

Imports take a second, and longer from a cold disk. Nothing is running yet that had to be ended.
"""

from __future__ import annotations

import os
import signal
import sys

_before = signal.getsignal(signal.SIGINT)


def begin() -> None:
    """Call first of all, on the way to ``python -m legato.rl``; anybody else's import is not ours.

    While Python imports the package that it is to run, ``sys.argv[0]`` is ``-m`` (sys.argv).
    """
    command = sys.argv[:1] == ["-m"] and "legato.rl" in sys.orig_argv
    if command and _before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def done() -> None:
    """From here on the command answers for itself."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, _before)


def _leave(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)
