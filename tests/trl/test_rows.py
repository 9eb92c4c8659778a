"""Rows as tensors: ids, masks and every screenshot in its own place; shares of equal size."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoProcessor
from trl.trainer.utils import (
    shuffle_sequence_dict,
    split_pixel_values_by_grid,
    split_tensor_dict,
    unsplit_pixel_values_by_grid,
)

from legato.errors import SampleError
from legato.rl.figures import economy
from legato.rl.images import ImageSpec
from legato.rl.row import Row
from legato.rl.samples import Vision, samples_from, screenshots
from legato.rl.types import Rollout
from legato_trl.metrics import mismatch
from legato_trl.rows import Share, Tensoriser, length, padding, shares, take
from tests.conftest import CheckpointFactory
from tests.rl.factories import IMAGE_ID, frame, make_group, make_rollout

SIDES = ((64, 64), (96, 64), (64, 128))
PAD = 1


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: CheckpointFactory) -> Path:
    return tiny_checkpoint("qwen3_vl")


@pytest.fixture(scope="module")
def processor(checkpoint: Path) -> Any:
    return AutoProcessor.from_pretrained(checkpoint)


@pytest.fixture(scope="module")
def vision(checkpoint: Path) -> Vision:
    return Vision(IMAGE_ID, ImageSpec.load(str(checkpoint)))


def group(vision: Vision, rewards: list[float], **fields: Any) -> list[Rollout]:
    """A group whose screenshots differ in size, so that a mix-up cannot go unnoticed."""
    rollouts = []
    for attempt, reward in enumerate(rewards):
        steps = attempt % 3 + 1
        frames = [frame(10 * attempt + k, *SIDES[(attempt + k) % 3]) for k in range(steps)]
        rollout = make_rollout(attempt=attempt, reward=reward, steps=steps, frames=frames, **fields)
        for step in rollout.steps:
            counts = tuple(vision.spec.tokens(i.width, i.height) for i in step.prompt.images)
            generation = step.generation
            object.__setattr__(generation, "image_tokens", counts)
            ids = generation.prompt_ids or ()
            object.__setattr__(generation, "prompt_tokens", len(ids) + sum(counts) - len(counts))
        rollouts.append(rollout)
    return rollouts


def one_share(rollouts: list[Rollout], vision: Vision, chunks: int = 1) -> Share:
    rows = samples_from(rollouts, vision=vision)
    (share,) = shares(rows, screenshots(rollouts), processes=1, chunks=chunks)
    return share


def test_every_row_gets_its_own_pixels(processor: Any, vision: Vision) -> None:
    rollouts = group(vision, [0.0, 0.25, 0.5, 1.0, 0.75])
    share = one_share(rollouts, vision)
    batch, _ = Tensoriser(processor, vision, PAD, None).tensors(share)
    shown = screenshots(rollouts)
    for number, row in enumerate(share.rows):
        alone = take(batch, number, number + 1)
        images = [shown[image.sha256].pil() for image in row.images]
        expected = processor.image_processor(images=images, return_tensors="pt")
        assert torch.equal(alone["pixel_values"], expected["pixel_values"])
        assert torch.equal(alone["image_grid_thw"], expected["image_grid_thw"])
        assert alone["num_images"] == [len(row.images)]
        placeholders = int(alone["mm_token_type_ids"].sum())
        assert placeholders == int(expected["image_grid_thw"].prod(-1).sum()) // 4


def test_ids_masks_and_logprobs_are_those_of_the_row(processor: Any, vision: Vision) -> None:
    share = one_share(group(vision, [0.0, 0.5, 1.0]), vision)
    batch, turns = Tensoriser(processor, vision, PAD, None).tensors(share)
    for number, row in enumerate(share.rows):
        wide = row.expanded(IMAGE_ID)
        prompt = batch["prompt_ids"][number][batch["prompt_mask"][number].bool()]
        completion = batch["completion_ids"][number][batch["completion_mask"][number].bool()]
        assert prompt.tolist() == wide.prompt_ids
        assert batch["prompt_mask"][number].tolist() == sorted(batch["prompt_mask"][number])
        assert completion.tolist() == wide.response_ids
        size = len(wide.response_ids)
        assert batch["tool_mask"][number, :size].tolist() == wide.loss_mask
        assert not batch["tool_mask"][number, size:].any()
        assert batch["sampling_per_token_logps"][number, :size].tolist() == pytest.approx(
            wide.logprobs
        )
        assert batch["advantages"][number].item() == pytest.approx(row.advantage)
        replies = [t for turn in row.turns for t in row.response_ids[turn.start : turn.stop]]
        said = batch["completion_ids"][number][turns[number] >= 0]
        assert said.tolist() == replies
        for turn in row.turns:
            here = batch["completion_ids"][number][turns[number] == turn.step]
            assert here.tolist() == list(row.response_ids[turn.start : turn.stop])


def test_trl_shuffles_and_splits_the_batch_without_mixing_it_up(
    processor: Any, vision: Vision
) -> None:
    share = one_share(group(vision, [0.0, 0.25, 0.5, 1.0, 0.75]), vision, chunks=3)
    batch, _ = Tensoriser(processor, vision, PAD, None).tensors(share)
    assert len(share.rows) % 3 == 0
    torch.manual_seed(0)
    parts = split_tensor_dict(shuffle_sequence_dict(split_pixel_values_by_grid(batch)), 3)
    parts = [unsplit_pixel_values_by_grid(part) for part in parts]
    seen = 0
    for part in parts:
        for number in range(len(part["num_images"])):
            alone = take(part, number, number + 1)
            placeholders = int(alone["mm_token_type_ids"].sum())
            assert placeholders == int(alone["image_grid_thw"].prod(-1).sum()) // 4
            seen += 1
    assert seen == len(share.rows)


@pytest.mark.parametrize(("processes", "chunks"), [(1, 1), (2, 1), (2, 3), (3, 2)])
def test_every_process_gets_the_same_count(vision: Vision, processes: int, chunks: int) -> None:
    rollouts = group(vision, [0.0, 0.25, 0.5, 1.0, 0.75], breaks=(2,))
    rows = samples_from(rollouts, vision=vision)
    assert len(rows) > len(rollouts), "a broken prefix makes another row"
    dealt = shares(rows, screenshots(rollouts), processes=processes, chunks=chunks)
    assert len({len(share.rows) for share in dealt}) == 1
    assert len(dealt[0].rows) % chunks == 0
    assert {share.real for share in dealt} == {len(rows)}
    assert {share.total for share in dealt} == {len(dealt[0].rows) * processes}
    trained = [row for share in dealt for row in share.rows if any(row.loss_mask)]
    assert sorted(map(_key, trained)) == sorted(map(_key, rows)), "each row once, none lost"
    for share in dealt:
        assert set(share.pngs) == {image.sha256 for row in share.rows for image in row.images}


def _key(row: Row) -> tuple[str, int]:
    return row.rollout_id, row.first_step


def test_padding_trains_nothing_and_costs_least(vision: Vision) -> None:
    rollouts = group(vision, [0.0, 0.5, 1.0])
    rows = samples_from(rollouts, vision=vision)
    (share,) = shares(rows, screenshots(rollouts), processes=1, chunks=4)
    (added,) = [row for row in share.rows if not any(row.loss_mask)]
    assert added == padding(min(rows, key=length))
    assert added.advantage == 0.0


def test_a_processor_of_another_model_is_found_out(processor: Any, vision: Vision) -> None:
    share = one_share(group(vision, [0.0, 1.0]), vision)
    fields = processor.image_processor.to_dict()
    fields["size"] = {"shortest_edge": 32 * 32, "longest_edge": 32 * 32}
    coarse = SimpleNamespace(image_processor=type(processor.image_processor)(**fields))
    with pytest.raises(SampleError, match="same processor"):
        Tensoriser(coarse, vision, PAD, None).tensors(share)


def test_a_server_without_logprobs_is_not_trained_on(processor: Any, vision: Vision) -> None:
    share = one_share(group(vision, [0.0, 1.0], logprobs=False), vision)
    with pytest.raises(SampleError, match="no logprobs"):
        Tensoriser(processor, vision, PAD, None).tensors(share)


# --- figures -----------------------------------------------------------------------------------


def test_tokens_are_counted_against_one_row_per_step() -> None:
    rollouts = make_group([0.0, 1.0], steps=6)
    merged = samples_from(rollouts)
    stepwise = samples_from(rollouts, merged=False)
    figures = dict(economy(merged, IMAGE_ID))
    assert figures["rows/per_rollout"] == 1
    assert figures["rows/per_rollout_stepwise"] == 6
    assert figures["rows/forward_tokens_per_rollout"] == sum(map(length, merged)) / 2
    assert figures["rows/forward_tokens_per_rollout_stepwise"] == sum(map(length, stepwise)) / 2
    assert figures["rows/trained_tokens_per_rollout"] == sum(sum(r.loss_mask) for r in stepwise) / 2
    assert (
        figures["rows/forward_tokens_per_rollout_stepwise"]
        >= 3 * figures["rows/forward_tokens_per_rollout"]
    )


def test_mismatch_is_told_by_turn() -> None:
    difference = torch.tensor([[0.0, 0.2, 9.0, 0.4], [0.1, 9.0, 9.0, 0.3]])
    turns = torch.tensor([[0, 0, -1, 1], [0, -1, -1, 2]])
    figures = dict(mismatch(difference, turns))
    assert figures["mismatch/max"] == pytest.approx(0.4)
    assert figures["mismatch/mean"] == pytest.approx(0.2)
    assert figures["mismatch/turn_0/mean"] == pytest.approx(0.1)
    assert figures["mismatch/turn_1/max"] == pytest.approx(0.4)
    assert figures["mismatch/turn_2/max"] == pytest.approx(0.3)
