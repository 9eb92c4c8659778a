"""The command line as a user runs it: good runs, bad input, faults of the server, interruptions.

Desktops are fake and the model server is scripted, because what is tested is how failures are
told, kept and resumed; real desktops and a real model server are in ``tests/test_end_to_end.py``.
"""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.fake import fake_tasks
from legato.errors import ConfigError
from legato.rl import (
    DesktopConfig,
    HarnessConfig,
    PolicyConfig,
    RolloutConfig,
    SamplingConfig,
    collect,
    read_records,
)
from legato.rl.collect import run_collect
from legato.rl.schema import RolloutRecord
from legato.rl.settings import Settings
from tests.rl.servers import Drop, Hang, ModelServer, Raw, Status

KEY = "sk-not-a-real-key-4711"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(fake_tasks(3, seed=0)))
    return path


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(reply="click 50 50") as running:
        yield running


def command(server_url: str, tasks: Path, out: Path, *more: str) -> list[str]:
    fixed = ["--model", "scripted", "--backend", "fake", "--harness", "compact", "--api", "chat"]
    size = ["--width", "320", "--height", "240", "--desktops", "2", "--group", "2"]
    return [
        sys.executable, "-m", "legato.rl", "collect", "--tasks", str(tasks), "--out", str(out),
        "--policy-url", server_url, *fixed, *size, "--max-steps", "2", *more,
    ]  # fmt: skip


def run(*args: Any, timeout: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
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


# --- good runs -----------------------------------------------------------------------------------


def test_every_task_gets_its_group(server: ModelServer, tasks: Path, tmp_path: Path) -> None:
    done = run(server.url, tasks, tmp_path / "out", "--version", "step-41")
    assert done.returncode == 0, done.stderr
    found = records(tmp_path / "out")
    assert Counter(r["status"] for r in found) == {"ok": 6}
    assert {r["policy"]["version"] for r in found} == {"step-41"}
    assert set(finals(tmp_path / "out").values()) == {1}
    assert "\x1b" not in done.stdout + done.stderr


def test_a_finished_run_has_nothing_left_to_do(
    server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    run(server.url, tasks, tmp_path / "out")
    before, asked = records(tmp_path / "out"), len(server.requests)
    done = run(server.url, tasks, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert records(tmp_path / "out") == before
    assert len(server.requests) == asked


def test_from_python(server: ModelServer, tmp_path: Path) -> None:
    summary = collect(
        fake_tasks(1, seed=3),
        PolicyConfig(server.url, "scripted", version="7", api="chat"),
        out=tmp_path / "out",
        desktops=2,
        group=2,
        oversample=0.5,
        max_steps=1,
        max_inflight=1,
        harness="compact",
        sampling=SamplingConfig(temperature=0.5),
        desktop=DesktopConfig(backend="fake", width=320, height=240),
    )
    assert summary.verdicts == 2
    step = records(tmp_path / "out")[0]["steps"][0]
    assert step["sampling"]["temperature"] == 0.5


def test_infeasible_tasks_can_be_left_out(server: ModelServer, tmp_path: Path) -> None:
    (good,) = fake_tasks(1, seed=3)
    bad = {
        "task_id": "none",
        "config": {**good["config"], "evaluator": {"func": "infeasible"}},
    }
    settings = Settings(
        policy=PolicyConfig(server.url, "scripted", api="chat"),
        sampling=SamplingConfig(),
        desktop=DesktopConfig(backend="fake", width=320, height=240),
        harness=HarnessConfig("compact"),
        rollout=RolloutConfig(infeasible=False, group=1, desktops=1, max_steps=1),
    )
    summary = run_collect([good, bad], settings, out=tmp_path / "out")
    assert list(summary.tasks) == [good["task_id"]]
    with pytest.raises(ConfigError, match="all tasks are infeasible"):
        run_collect([bad], settings, out=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_every_sampling_field_is_sent_and_recorded(tasks: Path, tmp_path: Path) -> None:
    flags = ["--temperature", "0.7", "--top-p", "0.9", "--top-k", "5", "--max-tokens", "9"]
    with ModelServer() as server:
        done = run(server.url, tasks, tmp_path / "out", *flags, "--ban-id", "3", "--seed", "1")
    assert done.returncode == 0, done.stderr
    body = next(r.body for r in server.requests if r.body)
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.7, 0.9, 5)
    assert body["max_tokens"] == 9
    assert body["logit_bias"] == {"3": -100}
    for record in records(tmp_path / "out"):
        for step in record["steps"]:
            seed = step["sampling"].pop("seed")
            assert isinstance(seed, int)
            assert step["sampling"] == {
                "temperature": 0.7, "top_p": 0.9, "top_k": 5, "max_tokens": 9, "banned_ids": [3],
            }  # fmt: skip


def test_config_groups_files_and_overrides(
    server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "mine.yaml"
    settings.write_text("rollout:\n  max_steps: 1\nsampling:\n  temperature: 0.25\n")
    done = run(
        server.url, tasks, tmp_path / "out",
        "--config", str(settings), "sampling=greedy", "rollout.env_retries=0",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out" / "run.json").read_text())
    assert manifest["settings"]["sampling"]["temperature"] == 0.25
    assert manifest["settings"]["max_steps"] == 2  # the flag wins over the file


# --- the key -------------------------------------------------------------------------------------


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


# --- bad input: one clear line, nothing started --------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "could not read"),
        ("[{", "not valid JSON"),
        ("{}", "list"),
        ("[]", "no tasks"),
        ("[3]", "entry 0"),
        ('[{"task_id": "a", "domain": "os"}]', "--osworld"),
        ('[{"task_id": "a"}]', "entry 0 (a)"),
    ],
)
def test_a_bad_tasks_file(text: str | None, said: str, server: ModelServer, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    if text is not None:
        path.write_text(text)
    done = run(server.url, path, tmp_path / "out", "desktop.backend=local")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--group", "0"], "rollout.group"),
        (["--temperature", "-1"], "sampling.temperature"),
        (["--top-p", "0"], "sampling.top_p"),
        (["--harness", "nope"], "nope"),
        (["--backend", "nope"], "no desktop backend 'nope'"),
        (["--desktops", "0"], "rollout.desktops"),
        (["--rollout-timeout", "0"], "rollout.rollout_timeout"),
        (["rollout.gruop=3"], "rollout.gruop"),
        (["desktop=nope"], "nope"),
        (["harness.options.nope=1"], "nope"),
        (["desktop.options.nope=1"], "nope"),
        (["--config", "/nonexistent.yaml"], "/nonexistent.yaml"),
        (["--image-max", "0"], "harness.image_max"),
        (["--max-inflight", "0"], "max-inflight"),
    ],
)
def test_a_bad_setting_is_named(
    flags: list[str], said: str, server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    done = run(server.url, tasks, tmp_path / "out", *flags)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not server.requests or not server.requests[-1].body


def test_a_bad_screen_of_the_fake_desktop_is_found_before_anything_starts(
    server: ModelServer, tmp_path: Path
) -> None:
    path = tmp_path / "tasks.json"
    config = {"instruction": "x", "fake": {"kind": "nope", "seed": 0}}
    path.write_text(json.dumps([{"task_id": "odd", "config": config}]))
    done = run(server.url, path, tmp_path / "out")
    assert done.returncode == 2
    assert "entry 0 (odd)" in done.stderr
    assert "nope" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_server_that_is_down(tasks: Path, tmp_path: Path) -> None:
    done = run("http://127.0.0.1:9/v1", tasks, tmp_path / "out")
    assert done.returncode == 1
    assert "127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_model_the_server_does_not_have(server: ModelServer, tasks: Path, tmp_path: Path) -> None:
    done = run(server.url, tasks, tmp_path / "out", "policy.model=other")
    # the flag in the fixed part wins, so ask through it
    assert done.returncode == 0
    args = command(server.url, tasks, tmp_path / "two")
    args[args.index("scripted")] = "other"
    done = subprocess.run(args, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "does not serve 'other'; it serves scripted" in done.stderr


# --- faults of the server: counted, refilled, never a reward -------------------------------------

FAULTS = {
    "500": Status(500),
    "429": Status(429, headers=(("Retry-After", "0"),)),
    "garbage": Raw(b"<html>"),
    "hang": Hang(),
    "drop": Drop(),
    "nan": lambda answer: answer["choices"][0]["logprobs"]["content"][0].update(
        logprob=float("nan")
    ),
    "too few ids": lambda answer: answer["choices"][0].update(token_ids=[1]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_bad_answer_costs_a_retry(
    fault: str, server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    server.faults.append(FAULTS[fault])
    done = run(server.url, tasks, tmp_path / "out", "--step-timeout", "2")
    assert done.returncode == 0, done.stderr
    found = records(tmp_path / "out")
    assert Counter(r["status"] for r in found) == {"ok": 6}
    assert sum(step["model"]["attempts"] - 1 for r in found for step in r["steps"]) == 1


@pytest.mark.parametrize("fault", ["500", "hang", "nan"])
def test_a_server_that_stays_bad_ends_the_run_without_rewards(
    fault: str, server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    server.always = FAULTS[fault]
    done = run(
        server.url, tasks, tmp_path / "out", "--step-timeout", "0.5", "--retries", "0",
    )  # fmt: skip
    assert done.returncode == 1
    assert "lost to the model server" in done.stderr
    assert "Traceback" not in done.stderr
    found = records(tmp_path / "out")
    assert found
    assert {r["status"] for r in found} <= {"error", "cancelled", "skipped"}
    assert all(r["reward"] is None for r in found)
    assert all(r["error"]["kind"] == "policy" for r in found if r["status"] == "error")


def test_a_refused_field_is_dropped_and_noted_once(tasks: Path, tmp_path: Path) -> None:
    with ModelServer(reply="wait", refuse=frozenset({"return_token_ids"})) as server:
        done = run(server.url, tasks, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("return_token_ids") == 1
    for record in records(tmp_path / "out"):
        for step in record["steps"]:
            assert step["response"]["token_ids"] is None
            assert step["response"]["logprobs"]


# --- interruptions -------------------------------------------------------------------------------


def start(url: str, tasks: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(url, tasks, out, *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def wait_for_records(out: Path, count: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if (out / "rollouts.jsonl").exists() and len(records(out)) >= count:
            return
        time.sleep(0.02)
    pytest.fail(f"{out} has no {count} records after 30 s")


def test_kill_9_loses_nothing_that_ended_and_the_run_resumes(tasks: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ModelServer(reply="click 1 1", delay=0.15) as server:
        for wanted in (1, 2, 4):
            running = start(server.url, tasks, out)
            wait_for_records(out, wanted)
            running.kill()
            running.communicate(timeout=10)
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
        _, stderr = running.communicate(timeout=15)
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
    wait_until = time.monotonic() + 20
    while not any(r.body for r in server.requests) and time.monotonic() < wait_until:
        time.sleep(0.05)
    time.sleep(0.3)
    started = time.monotonic()
    running.send_signal(signal.SIGINT)
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)
    assert time.monotonic() - started < 8
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
        until = time.monotonic() + 30
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
        assert running.wait(10) == 130
    assert not list((out / "live").iterdir())
    assert said.rfind(b"\x1b[?25h") > said.rfind(b"\x1b[?25l") >= 0


def test_a_reader_that_goes_away_costs_no_batch(
    server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    for number, sink in enumerate(("| true", "> /dev/full")):
        out = tmp_path / f"out{number}"
        line = f"{shlex.join(command(server.url, tasks, out))} {sink}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=60
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


def test_a_server_that_redirects_is_told_before_anything_starts(
    tasks: Path, tmp_path: Path
) -> None:
    with ModelServer() as server:
        server._look = lambda *_: (302, b"")  # type: ignore[method-assign]
        done = run(server.url, tasks, tmp_path / "out")
    assert done.returncode == 2
    assert "redirect" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_directory_that_cannot_be_named_is_one_line(
    server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    done = run(server.url, tasks, tmp_path / ("x" * 300))
    assert done.returncode == 1
    assert "too long" in done.stderr
    assert "Traceback" not in done.stderr


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
        first.communicate(timeout=10)


def test_a_run_is_not_resumed_with_other_settings(
    server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    run(server.url, tasks, tmp_path / "out")
    done = run(server.url, tasks, tmp_path / "out", "--version", "other")
    assert done.returncode == 2
    assert "version" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_said_and_what_is_written_stays_readable(
    server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", small], check=True)
    try:
        done = run(server.url, tasks, small / "out", "--max-steps", "8", "--group", "4")
        assert done.returncode == 1, done.stdout
        assert "no space left" in done.stderr
        assert "Traceback" not in done.stderr
        for record in records(small / "out"):
            assert record["status"] in ("ok", "cancelled", "skipped")
    finally:
        subprocess.run(["umount", "-l", small], check=True)
