from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from tests.conftest import REPO

PASSES_BUT_LEAKS = """
    import subprocess, tempfile

    def test_passes():
        orphan = "setsid sleep 600 & echo $!"  # its parent is gone at once
        print(subprocess.run(["sh", "-c", orphan], stdout=open("pid", "w")))
        tempfile.mkdtemp(prefix="legato-run-")
"""
PASSES = """
    import subprocess

    def test_passes():
        assert subprocess.Popen(["sleep", "0.5"]).pid  # gone before the grace period is
"""


def session(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(textwrap.dedent(source))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "test_it.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_session_that_leaves_something_fails_and_it_is_removed(tmp_path: Path) -> None:
    done = session(tmp_path, PASSES_BUT_LEAKS)
    pid = (tmp_path / "pid").read_text().strip()
    assert done.returncode == 1, done.stdout
    assert "1 passed" in done.stdout
    assert f"process {pid}: sleep 600" in done.stdout
    (leaked,) = [line for line in done.stdout.splitlines() if line.startswith("temporary file")]
    assert not Path(leaked.removeprefix("temporary file ")).exists()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_session_that_cleans_up_passes(tmp_path: Path) -> None:
    done = session(tmp_path, PASSES)
    assert done.returncode == 0, done.stdout
