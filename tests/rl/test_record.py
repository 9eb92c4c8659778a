from __future__ import annotations

import base64
import contextlib
import errno
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from legato.errors import ConfigError, DiskFullError, StorageError
from legato.rl import store
from legato.rl.manifest import Manifest
from legato.rl.record import (
    RunDir,
    finished_attempts,
    load_request,
    load_screenshot,
    read_records,
    read_sessions,
)
from legato.rl.schema import StoredRecord, message_json, prompt_ids
from legato.rl.types import Rollout, Status, Timing
from tests.rl.factories import frame, make_group, make_rollout

HERE = Path(__file__).parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run"


def open_run(path: Path, **manifest: Any) -> RunDir:
    return RunDir.create_or_resume(path, Manifest(**manifest))


def written(path: Path, *rollouts: Rollout) -> list[StoredRecord]:
    with open_run(path) as run:
        for rollout in rollouts:
            run.append(rollout)
    return list(read_records(path))


def check_whole(path: Path) -> list[StoredRecord]:
    """Every record readable, referring only to blobs that are there and undamaged."""
    records = list(read_records(path))
    for record in records:
        for step in range(record["n_steps"]):
            load_request(path, record, step, inline_images=True)
        for image in record["images"]:
            load_screenshot(path, image["sha256"])
        if record["final_screenshot"]:
            load_screenshot(path, record["final_screenshot"])
    return records


def partial_files(path: Path) -> list[Path]:
    return [p for p in path.rglob("*") if p.is_file() and ".part" in str(p.relative_to(path))]


# --- contents ----------------------------------------------------------------------------------


def test_every_field_is_read_back(path: Path) -> None:
    rollout = make_rollout(
        steps=3,
        breaks={2},
        versions=("41", "42"),
        attempt=5,
        attempt_try=1,
        final_screenshot=frame(77),
        desktop_slot=3,
        truncated_by="time",
        status=Status.TRUNCATED,
        reward=0.5,
    )
    (record,) = written(path, rollout)
    assert record["schema"] == "legato.rollout/v0"
    for name in ("rollout_id", "task_id", "domain", "group_id", "attempt", "attempt_try"):
        assert record[name] == getattr(rollout, name)  # type: ignore[literal-required]
    assert record["policy"] == {"model": "tiny", "version": "41", "versions": ["41", "42"]}
    assert (record["status"], record["reward"], record["error"]) == ("truncated", 0.5, None)
    assert record["truncated_by"] == "time"
    assert record["n_steps"] == len(record["steps"]) == 3
    assert record["timing"] == {
        name: getattr(rollout.timing, name) for name in Timing.__dataclass_fields__
    }
    assert record["score"] == {
        "output": "1/1",
        "checks": [
            {"name": "saved", "kind": "progress", "passed": True, **_rest_of_check(rollout)}
        ],
    }
    assert record["final_screenshot"] == frame(77).sha256
    assert record["desktop_slot"] == 3
    assert record["ready_after_reset"] == {"reason": "idle", "seconds": 0.2}
    assert record["session"] == 0
    assert abs(record["recorded_at"] - time.time()) < 60

    for step, stored, ids in zip(rollout.steps, record["steps"], prompt_ids(record), strict=True):
        reply = step.generation
        assert ids == list(reply.prompt_ids or ())
        assert stored["response"] == {
            "content": reply.text,
            "reasoning": "because",
            "token_ids": list(reply.token_ids or ()),
            "logprobs": list(reply.logprobs or ()),
            "tokens": None,
            "finish_reason": "stop",
        }
        assert stored["model"] == {
            "seconds": reply.seconds,
            "attempts": 1,
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            "cached_tokens": reply.cached_tokens,
        }
        assert stored["sampling"] == step.sampling.to_json()
        assert stored["policy_version"] == reply.version
        assert stored["image_tokens"] == list(reply.image_tokens or ())
        (action,) = stored["actions"]
        assert action["action"] == {"action_type": "click", "x": reply_x(stored), "y": 2}
        assert (action["act_s"], action["wait_s"], action["ready_s"]) == (0.001, 0.5, 0.4)
        assert (action["obs_s"], action["ready_reason"], action["error"]) == (0.002, "idle", None)
        shown = [record["images"][i] for i in stored["images"]]
        assert [i["sha256"] for i in shown] == [i.sha256 for i in step.prompt.images]
        assert all((i["width"], i["height"]) == (32, 32) for i in shown)


def _rest_of_check(rollout: Rollout) -> dict[str, Any]:
    assert rollout.score is not None
    (check,) = rollout.score.checks
    known = {"name", "kind", "passed"}
    return {f: getattr(check, f) for f in check.__dataclass_fields__ if f not in known}


def reply_x(step: Any) -> int:
    return int(step["sampling"]["seed"])


def test_timing_has_the_nine_phases() -> None:
    phases = "reset wait_after_reset model act wait obs wait_before_eval eval total"
    assert set(Timing.__dataclass_fields__) == {f"{phase}_s" for phase in phases.split()}


def test_an_error_keeps_its_kind_and_message(path: Path) -> None:
    rollout = make_rollout(status=Status.ERROR, error_kind="env", error="desktop 3 hung")
    (record,) = written(path, rollout)
    assert record["error"] == {"kind": "env", "message": "desktop 3 hung"}
    assert record["reward"] is None


def test_prompt_ids_cost_only_what_is_new(path: Path) -> None:
    (record,) = written(path, make_rollout(steps=10))
    total = sum(len(s["prompt"]["new_ids"]) for s in record["steps"] if s["prompt"])
    *_, last = prompt_ids(record)
    assert last is not None
    sampled = sum(len(s["response"]["token_ids"] or ()) for s in record["steps"][:-1])
    assert total == len(last) - sampled


def test_a_request_is_rebuilt_exactly(path: Path) -> None:
    rollout = make_rollout(steps=3)
    (record,) = written(path, rollout)
    for number, step in enumerate(rollout.steps):
        assert load_request(path, record, number) == [
            message_json(message) for message in step.prompt.messages
        ]
    (part,) = [
        part
        for part in load_request(path, record, 0, inline_images=True)[1]["content"]
        if part["type"] == "image_url"
    ]
    url = part["image_url"]["url"]
    assert url.startswith("data:image/png;base64,")
    assert base64.b64decode(url.split(",")[1]) == rollout.steps[0].prompt.images[0].png


def test_messages_and_images_are_stored_once(path: Path) -> None:
    frames = [frame(k) for k in range(4)]
    written(path, *(make_rollout(steps=4, attempt=a, frames=frames) for a in range(3)))
    assert len(list((path / "images").glob("*.png"))) == 4
    system = [p for p in (path / "messages").glob("*.json") if b'"system"' in p.read_bytes()]
    assert len(system) == 1


def test_text_that_utf8_cannot_carry_survives(path: Path) -> None:
    rollout = make_rollout(steps=1)
    generation = rollout.steps[0].generation
    rollout.steps[0].generation = replace(generation, text="half \ud83d of a pair, 中文, \x00")
    (record,) = written(path, rollout)
    assert record["steps"][0]["response"]["content"] == "half \ud83d of a pair, 中文, \x00"


def test_a_number_json_cannot_carry_costs_no_record(path: Path) -> None:
    rollout = make_rollout(steps=1, extra={"loss": math.inf, "where": Path("x")})
    (record,) = written(path, rollout)
    assert record["extra"] == {"loss": None, "where": "x"}
    assert "Infinity" not in (path / "rollouts.jsonl").read_text()


def test_fifteen_steps_cost_their_new_screenshots_only(path: Path) -> None:
    frames = [frame(k, 320, 180) for k in range(16)]
    rollout = make_rollout(steps=15, frames=frames, final_screenshot=frames[15])
    (record,) = written(path, rollout)
    pngs = sum(len(f.png) for f in frames[:15])
    replies = sum(len(json.dumps(s["response"])) for s in record["steps"])
    on_disk = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    assert on_disk - replies <= 1.1 * pngs + 15 * 8 * 1024


# --- resuming ----------------------------------------------------------------------------------


def test_a_resumed_run_knows_what_is_final(path: Path) -> None:
    written(
        path,
        make_rollout(attempt=0, reward=0.25),
        make_rollout(attempt=1, status=Status.RETRIED, error_kind="env", error="x"),
        make_rollout(attempt=2, status=Status.RETRIED, error_kind="env", error="x"),
        make_rollout(attempt=2, attempt_try=1, status=Status.ERROR, error_kind="env", error="x"),
        make_rollout(attempt=3, status=Status.CANCELLED),
    )
    with open_run(path) as run:
        assert run.finished == finished_attempts(path)
        assert {key: end.status for key, end in run.finished.items()} == {
            ("g0", 0): Status.OK,
            ("g0", 2): Status.ERROR,
            ("g0", 3): Status.CANCELLED,
        }
        assert run.finished["g0", 0].reward == 0.25
        assert run.tries == {("g0", 0): 1, ("g0", 1): 1, ("g0", 2): 2, ("g0", 3): 1}
        run.append(make_rollout(attempt=1, attempt_try=1))
    assert [r["session"] for r in read_records(path)] == [0] * 5 + [1]
    assert [s.number for s in read_sessions(path) if s.ended_at is not None] == [0, 1]


def test_an_attempt_is_final_only_once(path: Path) -> None:
    written(path, make_rollout())
    with open_run(path) as run, pytest.raises(ValueError, match="attempt 0 of group g0 is already"):
        run.append(make_rollout())
    assert len(list(read_records(path))) == 1


def test_other_settings_are_named(path: Path) -> None:
    settings = {"policy": {"version": "41"}, "sampling": {"top_k": 0}, "max_steps": 15}
    open_run(path, group=4, settings=settings, session={"desktops": 4}).close()
    open_run(path, group=4, settings=settings, session={"desktops": 8}).close()
    changed = {"policy": {"version": "42"}, "sampling": {"top_k": 20}, "max_steps": 15}
    with pytest.raises(ConfigError) as error:
        open_run(path, group=8, settings=changed, tasks=[{"task_id": "a"}])
    said = str(error.value)
    for words in (
        'policy.version was "41", now "42"',
        "sampling.top_k was 0, now 20",
        "group was 4, now 8",
        "tasks were 0, now 1",
    ):
        assert words in said
    assert "max_steps" not in said
    assert "--out" in said


def test_changed_tasks_are_named(path: Path) -> None:
    open_run(path, tasks=[{"task_id": "a"}, {"task_id": "b"}]).close()
    with pytest.raises(ConfigError, match=r"task 1 was .*b.*, now .*c"):
        open_run(path, tasks=[{"task_id": "a"}, {"task_id": "c"}])


def test_a_second_writer_is_refused(path: Path) -> None:
    with open_run(path), pytest.raises(ConfigError, match=f"another process.*pid {os.getpid()}"):
        open_run(path)
    open_run(path).close()


def test_a_directory_of_something_else_is_left_alone(path: Path) -> None:
    path.mkdir()
    (path / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match="holds no run"):
        open_run(path)
    assert [p.name for p in path.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_way_is_a_config_error(path: Path) -> None:
    path.write_text("a file")
    with pytest.raises(ConfigError, match="cannot use"):
        open_run(path)


def test_reading_where_no_run_is_says_so(path: Path) -> None:
    with pytest.raises(ConfigError, match="no run at"):
        list(read_records(path))


def test_readers_follow_a_run_that_is_being_written(path: Path) -> None:
    with open_run(path) as run:
        for attempt in range(3):
            run.append(make_rollout(attempt=attempt))
            assert len(check_whole(path)) == attempt + 1


def test_a_closed_run_takes_no_more(path: Path) -> None:
    run = open_run(path)
    run.close()
    run.close()
    with pytest.raises(ValueError, match="closed"):
        run.append(make_rollout())


# --- crashes -----------------------------------------------------------------------------------


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


WRITER = """
import sys
from legato.rl.manifest import Manifest
from legato.rl.record import RunDir
from factories import make_rollout

with RunDir.create_or_resume(sys.argv[1], Manifest()) as run:
    attempt = 1 + max((a for _, a in run.finished), default=-1)
    print("ready", flush=True)
    while True:
        run.append(make_rollout(steps=2, attempt=attempt))
        print(attempt, flush=True)
        attempt += 1
"""


def test_sigkill_at_any_moment_loses_and_doubles_nothing(path: Path) -> None:
    rng = random.Random(0)
    confirmed = -1
    for _ in range(12):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], cwd=HERE, stdout=subprocess.PIPE, text=True
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


# --- a full disk -------------------------------------------------------------------------------


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
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "DiskFullError" in writer.stderr
    recorded = int(writer.stdout.splitlines()[-1]) + 1
    assert len(check_whole(path)) == recorded
    assert (path / "rollouts.jsonl").read_bytes().endswith(b"\n")
