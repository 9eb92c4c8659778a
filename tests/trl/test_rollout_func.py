"""TRL's own trainer: rollouts it can carry are trained on, others are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trl import GRPOConfig, GRPOTrainer

from legato.errors import ConfigError
from legato.rl.record import read_records
from legato_trl import LegatoGRPOConfig, rollout_func, verdict_reward
from legato_trl.prompts import as_dataset, training_tasks
from tests.conftest import Vllm
from tests.trl import stage

pytestmark = pytest.mark.vllm

MakeStock = Callable[..., tuple[GRPOTrainer, LegatoGRPOConfig]]


@pytest.fixture
def make_stock(
    on_stage: None, server: Vllm, tasks_file: Path, tmp_path: Path
) -> Iterator[MakeStock]:
    opened: list[Any] = []

    def make(**changes: Any) -> tuple[GRPOTrainer, LegatoGRPOConfig]:
        fields = stage.settings(server.root, str(tmp_path / "out"), str(tasks_file))
        config = LegatoGRPOConfig(**{**fields, "banned_tokens": [], **changes})
        play = rollout_func(config)
        opened.append(play)
        ours = set(LegatoGRPOConfig.__dataclass_fields__) - set(GRPOConfig.__dataclass_fields__)
        stock = {k: v for k, v in fields.items() if k not in ours and not k.startswith("vllm")}
        trainer = GRPOTrainer(
            model=str(server.checkpoint),
            args=GRPOConfig(**stock),
            reward_funcs=verdict_reward,
            rollout_func=play,
            train_dataset=as_dataset(training_tasks(config)),
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


def test_screenshots_are_refused_rather_than_dropped(make_stock: MakeStock) -> None:
    trainer, _ = make_stock(harness="dice")
    with pytest.raises(ConfigError, match="LegatoGRPOTrainer"):
        trainer.train()


def test_banned_tokens_are_refused(make_stock: MakeStock) -> None:
    with pytest.raises(ConfigError, match="banned_tokens"):
        make_stock(banned_tokens=["<|image_pad|>"])
