"""What goes wrong before and while a trainer trains."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, Qwen3Config

from legato.errors import ConfigError
from legato_trl import LegatoGRPOConfig, LegatoGRPOTrainer
from legato_trl.weights import Server
from tests.conftest import Vllm
from tests.rl.servers import ModelServer
from tests.trl import stage
from tests.trl.conftest import MakeTrainer
from tests.trl.trained import GROUPS, SIZE, STEPS, Trained
from tools.vllm_server import VllmServer

pytestmark = pytest.mark.vllm


def faults(*chosen: dict[str, Any]) -> dict[str, Any]:
    side = stage.SIDE
    return {"backend": "fake", "width": side, "height": side, "options": {"faults": list(chosen)}}


def test_a_desktop_that_dies_mid_episode_costs_no_attempt(make_trainer: MakeTrainer) -> None:
    dies = {"kind": "crash", "call": "act", "at": 2, "lives": 1}
    trained = Trained(make_trainer(desktop=faults(dies), max_steps=1))
    (entry,) = trained.logs
    assert entry["rollout/env_errors"] > 0
    assert entry["rollout/verdicts"] == GROUPS * SIZE
    assert entry["rollout/short_groups"] == 0
    statuses = Counter(record["status"] for record in trained.records)
    # One that meets two dying desktops is lost, and its place is filled by a new attempt.
    assert statuses["retried"] > 0
    assert statuses["retried"] + statuses["error"] == entry["rollout/env_errors"]
    assert statuses["error"] == entry["rollout/refills"]
    lost = [r for r in trained.records if r["status"] in ("retried", "error")]
    assert all(r["reward"] is None for r in lost)
    assert len(trained.rows) == GROUPS * SIZE


def test_what_cannot_be_refilled_is_unscorable(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    breaks = {"kind": "broken_verifier", "p": 0.7}
    trained = Trained(make_trainer(desktop=faults(breaks), max_steps=1))
    (entry,) = trained.logs
    records = trained.records
    verdicts = [r for r in records if r["status"] == "ok"]
    assert entry["rollout/grade_errors"] == sum(r["status"] == "error" for r in records) > 0
    assert entry["rollout/short_groups"] > 0
    assert entry["rollout/verdicts"] == len(verdicts) < GROUPS * SIZE
    real = [row for row in trained.rows if any(row.loss_mask)]
    assert {row.rollout_id for row in real} == {r["rollout_id"] for r in verdicts}
    rewards = [r["reward"] for r in verdicts]
    assert entry["reward"] == pytest.approx(sum(rewards) / len(rewards))


@pytest.fixture
def lossy(server: Vllm) -> Iterator[VllmServer]:
    """The session's server, to be stopped and started; or one more, if that is not ours."""
    if server.process is not None:
        yield server.process
    else:
        with VllmServer(server.checkpoint) as another:
            yield another


@pytest.mark.timeout(900)
def test_a_server_that_restarts_gets_its_weights_again(
    make_trainer: MakeTrainer, lossy: VllmServer
) -> None:
    """Killed in the middle of a step, and back with the weights it is started with."""
    slow = {"kind": "slow", "call": "act", "p": 1.0, "seconds": 0.2}
    trainer = make_trainer(
        vllm_server_base_url=lossy.root, desktop=faults(slow), desktops=2, step_timeout=5.0
    )
    rollouts = trainer.rollouts
    run, killed = rollouts.run, threading.Event()

    def kill_it_once(*args: Any, **kwargs: Any) -> Any:
        if rollouts.version == "1" and not killed.is_set():
            killed.set()
            threading.Timer(0.5, lossy.stop).start()  # into the step
        return run(*args, **kwargs)

    revive = trainer.weights.revive

    def start_it_and_revive() -> None:
        lossy.start()
        assert Server(lossy.root).version() != "1"
        revive()

    rollouts.run = kill_it_once  # type: ignore[method-assign]
    trainer.weights.revive = start_it_and_revive  # type: ignore[method-assign]
    trained = Trained(trainer)
    assert killed.is_set()
    assert len(trained.logs) == STEPS
    last = trained.logs[-1]
    assert last["rollout/verdicts"] == GROUPS * SIZE
    assert last["mismatch/max"] <= 1e-3, "no row was sampled from the weights it came back with"
    lost = [r for r in trained.records if r["error"] and r["error"]["kind"] == "policy"]
    assert lost
    assert all(r["reward"] is None for r in lost)
    assert Server(lossy.root).version() == "1"


# --- models and servers that cannot be trained on ------------------------------------------------


def config(tmp_path: Path, server: Vllm, tasks: Path) -> LegatoGRPOConfig:
    return LegatoGRPOConfig(**stage.settings(server.root, str(tmp_path / "out"), str(tasks)))


def test_a_text_only_model_is_refused(
    on_stage: None, server: Vllm, tasks_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "text-only"
    Qwen3Config(num_hidden_layers=1).save_pretrained(folder)
    AutoTokenizer.from_pretrained(server.checkpoint).save_pretrained(folder)
    with pytest.raises(ConfigError, match="text-only"):
        LegatoGRPOTrainer(str(folder), config(tmp_path, server, tasks_file))


def test_a_missing_processor_is_named(
    on_stage: None, server: Vllm, tasks_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "no-processor"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((server.checkpoint / name).read_bytes())
    with pytest.raises(ConfigError, match="image processor"):
        LegatoGRPOTrainer(str(folder), config(tmp_path, server, tasks_file))


def test_a_missing_checkpoint_is_named(
    on_stage: None, server: Vllm, tasks_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no checkpoint"):
        LegatoGRPOTrainer(str(tmp_path / "nothing"), config(tmp_path, server, tasks_file))


def test_an_absent_server_is_named_before_the_model_is_loaded(
    on_stage: None, server: Vllm, tasks_file: Path, tmp_path: Path
) -> None:
    fields = stage.settings("http://127.0.0.1:9", str(tmp_path / "out"), str(tasks_file))
    with pytest.raises(Exception, match="does not answer"):
        LegatoGRPOTrainer(str(server.checkpoint), LegatoGRPOConfig(**fields))


def test_a_server_not_fit_for_training_is_refused(
    on_stage: None, server: Vllm, tasks_file: Path, tmp_path: Path
) -> None:
    """Its logprobs are not of what it samples from: nothing trained on them would be right."""
    with ModelServer(raw_logprobs=True) as unfit:
        # Its vocabulary is smaller than the checkpoint's: no ids of ours can be banned there.
        fields = stage.settings(
            unfit.url, str(tmp_path / "out"), str(tasks_file),
            probe=True, temperature=0.7, banned_tokens=[],
        )  # fmt: skip
        with pytest.raises(ConfigError, match=r"would be wrong: .*temperature"):
            LegatoGRPOTrainer(str(server.checkpoint), LegatoGRPOConfig(**fields))
    assert not (tmp_path / "out").exists()
