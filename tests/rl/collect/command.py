"""The command line as a user runs it, with fake desktops.

The model server is scripted as well, because what is tested is how failures are told, kept and
resumed; real desktops and a real model server are in ``tests/test_end_to_end.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from legato.rl import (
    read_records,
)
from legato.rl.schema import RolloutRecord


def command(server_url: str, tasks: Path, out: Path, *more: str) -> list[str]:
    fixed = ["--model", "scripted", "--backend", "fake", "--harness", "compact", "--api", "chat"]
    size = ["--width", "320", "--height", "240", "--desktops", "2", "--group", "2"]
    return [
        sys.executable, "-m", "legato.rl", "collect", "--tasks", str(tasks), "--out", str(out),
        "--policy-url", server_url, *fixed, *size, "--max-steps", "2", *more,
    ]  # fmt: skip


def run(*args: Any, timeout: float = 300, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*args),
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
    )


def records(out: Path) -> list[RolloutRecord]:
    return list(read_records(out))


def finals(out: Path) -> Counter[tuple[str, int]]:
    return Counter((r["group_id"], r["attempt"]) for r in records(out) if r["status"] != "retried")


def start(url: str, tasks: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(url, tasks, out, *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def wait_for_records(out: Path, count: int) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if (out / "rollouts.jsonl").exists() and len(records(out)) >= count:
            return
        time.sleep(0.02)
    pytest.fail(f"{out} has no {count} records after 120 s")
