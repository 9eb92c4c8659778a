"""Rows as verl's outputs, and what the recorder makes of a step's groups."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from legato.rl.advantage import group_advantages
from legato.rl.config import DesktopConfig, HarnessConfig, RolloutConfig
from legato.rl.images import ImageSpec
from legato.rl.record import read_records
from legato.rl.samples import Vision
from legato.rl.types import Rollout, Status
from legato_verl.metrics import mismatch
from legato_verl.outputs import outputs_of
from legato_verl.recorder import EMPTY_IN_A_ROW, GroupNews, Recorder
from legato_verl.settings import Lengths, Settings
from tests.rl.factories import IMAGE_ID, make_group, make_rollout

VISION = Vision(IMAGE_ID, ImageSpec(patch_size=8, merge_size=2, min_pixels=256, max_pixels=2**20))


def settings(place: Path) -> Settings:
    return Settings(
        model="tiny",
        desktop=DesktopConfig(backend="fake"),
        harness=HarnessConfig(),
        rollout=RolloutConfig(group=4),
        lengths=Lengths(prompt=100, response=100),
        step_timeout=60.0,
        max_inflight=None,
        record_dir=place / "rollouts",
        seed=None,
        sheet_steps=0,
    )


def news(uid: str, kept: list[Rollout], rows: int, wanted: int = 4) -> GroupNews:
    rewards = {r.attempt: r.reward or 0.0 for r in kept}
    return GroupNews(
        uid, "g0", "task-g0", rewards, group_advantages(rewards), wanted, wanted - len(kept), rows
    )


def test_one_output_where_the_prefix_holds() -> None:
    rollout = make_rollout(steps=3, reward=0.75, versions=("41", "42"))
    (output,) = outputs_of(rollout, 1.5, VISION)
    fields = output.as_dict()
    assert fields["rm_scores"].sum() == fields["rm_scores"][-1] == 0.75
    assert len(fields["responses"]) == len(fields["response_mask"]) == len(output.response_ids)
    assert len(output.multi_modal_data["images"]) == 3
    extra = fields["extra_fields"]
    assert (extra["min_global_steps"], extra["max_global_steps"]) == (41, 42)
    assert extra["advantage"] == 1.5
    assert extra["reward_extra_info"]["turns"] == 3
    trained = sum(stop - start for _, start, stop in extra["turns"])
    assert trained == sum(output.response_mask)
    for _, start, stop in extra["turns"]:
        assert set(output.response_mask[start:stop]) == {1}


def test_several_where_it_breaks_with_the_same_fields_in_each() -> None:
    outputs = outputs_of(make_rollout(steps=4, breaks=[2], reward=1.0), -0.5, VISION)
    assert len(outputs) == 2
    fields = [output.as_dict() for output in outputs]
    assert fields[0].keys() == fields[1].keys()
    assert all(f["extra_fields"]["advantage"] == -0.5 for f in fields)
    steps = [[turn[0] for turn in f["extra_fields"]["turns"]] for f in fields]
    assert steps == [[0, 1], [2, 3]]
    assert len(list_of_dict_to_tensordict(fields)) == 2


def test_none_for_a_rollout_that_took_no_step() -> None:
    assert outputs_of(make_rollout(steps=0, status=Status.TRUNCATED, reward=0.0), 0.0, VISION) == []


def test_the_gap_by_turn() -> None:
    difference = torch.tensor([0.1, -0.3, 9.0, 0.5])
    told = mismatch([(difference, [[0, 0, 2], [3, 3, 4]])])
    assert told["mismatch/turn_0/mean"] == pytest.approx(0.2)
    assert told["mismatch/turn_0/max"] == pytest.approx(0.3)
    assert told["mismatch/turn_3/mean"] == pytest.approx(0.5)
    assert told["mismatch/mean"] == pytest.approx(0.3)
    assert mismatch([]) == {}


def test_a_group_is_recorded_and_told_once(tmp_path: Path) -> None:
    async def work() -> tuple[dict[str, float], dict[str, float]]:
        recorder = Recorder(settings(tmp_path))
        await recorder.open()
        assert await recorder.begin_group("train", "7", "t") == "7/t"
        assert await recorder.begin_group("train", "7", "t") == "7/t~1"
        kept = make_group([0.0, 1.0, 0.25, 1.0])
        lost = make_rollout(attempt=4, status=Status.ERROR, error_kind="env", error="gone")
        for rollout in [*kept, lost]:
            await recorder.record("train", rollout)
        await recorder.group_ended("train", news("uid", kept, rows=5))
        await recorder.settled("uid")
        assert await recorder.unsettled(["uid", "other"]) == ["other"]
        told = await recorder.figures(["uid", "pad"])
        again = await recorder.figures(["uid"])
        await recorder.close()
        return told, again

    told, again = asyncio.run(work())
    assert told["reward"] == pytest.approx(0.5625)
    assert told["success_rate"] == 0.5
    assert told["rollout/env_errors"] == 1
    assert told["rows/per_rollout"] == 5 / 4
    assert again["rollout/verdicts"] == 0
    assert len(list(read_records(tmp_path / "rollouts"))) == 5


def test_groups_without_a_row_end_the_run_with_the_reason(tmp_path: Path) -> None:
    async def work() -> str:
        recorder = Recorder(settings(tmp_path))
        await recorder.open()
        verdict = asyncio.create_task(recorder.verdict())
        for number in range(EMPTY_IN_A_ROW):
            assert not verdict.done()
            await recorder.group_ended("train", news(f"uid{number}", [], rows=0))
        why = await asyncio.wait_for(verdict, 60)
        await recorder.close()
        return why

    assert "max_prompt_length=100" in asyncio.run(work())


def test_a_group_with_rows_in_between_starts_the_count_anew(tmp_path: Path) -> None:
    async def work() -> bool:
        recorder = Recorder(settings(tmp_path))
        verdict = asyncio.create_task(recorder.verdict())
        for number in range(2 * EMPTY_IN_A_ROW):
            rows = number % EMPTY_IN_A_ROW == 3
            await recorder.group_ended("train", news(f"uid{number}", [], rows=int(rows)))
        await asyncio.sleep(0)
        done = verdict.done()
        verdict.cancel()
        return done

    assert not asyncio.run(work())
