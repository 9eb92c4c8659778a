"""The model server's key: used, and found nowhere."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tests.rl.collect.command import command, run
from tests.rl.servers import ModelServer

KEY = "sk-not-a-real-key-4711"


def test_the_key_is_used_and_appears_nowhere(tasks: Path, tmp_path: Path) -> None:
    with ModelServer(reply="wait", key=KEY, delay=0.3) as server:
        running = subprocess.Popen(
            [*command(server.url, tasks, tmp_path / "out"), "policy.step_timeout=30"],
            env={**os.environ, "LEGATO_POLICY_KEY": KEY},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        while running.poll() is None:
            for entry in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    assert KEY.encode() not in entry.read_bytes()
                except OSError:
                    continue
            time.sleep(0.1)
        assert running.stdout is not None
        output = running.stdout.read()
        running.stdout.close()
    assert running.returncode == 0, output
    assert KEY.encode() not in output
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes()


def test_a_refused_key_is_said_before_anything_starts(tasks: Path, tmp_path: Path) -> None:
    with ModelServer(key=KEY) as server:
        done = run(server.url, tasks, tmp_path / "out", LEGATO_POLICY_KEY="sk-wrong-key")
    assert done.returncode == 2
    assert "LEGATO_POLICY_KEY" in done.stderr
    assert "sk-wrong-key" not in done.stdout + done.stderr
    assert not (tmp_path / "out").exists()


def test_a_key_in_the_settings_is_refused(server: ModelServer, tasks: Path, tmp_path: Path) -> None:
    done = run(server.url, tasks, tmp_path / "out", f"policy.api_key={KEY}")
    assert done.returncode == 2
    assert KEY not in done.stdout + done.stderr
