"""The trainer's distribution is the server's: banned ids are out of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText
from trl.trainer.utils import add_fused_lm_head

from legato.rl.policy.request import BAN
from legato_trl.logprobs import importance_ratio, without
from tests.conftest import CheckpointFactory

TEMPERATURE = 0.7
BANNED = (5, 7, 300)


@pytest.fixture(scope="module")
def model(tiny_checkpoint: CheckpointFactory) -> Any:
    checkpoint: Path = tiny_checkpoint("qwen3_vl")
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    add_fused_lm_head(model, temperature=TEMPERATURE, outputs=("log_probs", "entropy"))
    return model


def fused(model: Any, ids: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(input_ids=ids, labels=ids, fused_lm_head=True).log_probs
    return found[:, -(ids.shape[1] - 1) :]


def test_banned_ids_have_no_share(model: Any) -> None:
    torch.manual_seed(0)
    ids = torch.randint(10, 600, (2, 12))
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, :-1]
        logits[..., list(BANNED)] += BAN
        expected = (logits / TEMPERATURE).log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        with without(BANNED, model):
            found = fused(model, ids)
        plain = fused(model, ids)
    assert torch.allclose(found, expected, atol=1e-5)
    assert (found - plain).min() > 1e-4, "without the ban every other id has a smaller share"


def test_the_ban_takes_part_in_the_gradient_and_leaves_the_model_alone(model: Any) -> None:
    ids = torch.randint(10, 600, (1, 8))
    before = set(model.state_dict())
    with without(BANNED, model):
        loss = -fused(model, ids).sum()
    loss.backward()
    head = model.get_output_embeddings()
    assert head is model.lm_head
    assert not head.weight.grad[list(BANNED)].abs().max() > 1e-12, (
        "what cannot be said is not taught"
    )
    assert head.weight.grad.abs().max() > 0
    assert set(model.state_dict()) == before
    model.zero_grad()


def test_no_ban_changes_nothing(model: Any) -> None:
    ids = torch.randint(10, 600, (1, 8))
    with torch.no_grad():
        plain = fused(model, ids)
        with without((), model):
            assert torch.equal(fused(model, ids), plain)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token_truncate", [[2.0, 1.0, 0.5]]),
        ("token_mask", [[0.0, 1.0, 0.5]]),
        ("sequence_truncate", [[2.0]]),
        ("sequence_mask", [[0.0]]),
    ],
)
def test_importance_ratio(mode: str, expected: list[list[float]]) -> None:
    trainer = torch.tensor([[-1.0, -1.0, -2.0]])
    server = trainer - torch.log(torch.tensor([[5.0, 123.0, 0.5]]))
    mask = torch.tensor([[1, 0, 1]])
    ratio = importance_ratio(trainer, server, mask, mode=mode, low=None, high=2.0)
    assert ratio.tolist() == [pytest.approx(row) for row in expected]
