"""TRL's own trainer: rollouts it can carry are trained on, others are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from legato.errors import ConfigError
from legato.rl.record import read_records
from legato.rl.samples import read_samples
from legato_trl import LegatoGRPOConfig, openings, rollout_func, verdict_reward
from legato_trl.prompts import as_dataset, training_tasks
from tests.conftest import Vllm
from tests.trl import stage

pytestmark = pytest.mark.vllm

DICE = {"name": "dice", "options": {"width": stage.SIDE, "height": stage.SIDE}}
MakeStock = Callable[..., tuple[GRPOTrainer, LegatoGRPOConfig]]


@pytest.fixture
def make_stock(
    on_stage: None, server: Vllm, tasks_file: Path, tmp_path: Path
) -> Iterator[MakeStock]:
    opened: list[Any] = []

    def make(
        dataset: Dataset | None = None, **changes: Any
    ) -> tuple[GRPOTrainer, LegatoGRPOConfig]:
        fields = stage.settings(server.root, str(tmp_path / "out"), str(tasks_file))
        config = LegatoGRPOConfig(**{**fields, "banned_tokens": [], **changes})
        if dataset is None:
            dataset = as_dataset(training_tasks(config))
        play = rollout_func(config, dataset)
        opened.append(play)
        ours = set(LegatoGRPOConfig.__dataclass_fields__) - set(GRPOConfig.__dataclass_fields__)
        stock = {k: v for k, v in fields.items() if k not in ours and not k.startswith("vllm")}
        trainer = GRPOTrainer(
            model=str(server.checkpoint),
            args=GRPOConfig(**stock),
            reward_funcs=verdict_reward,
            rollout_func=play,
            train_dataset=dataset,
        )
        return trainer, config

    yield make
    for play in opened:
        play.close()


def test_observations_in_words_are_trained_on(make_stock: MakeStock) -> None:
    trainer, config = make_stock(harness="words")
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logs) == 2
    records = list(read_records(config.record_dir))
    for step, entry in enumerate(logs):
        rewards = [r["reward"] for r in records if r["policy"]["version"] == str(step)]
        assert len(rewards) == 8
        assert entry["reward"] == pytest.approx(sum(r for r in rewards if r is not None) / 8)
        assert entry["grad_norm"] > 0


def test_a_lost_attempt_is_unscorable(make_stock: MakeStock) -> None:
    breaks = {"kind": "broken_verifier", "p": 0.6}
    desktop = {"backend": "fake", "width": 128, "height": 128, "options": {"faults": [breaks]}}
    trainer, config = make_stock(harness="words", desktop=desktop)
    trainer.train()
    first = next(entry for entry in trainer.state.log_history if "loss" in entry)
    records = [r for r in read_records(config.record_dir) if r["policy"]["version"] == "0"]
    rewards = [r["reward"] for r in records if r["reward"] is not None]
    assert len(rewards) < 8
    assert first["reward"] == pytest.approx(sum(rewards) / len(rewards))


@pytest.fixture
def shown(on_stage: None, server: Vllm, tasks_file: Path, tmp_path: Path) -> Dataset:
    fields = stage.settings(server.root, str(tmp_path / "out"), str(tasks_file))
    return openings(LegatoGRPOConfig(**fields))


def test_the_datasets_own_images_are_trained_on(make_stock: MakeStock, shown: Dataset) -> None:
    """The stock trainer's logprobs are the server's: the pixels are those that were shown."""
    trainer, config = make_stock(shown, harness=DICE, max_turns=1)
    forward = trainer._get_per_token_logps_and_entropies
    seen: dict[tuple[int, ...], torch.Tensor] = {}

    def watched(model: Any, ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        assert kwargs["pixel_values"] is not None
        found = forward(model, ids, *args, **kwargs)
        if trainer.state.global_step == 0:
            kept = found[0].shape[1]
            for row, logps in zip(ids[:, -kept:].tolist(), found[0].detach(), strict=True):
                seen[tuple(row)] = logps
        return found

    trainer._get_per_token_logps_and_entropies = watched  # type: ignore[method-assign]
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert all(entry["grad_norm"] > 0 for entry in logs)
    rows = [row for row in read_samples(config.record_dir) if row.policy_version_max == "0"]
    assert len(rows) == 8
    for row in rows:
        assert row.logprobs is not None
        said = len(row.response_ids)
        (logps,) = [found for ids, found in seen.items() if ids[:said] == row.response_ids][:1]
        assert logps[:said].tolist() == pytest.approx(row.logprobs, abs=1e-3)


def test_later_screenshots_are_refused_rather_than_dropped(
    make_stock: MakeStock, shown: Dataset
) -> None:
    trainer, _ = make_stock(shown, harness=DICE, max_turns=2)
    with pytest.raises(ConfigError, match="LegatoGRPOTrainer"):
        trainer.train()


def test_screenshots_are_refused_rather_than_dropped(make_stock: MakeStock) -> None:
    trainer, _ = make_stock(harness=DICE)
    with pytest.raises(ConfigError, match="LegatoGRPOTrainer"):
        trainer.train()


def test_banned_tokens_are_refused(make_stock: MakeStock) -> None:
    with pytest.raises(ConfigError, match="banned_tokens"):
        make_stock(banned_tokens=["<|image_pad|>"])
