from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from legato.errors import ConfigError, SampleError, StorageError
from legato.rl.advantage import group_advantages
from legato.rl.export import export_steps
from legato.rl.manifest import Manifest
from legato.rl.record import RunDir
from legato.rl.samples import samples_from
from legato.rl.schema import message_json
from legato.rl.types import Rollout, Status
from tests.rl.factories import IMAGE_ID, make_group, make_rollout


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def write(path: Path, *rollouts: Rollout, **manifest: Any) -> None:
    with RunDir.create_or_resume(path, Manifest(**manifest)) as run:
        for rollout in rollouts:
            run.append(rollout)


def export(path: Path, **options: Any) -> list[dict[str, Any]]:
    out = path / "train.jsonl"
    count = export_steps(path, out, **options)
    lines = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert len(lines) == count
    assert list(path.glob(".*.part")) == []
    return lines


def test_one_line_per_step_with_everything_of_the_step(run_dir: Path) -> None:
    rewards = [0.0, 1.0, 0.5]
    rollouts = make_group(rewards, steps=2, versions=("41", "42"))
    write(run_dir, *rollouts)
    expected = group_advantages(dict(enumerate(rewards)))
    lines = export(run_dir)
    steps = [(rollout, number) for rollout in rollouts for number in range(2)]
    for line, (rollout, number) in zip(lines, steps, strict=True):
        step = rollout.steps[number]
        reply = step.generation
        assert line == {
            "rollout_id": rollout.rollout_id,
            "task_id": rollout.task_id,
            "group_id": "g0",
            "attempt": rollout.attempt,
            "step": number,
            "messages": [message_json(m) for m in step.prompt.messages],
            "prompt_token_ids": list(reply.prompt_ids or ()),
            "image_tokens": list(reply.image_tokens or ()),
            "response_text": reply.text,
            "response_reasoning": "because",
            "response_token_ids": list(reply.token_ids or ()),
            "response_logprobs": list(reply.logprobs or ()),
            "response_tokens": None,
            "finish_reason": "stop",
            "sampling": step.sampling.to_json(),
            "reward": rollout.reward,
            "advantage": expected[rollout.attempt],
            "truncated": False,
            "policy_version": reply.version,
            "policy_version_last": reply.version,
        }


def test_only_verdicts_are_exported(run_dir: Path) -> None:
    rollouts = [
        make_rollout(attempt=n, status=status, reward=1.0) for n, status in enumerate(Status)
    ]
    write(run_dir, *rollouts)
    kept = {r.rollout_id for r in rollouts if r.status in (Status.OK, Status.TRUNCATED)}
    lines = export(run_dir)
    assert {line["rollout_id"] for line in lines} == kept
    assert {line["rollout_id"]: line["truncated"] for line in lines} == {
        r.rollout_id: r.status is Status.TRUNCATED for r in rollouts if r.rollout_id in kept
    }


def test_a_group_too_small_is_there_with_advantage_zero(run_dir: Path) -> None:
    write(run_dir, *make_group([0.0, 1.0]), min_group=3)
    lines = export(run_dir)
    assert len(lines) == 6
    assert {line["advantage"] for line in lines} == {0.0}


def test_inline_images_are_the_pngs(run_dir: Path) -> None:
    rollout = make_rollout(steps=2)
    write(run_dir, rollout)
    for merged in (False, True):
        urls = []
        for line in export(run_dir, merged=merged, inline_images=True):
            urls = line.get("images") or [
                part["image_url"]["url"]
                for message in line["messages"]
                if isinstance(message["content"], list)
                for part in message["content"]
                if part["type"] == "image_url"
            ]
        prefix = "data:image/png;base64,"
        assert [base64.b64decode(url.removeprefix(prefix)) for url in urls] == [
            image.png for image in rollout.steps[-1].prompt.images
        ]


def test_merged_lines_are_the_merged_rows(run_dir: Path) -> None:
    rollouts = make_group([0.0, 1.0], steps=5, breaks={3})
    write(run_dir, *rollouts)
    lines = export(run_dir, merged=True)
    rows = samples_from(rollouts, merged=True)
    assert [line["steps"] for line in lines] == [[0, 2], [3, 4]] * 2
    for line, row in zip(lines, rows, strict=True):
        assert line["prompt_token_ids"] == list(row.prompt_ids)
        assert line["response_token_ids"] == list(row.response_ids)
        assert line["loss_mask"] == list(row.loss_mask)
        assert line["response_logprobs"] == list(row.logprobs or ())
        assert line["advantage"] == row.advantage
        assert line["images"] == [f"legato-image://{image.sha256}" for image in row.images]
        shown = (line["prompt_token_ids"] + line["response_token_ids"]).count(IMAGE_ID)
        assert shown == len(line["images"]) == len(line["image_tokens"])
        for turn in line["turns"]:
            assert set(line["loss_mask"][turn["start"] : turn["stop"]]) == {1}


def test_a_server_without_ids_exports_text(run_dir: Path) -> None:
    rollout = make_rollout(steps=1, ids=False)
    write(run_dir, rollout)
    (line,) = export(run_dir)
    assert line["response_token_ids"] is None
    assert line["prompt_token_ids"] is None
    assert line["response_tokens"] == list(rollout.steps[0].generation.tokens or ())
    assert line["response_logprobs"] == list(rollout.steps[0].generation.logprobs or ())
    assert line["response_text"] == rollout.steps[0].generation.text
    with pytest.raises(SampleError, match="rows per step"):
        export(run_dir, merged=True)


@pytest.mark.parametrize(
    ("rollouts", "reason"),
    [
        ([], "holds no rollouts yet"),
        ([make_rollout(status=Status.CANCELLED)], r"none .* is ok or truncated \(1 cancelled\)"),
        ([make_rollout(steps=0)], "came to a step"),
    ],
)
def test_nothing_to_export_is_an_error(run_dir: Path, rollouts: list[Rollout], reason: str) -> None:
    write(run_dir, *rollouts)
    with pytest.raises(ConfigError, match=reason):
        export(run_dir)
    assert not (run_dir / "train.jsonl").exists()


def test_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run at"):
        export_steps(tmp_path / "nowhere", tmp_path / "out.jsonl")


def test_a_failing_export_leaves_the_old_file(run_dir: Path) -> None:
    write(run_dir, make_rollout())
    before = export(run_dir)
    for message in (run_dir / "messages").glob("*.json"):
        message.write_bytes(b"damaged")
    with pytest.raises(StorageError, match="damaged"):
        export(run_dir)
    kept = [json.loads(line) for line in (run_dir / "train.jsonl").read_bytes().splitlines()]
    assert kept == before
    assert list(run_dir.glob(".*.part")) == []
