"""Two processes train on what one would have: one driver, whole groups, shares of equal size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from legato.rl.record import read_records
from tests.conftest import REPO, Vllm
from tests.trl import stage

pytestmark = pytest.mark.vllm


def launch(server: Vllm, tasks: Path, out: Path, processes: int, **changes: Any) -> dict[str, Any]:
    fields = stage.settings(server.root, str(out / "out"), str(tasks), **changes)
    out.mkdir()
    given = {"checkpoint": str(server.checkpoint), "config": fields}
    (out / "in.json").write_text(json.dumps(given))
    done = subprocess.run(
        [
            # "multi GPU" is accelerate's name for torchrun; the config says use_cpu, hence gloo.
            *(sys.executable, "-m", "accelerate.commands.launch", "--num_machines", "1"),
            *(["--multi_gpu"] if processes > 1 else []),
            *("--num_processes", str(processes), "--mixed_precision", "no"),
            *("--dynamo_backend", "no", "--main_process_port", "0"),
            *("-m", "tests.trl.program", str(out / "in.json"), str(out / "out.json")),
        ],
        cwd=REPO,
        timeout=200,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads((out / "out.json").read_text())
    return answer


Worth = tuple[float, float, list[int]]
"""Reward, advantage and ids of a row."""


def trained(run: dict[str, Any], step: int) -> dict[tuple[str, int], Worth]:
    return {
        (row["rollout_id"], row["first_step"]): (row["reward"], row["advantage"], row["ids"])
        for process in run["processes"]
        for row in process[step]
        if row["trained"]
    }


def test_rewards_and_advantages_equal_those_of_one_process(
    server: Vllm, tasks_file: Path, tmp_path: Path
) -> None:
    """With rows whose number divides by nothing, since two screenshots break the prefix."""
    side = stage.SIDE
    harness = {"name": "dice", "image_max": 2, "options": {"width": side, "height": side}}
    # One desktop: the server then sees the same requests in the same order.
    fields = {"desktops": 1, "harness": harness}
    one = launch(server, tasks_file, tmp_path / "one", 1, **fields)
    two = launch(
        server, tasks_file, tmp_path / "two", 2, **fields,
        per_device_train_batch_size=2, gradient_accumulation_steps=2,
    )  # fmt: skip
    assert len(one["processes"]) == 1
    assert len(two["processes"]) == 2
    assert trained(two, 0) == trained(one, 0)
    assert len(trained(one, 0)) > 8, "more rows than rollouts"
    assert len({advantage for _, advantage, _ in trained(one, 0).values()}) > 2
    for step in range(2):
        first, second = (len(process[step]) for process in two["processes"])
        assert first == second
        assert first % 2 == 0
    assert two["logs"][0]["grad_norm"] == pytest.approx(one["logs"][0]["grad_norm"], rel=1e-3)
    assert two["logs"][0]["reward"] == one["logs"][0]["reward"]
    assert all(entry["mismatch/max"] <= 1e-3 for entry in two["logs"])
    records = list(read_records(tmp_path / "two" / "out" / "rollouts"))
    assert len(records) == 16, "one driver, not one for each process"
    for run in (one, two):
        assert len(run["errors"]) == len(run["processes"])
        assert all("no desktop can be started" in error for error in run["errors"]), (
            "an error of the one driver ends every process"
        )
