"""What a crash or damage leaves behind."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from legato.errors import StorageError
from legato.rl import store
from legato.rl.record import (
    load_request,
    load_screenshot,
    read_records,
)
from tests.rl.factories import make_group, make_rollout
from tests.rl.record.written import (
    BESIDE,
    WRITER,
    check_whole,
    open_run,
    partial_files,
    written,
)


def test_a_line_torn_at_any_byte_does_not_exist(path: Path) -> None:
    written(path, *make_group([0.0, 1.0], steps=0))
    log = path / "rollouts.jsonl"
    whole = log.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        log.write_bytes(whole[:cut])
        assert [r["attempt"] for r in read_records(path)] == [0]
    log.write_bytes(whole[:-20])
    with open_run(path) as run:
        assert set(run.finished) == {("g0", 0)}
        run.append(make_rollout(attempt=1, steps=1))
    assert [r["attempt"] for r in check_whole(path)] == [0, 1]


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        (b"", 0),
        (b'{"torn', 0),
        (b'{"a": 1}\n', 9),
        (b'{"a": 1}\n{"torn', 9),
        (b'{"a": 1}\n' + b"x" * 200_000, 9),
        (b"x" * 200_000 + b"\n", 200_001),
    ],
)
def test_the_end_of_a_log_is_that_of_its_last_whole_line(
    tmp_path: Path, content: bytes, whole: int
) -> None:
    (tmp_path / "log").write_bytes(content)
    assert store.whole_lines(tmp_path / "log") == whole
    assert store.whole_lines(tmp_path / "no log") == 0


def test_a_last_line_of_zeros_does_not_exist(path: Path) -> None:
    written(path, make_rollout())
    with open(path / "rollouts.jsonl", "ab") as file:
        file.write(bytes(100) + b"\n")
    assert len(list(read_records(path))) == 1
    with open_run(path) as run:
        run.append(make_rollout(attempt=1))
    assert len(check_whole(path)) == 2


def test_damage_in_the_middle_is_named(path: Path) -> None:
    written(path, *make_group([0.0, 1.0, 1.0]))
    log = path / "rollouts.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0] + b"garbage\n" + lines[2])
    with pytest.raises(StorageError, match="line 2 is damaged"):
        list(read_records(path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"attempt": 0}, "repeats attempt 0"),
        ({"attempt": "1"}, "attempt number '1'"),
        ({"attempt": -1}, "attempt number -1"),
        ({"group_id": None}, "no text"),
        ({"status": "great"}, "unknown status 'great'"),
        ({"status": "ok", "reward": None}, "ok with a reward of None"),
        ({"status": "truncated", "reward": math.nan}, "truncated with a reward of nan"),
        ({"reward": "1.0"}, "with a reward of '1.0'"),
        ({"reward": True}, "with a reward of True"),
        ({"steps": ...}, "has no steps"),
    ],
)
def test_a_record_that_cannot_be_counted_is_named(
    path: Path, change: dict[str, Any], said: str
) -> None:
    written(path, *make_group([0.0, 1.0]))
    log = path / "rollouts.jsonl"
    first, second = log.read_bytes().splitlines(keepends=True)
    forged = {k: v for k, v in {**json.loads(second), **change}.items() if v is not ...}
    log.write_bytes(first + json.dumps(forged).encode() + b"\n")
    with pytest.raises(StorageError, match=f"byte {len(first)}, .*{said}"):
        list(read_records(path))
    with pytest.raises(StorageError, match=said):
        open_run(path)


def test_a_session_line_of_something_else_is_named(path: Path) -> None:
    written(path, *make_group([0.0, 1.0]))
    with (path / "sessions.jsonl").open("a") as file:
        file.write('{"x": 1}\n')
    with pytest.raises(StorageError, match="the line before byte"):
        open_run(path)


def test_missing_and_damaged_blobs_are_named(path: Path) -> None:
    (record,) = written(path, make_rollout(steps=1))
    image = next((path / "images").glob("*.png"))
    image.write_bytes(b"not what was stored")
    with pytest.raises(StorageError, match=rf"{image.name} is damaged"):
        load_request(path, record, 0, inline_images=True)
    image.unlink()
    with pytest.raises(StorageError, match=image.name):
        load_screenshot(path, image.stem)
    with pytest.raises(StorageError, match="not the name"):
        load_screenshot(path, "../run")


def test_what_a_crash_left_half_written_is_swept(path: Path) -> None:
    written(path, make_rollout())
    (path / "images" / ".partial" / "half.png").write_bytes(b"half")
    (path / ".run.json.dead.part").write_bytes(b"half")
    assert len(partial_files(path)) == 2
    open_run(path).close()
    assert partial_files(path) == [path / ".run.json.dead.part"]


def test_a_crash_before_the_manifest_leaves_a_directory_that_can_be_used(path: Path) -> None:
    path.mkdir()
    (path / ".lock").touch()
    (path / ".run.json.dead.part").write_bytes(b"half")
    with open_run(path) as run:
        run.append(make_rollout())
    assert partial_files(path) == []
    assert len(check_whole(path)) == 1


def test_sigkill_at_any_moment_loses_and_doubles_nothing(path: Path) -> None:
    rng = random.Random(0)
    confirmed = -1
    for _ in range(12):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            cwd=BESIDE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        deadline = time.monotonic() + rng.uniform(0.0, 0.3)
        while time.monotonic() < deadline:
            confirmed = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        lines = writer.stdout.read().splitlines()
        writer.wait()
        confirmed = max([confirmed, *(int(line) for line in lines if line.isdigit())])
        attempts = [record["attempt"] for record in check_whole(path)]
        assert attempts == list(range(len(attempts)))
        # One more than confirmed may be there: killed between the write and the report of it.
        assert confirmed + 1 <= len(attempts) <= confirmed + 2
    assert confirmed > 0
    open_run(path).close()
    assert partial_files(path) == []
