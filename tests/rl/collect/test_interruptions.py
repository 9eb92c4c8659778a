"""Interruptions: nothing that ended is lost, and the same command goes on from there."""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.rl.collect.command import command, finals, records, run, start, wait_for_records
from tests.rl.servers import Hang, ModelServer, Status


def test_kill_9_loses_nothing_that_ended_and_the_run_resumes(tasks: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ModelServer(reply="click 1 1", delay=0.15) as server:
        for wanted in (1, 2, 4):
            running = start(server.url, tasks, out)
            wait_for_records(out, wanted)
            running.kill()
            running.communicate(timeout=60)
        kept = records(out)
        done = run(server.url, tasks, out)
    assert done.returncode == 0, done.stderr
    after = records(out)
    assert after[: len(kept)] == kept
    assert sorted(finals(out)) == sorted({(r["group_id"], r["attempt"]) for r in after})
    assert set(finals(out).values()) == {1}
    assert Counter(r["group_id"] for r in after if r["status"] == "ok") == {
        task["task_id"]: 2 for task in json.loads(tasks.read_text())
    }
    summary = json.loads((out / "summary.json").read_text())
    assert summary["verdicts"] == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_interrupt_finishes_writing_and_the_run_resumes(
    number: signal.Signals, tasks: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with ModelServer(reply="click 1 1", delay=0.15) as server:
        running = start(server.url, tasks, out)
        wait_for_records(out, 1)
        running.send_signal(number)
        _, stderr = running.communicate(timeout=120)
        assert running.returncode == 130
        assert "interrupted" in stderr
        assert "Traceback" not in stderr
        assert json.loads((out / "summary.json").read_text())["verdicts"] >= 1
        assert all(r["status"] == "ok" for r in records(out))
        assert run(server.url, tasks, out).returncode == 0
    assert set(finals(out).values()) == {1}
    assert len(finals(out)) == 6


def test_a_second_interrupt_does_not_wait_for_a_hanging_desktop(
    server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    fault = "{faults: [{kind: hang, call: act, p: 1.0}]}"
    running = start(server.url, tasks, tmp_path / "out", f"desktop.options={fault}")
    wait_until = time.monotonic() + 60
    while not any(r.body for r in server.requests) and time.monotonic() < wait_until:
        time.sleep(0.05)
    time.sleep(0.3)
    started = time.monotonic()
    running.send_signal(signal.SIGINT)
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=120)
    assert time.monotonic() - started < 40  # the call that hangs has a minute
    assert running.returncode == 130


def test_a_second_interrupt_leaves_no_socket_and_gives_the_cursor_back(
    tasks: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    terminal, side = pty.openpty()
    with ModelServer() as server:
        server.always = Hang()
        running = subprocess.Popen(
            command(server.url, tasks, out, "desktop.options={faults: [{kind: slow, call: close, "
                    "seconds: 5, p: 1.0}]}"),
            stdin=side, stdout=side, stderr=side, env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        os.close(side)
        said = b""
        until = time.monotonic() + 120
        sent = 0
        while time.monotonic() < until:
            if sent < 2 and server.inflight:
                running.send_signal(signal.SIGINT)
                sent = 1
            if sent == 1 and not server.inflight:
                running.send_signal(signal.SIGINT)  # while the desktops take their time to close
                sent = 2
            try:
                if select.select([terminal], [], [], 0.1)[0]:
                    said += os.read(terminal, 65536)
            except OSError:
                break  # the other end is closed: it has ended
        os.close(terminal)
        assert running.wait(60) == 130
    assert not list((out / "live").iterdir())
    assert said.rfind(b"\x1b[?25h") > said.rfind(b"\x1b[?25l") >= 0


def test_a_reader_that_goes_away_costs_no_batch(
    server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    for number, sink in enumerate(("| true", "> /dev/full")):
        out = tmp_path / f"out{number}"
        line = f"{shlex.join(command(server.url, tasks, out))} {sink}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=300
        )
        assert "Traceback" not in done.stderr
        assert Counter(r["status"] for r in records(out)) == {"ok": 6}
        assert json.loads((out / "summary.json").read_text())["verdicts"] == 6


def test_an_outage_is_an_error_and_the_same_command_makes_up_for_it(
    server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    one = tmp_path / "one.json"
    one.write_text(json.dumps(json.loads(tasks.read_text())[:1]))
    server.always = Status(401)
    done = run(server.url, one, tmp_path / "out")
    assert done.returncode == 1
    assert "no attempt came to a verdict" in done.stderr
    assert {r["status"] for r in records(tmp_path / "out")} == {"error"}
    server.always = None
    done = run(server.url, one, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert Counter(r["status"] for r in records(tmp_path / "out"))["ok"] == 2
    assert set(finals(tmp_path / "out").values()) == {1}


def test_attempts_of_another_task_are_named(
    server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    run(server.url, tasks, tmp_path / "out")
    log = tmp_path / "out" / "rollouts.jsonl"
    *kept, last = log.read_text().splitlines(keepends=True)
    forged = {**json.loads(last), "group_id": "stranger", "rollout_id": "stranger/0"}
    log.write_text("".join([*kept, json.dumps(forged) + "\n"]))
    done = run(server.url, tasks, tmp_path / "out")
    assert done.returncode == 1
    assert "'stranger'" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_runs_cannot_write_one_directory(
    server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    server.always = Hang()
    first = start(server.url, tasks, out)
    try:
        until = time.monotonic() + 30
        while not any(r.body for r in server.requests) and time.monotonic() < until:
            time.sleep(0.02)
        second = run(server.url, tasks, out)
        assert second.returncode == 2
        assert "another process" in second.stderr
    finally:
        first.kill()
        first.communicate(timeout=60)


def test_a_run_is_not_resumed_with_other_settings(
    server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    run(server.url, tasks, tmp_path / "out")
    done = run(server.url, tasks, tmp_path / "out", "--version", "other")
    assert done.returncode == 2
    assert "version" in done.stderr
