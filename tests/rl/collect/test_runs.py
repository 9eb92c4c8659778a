"""Good runs: every task gets its group, with the settings that were given."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

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
)
from legato.rl.collect import run_collect
from legato.rl.settings import Settings
from tests.rl.collect.command import finals, records, run
from tests.rl.servers import ModelServer


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
