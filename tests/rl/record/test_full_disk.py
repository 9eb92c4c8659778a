"""A full disk is told, and leaves nothing torn."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.errors import DiskFullError
from legato.rl import store
from tests.rl.factories import frame, make_rollout
from tests.rl.record.written import (
    BESIDE,
    WRITER,
    check_whole,
    open_run,
    partial_files,
)


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True, timeout=20
    )
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True, timeout=20)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_said_and_nothing_is_torn(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "600k") as disk:
        path = disk / "run"
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(200 * 1024))
        with open_run(path) as run:
            recorded = 0
            with pytest.raises(DiskFullError, match=r"no space left .*free some space"):  # noqa: PT012
                while recorded < 1000:
                    run.append(make_rollout(attempt=recorded, frames=[frame(recorded, 64, 48)] * 3))
                    recorded += 1
            assert recorded > 0
            assert len(check_whole(path)) == recorded
            assert partial_files(path) == []
            ballast.unlink()
            run.append(make_rollout(attempt=recorded))
        assert len(check_whole(path)) == recorded + 1
        with open_run(path) as run:
            assert len(run.finished) == recorded + 1


def test_no_space_at_any_write_leaves_no_torn_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th write of an append stores half of its bytes and then finds the disk full."""
    for fails in range(1, 100):
        disk = _FillingDisk(fails)
        path = tmp_path / str(fails)
        with open_run(path) as run:
            run.append(make_rollout(attempt=0))
            second = make_rollout(attempt=1, steps=3)
            with monkeypatch.context() as patch:
                patch.setattr(store.os, "write", disk.write)
                try:
                    run.append(second)
                    break
                except DiskFullError:
                    assert disk.full
            assert [r["attempt"] for r in check_whole(path)] == [0]
            assert (path / "rollouts.jsonl").read_bytes().endswith(b"\n")
            assert partial_files(path) == []
            run.append(second)
        assert [r["attempt"] for r in check_whole(path)] == [0, 1]
    # One write each for 3 images, 5 new messages and the line: all of them have failed once.
    assert fails == 10


class _FillingDisk:
    def __init__(self, fails: int) -> None:
        self.left = fails
        self.full = False
        self._write = os.write

    def write(self, fd: int, data: Any) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.left -= 1
        if self.left == 0:
            self.full = True
            return self._write(fd, bytes(data)[: len(data) // 2])
        return self._write(fd, data)


def test_a_file_size_limit_counts_as_a_full_disk(path: Path) -> None:
    """The kernel's own refusal, without root."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (60000, 60000))\n"
    writer = subprocess.run(
        [sys.executable, "-c", limit + WRITER, str(path)],
        cwd=BESIDE,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "DiskFullError" in writer.stderr
    recorded = int(writer.stdout.splitlines()[-1]) + 1
    assert len(check_whole(path)) == recorded
    assert (path / "rollouts.jsonl").read_bytes().endswith(b"\n")
