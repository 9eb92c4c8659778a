"""Ctrl-C before a command has begun."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys

import pytest


def test_ctrl_c_during_the_imports_is_one_line() -> None:
    """The interpreter's own list of imports says when ours have begun and are not yet over."""
    command = [sys.executable, "-X", "importtime", "-m", "legato.rl", "profile", "nowhere"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        fcntl.fcntl(running.stderr, fcntl.F_SETPIPE_SZ, 4096)  # so that it does not run ahead
        said = []
        for line in running.stderr:
            said.append(line)
            if line.endswith(" legato.rl.starting\n"):
                break
        else:
            pytest.fail("".join(said))
        said = []
        for line in running.stderr:  # the first import after the handler is there
            if not said:
                running.send_signal(signal.SIGINT)
            said.append(line)
        assert running.wait(60) == 130
    assert [line for line in said if not line.startswith("import time:")] == ["interrupted\n"]


def test_an_import_leaves_the_importers_ctrl_c_alone() -> None:
    code = "import signal, legato.rl; print(signal.getsignal(2) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n"
