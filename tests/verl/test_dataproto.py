"""Batches for trainers without a loop, as verl's own functions take them; and whose advantages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.metric_utils import compute_data_metrics
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils import hf_processor, hf_tokenizer

from legato.errors import ConfigError, SampleError
from legato.rl.advantage import group_advantages
from legato.rl.images import ImageSpec
from legato.rl.types import Rollout, Status
from legato_verl import to_dataproto
from legato_verl.advantage import given
from tests.conftest import CheckpointFactory
from tests.rl import factories

REWARDS = [0.0, 1.0, 0.25, 1.0]


@pytest.fixture(scope="module")
def model(tiny_checkpoint: CheckpointFactory) -> tuple[Any, Any]:
    path = str(tiny_checkpoint())
    return hf_tokenizer(path), hf_processor(path)


def rollouts(model: tuple[Any, Any], group: str = "g0", **fields: Any) -> list[Rollout]:
    """A group whose rollouts have ids and images that this model could have sampled and seen."""
    tokenizer, processor = model
    spec = ImageSpec.from_config(processor.image_processor.to_dict())
    image = tokenizer.convert_tokens_to_ids("<|image_pad|>")
    factories_ids = (factories.IMAGE_ID, factories.IMAGE_TOKENS)
    factories.IMAGE_ID, factories.IMAGE_TOKENS = image, spec.tokens(32, 32)
    try:
        return factories.make_group(REWARDS, group_id=group, **fields)
    finally:
        factories.IMAGE_ID, factories.IMAGE_TOKENS = factories_ids


def test_a_padded_batch(model: tuple[Any, Any]) -> None:
    tokenizer, processor = model
    batch = to_dataproto(rollouts(model), tokenizer, processor)
    data = batch.batch
    rows, prompt = data["prompts"].shape
    whole = data["input_ids"].shape[1]
    assert rows == len(REWARDS)
    assert data["position_ids"].shape == (rows, 4, whole)
    for name in ("response_mask", "rollout_log_probs", "rm_scores", "advantages"):
        assert data[name].shape == data["responses"].shape == (rows, whole - prompt)
    assert torch.equal(data["input_ids"], torch.cat([data["prompts"], data["responses"]], dim=1))
    for row, reward in enumerate(REWARDS):
        mask = data["attention_mask"][row]
        assert (mask[:prompt].diff() >= 0).all()  # padded on the left
        assert (mask[prompt:].diff() <= 0).all()  # and on the right
        last = int(mask[prompt:].sum()) - 1
        assert data["rm_scores"][row, last] == data["rm_scores"][row].sum() == reward
        trained = data["response_mask"][row].bool()
        assert (data["rollout_log_probs"][row][trained] < 0).all()
        assert (data["rollout_log_probs"][row][~trained] == 0).all()
        pixels = batch.non_tensor_batch["multi_modal_inputs"][row]
        image = tokenizer.convert_tokens_to_ids("<|image_pad|>")
        merged = pixels["image_grid_thw"].prod(dim=-1).sum() // 4
        assert (data["input_ids"][row] == image).sum() == merged
    assert list(batch.non_tensor_batch["uid"]) == ["g0"] * rows


def test_verls_functions_take_it(model: tuple[Any, Any]) -> None:
    batch = to_dataproto([*rollouts(model), *rollouts(model, "g1")], *model)
    mine = batch.batch["advantages"].clone()
    theirs = compute_advantage(batch, adv_estimator="grpo").batch["advantages"]
    assert torch.allclose(mine, theirs, atol=1e-3)
    assert theirs.abs().max() > 0.5
    metrics = compute_data_metrics(batch, use_critic=False)
    assert metrics["critic/score/mean"] == pytest.approx(np.mean(REWARDS))
    assert metrics["num_turns/mean"] == 3


def test_both_estimators_on_one_batch_of_many_rows(model: tuple[Any, Any]) -> None:
    """verl's grpo and ours, where a rollout makes two rows: the driver's advantages each time."""
    kept = rollouts(model, breaks=[2])
    batch = to_dataproto(kept, *model)
    assert len(batch) == 2 * len(REWARDS)
    wanted = group_advantages(dict(enumerate(REWARDS)))
    ids = list(batch.non_tensor_batch["rollout_id"])
    of_row = torch.tensor([wanted[int(name.split("/")[1])] for name in ids])
    expected = of_row.unsqueeze(-1) * batch.batch["response_mask"]
    keys = [f"g0_{name.split('/')[1]}_{ids[:i].count(name)}" for i, name in enumerate(ids)]
    for estimator in ("grpo", "legato"):
        data = to_dataproto(kept, *model)
        with given(of_row):
            done = compute_advantage_for_multi_trajectories(data, keys, estimator)
        assert torch.allclose(done.batch["advantages"], expected, atol=1e-3), estimator


def test_the_estimator_alone_says_what_it_needs() -> None:
    with pytest.raises(RuntimeError, match="agent loop"):
        get_adv_estimator_fn("legato")(
            token_level_rewards=torch.zeros(1, 2), response_mask=torch.ones(1, 2)
        )


def test_losses_of_ours_make_no_row(model: tuple[Any, Any]) -> None:
    kept = rollouts(model)
    kept[0].status, kept[0].reward = Status.ERROR, None
    batch = to_dataproto(kept, *model)
    assert sorted(batch.non_tensor_batch["rollout_id"]) == ["g0/1", "g0/2", "g0/3"]
    with pytest.raises(SampleError, match="no rollout"):
        to_dataproto(kept[:1], *model)


def test_a_processor_of_another_size_is_refused(model: tuple[Any, Any]) -> None:
    tokenizer, processor = model
    kept = rollouts(model)
    for rollout in kept:
        for step in rollout.steps:
            counts = step.generation.image_tokens or ()
            object.__setattr__(step.generation, "image_tokens", tuple(n + 1 for n in counts))
            object.__setattr__(step.generation, "prompt_tokens", None)
    with pytest.raises(SampleError, match="tokens"):
        to_dataproto(kept, tokenizer, processor)
    with pytest.raises(ConfigError, match="processor"):
        to_dataproto(kept, tokenizer, tokenizer)
