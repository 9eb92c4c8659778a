"""Bad input: one clear line, and nothing started."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.rl.collect.command import command, records, run
from tests.rl.servers import ModelServer


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
    done = subprocess.run(args, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "does not serve 'other'; it serves scripted" in done.stderr


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
