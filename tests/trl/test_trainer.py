"""GRPO steps on the stage, with a real vLLM server whose weights follow the trainer's."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from transformers import AutoTokenizer, Qwen3Config

from legato.errors import ConfigError
from legato.rl.export import export_steps
from legato.rl.record import load_screenshot, read_records
from legato.rl.row import Row
from legato.rl.samples import read_samples
from legato.rl.summary import summarise
from legato_trl import LegatoGRPOConfig, LegatoGRPOTrainer, to_dataset
from legato_trl.rows import FORWARD, Share, shares
from legato_trl.weights import Server
from tests.conftest import Vllm
from tests.trl import stage
from tests.trl.conftest import MakeTrainer
from tests.trl.proxy import LossyServer

pytestmark = pytest.mark.vllm

GROUPS, SIZE, STEPS = 2, 4, 2
STRIDE = 1e-3
"""How far one update may move the weights, all together: no further than the slope holds."""


class Trained:
    """A finished run and the rows that went into its steps."""

    def __init__(self, trainer: LegatoGRPOTrainer, **train: Any) -> None:
        self.trainer = trainer
        self.rows: list[Row] = []
        make = trainer._tensoriser.tensors

        def tensors(share: Share) -> Any:
            self.rows += share.rows
            return make(share)

        trainer._tensoriser.tensors = tensors  # type: ignore[method-assign]
        trainer.train(**train)
        self.run = trainer.args.record_dir
        self.logs = [entry for entry in trainer.state.log_history if "loss" in entry]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [dict(record) for record in read_records(self.run)]


@pytest.fixture
def trained(make_trainer: MakeTrainer) -> Trained:
    return Trained(make_trainer())


def test_two_steps(trained: Trained, server: Vllm, tmp_path: Path) -> None:
    """Weights, versions, record, profile and export of one run agree with what was trained."""
    assert len(trained.logs) == STEPS
    for entry in trained.logs:
        assert 0 < entry["reward"] < 1
        assert entry["reward_std"] > 0
        assert entry["grad_norm"] > 0
        assert entry["rollout/verdicts"] == GROUPS * SIZE
        assert entry["rows/per_rollout"] == 1
        assert entry["rollout/turns"] == 3
        assert entry["mismatch/max"] <= 1e-3, "the second step sampled from the updated weights"
        assert {f"mismatch/turn_{t}/{of}" for t in range(3) for of in ("mean", "max")} <= set(entry)
        shares_of_time = [v for k, v in entry.items() if k.startswith("time_share/")]
        assert len(shares_of_time) == 6
        assert sum(shares_of_time) <= 1.001
        assert 0 < entry["rollout/cache_hit_rate"] < 1
        assert entry["staleness"] == 0
        assert entry["rollout/seconds"] > 0
        assert entry["update/seconds"] > 0
        for lost in ("env", "policy", "grade"):
            assert entry[f"rollout/{lost}_errors"] == 0
    assert Server(server.root).version() == "1", "the weights after the first of two updates"
    versions = Counter(
        (record["policy"]["version"], step["policy_version"])
        for record in trained.records
        for step in record["steps"]
    )
    assert versions == {("0", "0"): GROUPS * SIZE * 3, ("1", "1"): GROUPS * SIZE * 3}
    check_export(trained, tmp_path)
    summary = summarise(trained.run)
    assert summary.verdicts == STEPS * GROUPS * SIZE
    assert summary.groups_complete == STEPS * GROUPS
    assert summary.policy_versions == ["0", "1"]
    check_dataset(trained)


def check_export(trained: Trained, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    assert export_steps(trained.run, out, merged=True) == len(trained.rows)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    exported = {line["rollout_id"]: (line["reward"], line["advantage"]) for line in lines}
    assert exported == {row.rollout_id: (row.reward, row.advantage) for row in trained.rows}
    groups = defaultdict(list)
    for line in lines:
        groups[line["group_id"]].append(line)
    for group in groups.values():
        rewards = torch.tensor([line["reward"] for line in group], dtype=torch.float64)
        expected = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        assert [line["advantage"] for line in group] == pytest.approx(expected.tolist(), abs=1e-9)


def check_dataset(trained: Trained) -> None:
    dataset = to_dataset(trained.run)
    by_id = {row.rollout_id: row for row in trained.rows}
    assert len(dataset) == len(by_id)
    for line in dataset:
        row = by_id[line["rollout_id"]]
        assert line["completion_ids"] == list(row.response_ids)
        assert line["advantage"] == row.advantage
        assert [image.size for image in line["images"]] == [(i.width, i.height) for i in row.images]
    assert len(to_dataset(str(trained.run), merged=False)) == 3 * len(dataset)


def test_every_screenshot_reaches_the_forward_pass(make_trainer: MakeTrainer) -> None:
    """The trainer's logprobs are the server's over three turns with images, and only so."""
    trained = Trained(make_trainer(max_steps=1, learning_rate=0.0))
    trainer = trained.trainer
    rows = list(read_samples(trained.run, vision=trainer.vision))
    assert all(len(row.turns) == 3 and len(row.images) == 3 for row in rows)
    assert trainer._banned, "the comparison has to account for banned ids"
    right, compared = gap(trainer, trained.run, rows)
    assert compared >= 3 * len(rows)
    assert right <= 1e-3
    changed = [
        replace(row, images=row.images[::-1]) for row in rows if row.images[0] != row.images[2]
    ]
    assert changed
    swapped, _ = gap(trainer, trained.run, changed)
    assert swapped >= 10 * right
    assert swapped > 1e-3, "the screenshots must matter to this model at all"


def gap(trainer: LegatoGRPOTrainer, run: Path, rows: list[Row]) -> tuple[float, int]:
    """Largest difference of a logprob, and how many were compared."""
    shown = {i.sha256: load_screenshot(run, i.sha256) for row in rows for i in row.images}
    (share,) = shares(rows, shown, processes=1, chunks=1)
    batch, turns = type(trainer._tensoriser).tensors(trainer._tensoriser, share)
    logps = trainer._logps(trainer.model, batch, 4)
    trained = turns >= 0
    difference = (logps - batch["sampling_per_token_logps"]).abs()[trained]
    return difference.max().item(), int(trained.sum())


@pytest.mark.parametrize("iterations", [1, 2])
def test_an_update_favours_what_earned_more(make_trainer: MakeTrainer, iterations: int) -> None:
    """Rewards, advantages, ids and screenshots stay together all the way into the weights.

    Plain gradient descent in steps of at most :data:`STRIDE` moves the weights along the gradient
    of ``sum(advantage * logprob)``, taken here from the rows on disk, whatever was sampled.
    """
    trainer = make_trainer(
        max_steps=iterations, num_iterations=iterations, optim="sgd", learning_rate=STRIDE,
        max_grad_norm=1.0,
    )  # fmt: skip
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trained = Trained(trainer)
    assert len(trained.logs) == iterations
    after = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    rows = list(read_samples(trained.run, vision=trainer.vision))
    assert {row.policy_version_max for row in rows} == {"0"}
    shown = {i.sha256: load_screenshot(trained.run, i.sha256) for r in rows for i in r.images}
    (share,) = shares(rows, shown, processes=1, chunks=1)
    batch, _ = type(trainer._tensoriser).tensors(trainer._tensoriser, share)

    earned_after = earned(trainer, batch)
    trainer.model.load_state_dict(before, strict=False)
    earned_before = earned(trainer, batch)
    trainer.model.zero_grad()
    earned_before.backward()
    uphill = {n: p.grad for n, p in trainer.model.named_parameters() if p.grad is not None}
    moved = torch.cat([(after[name] - before[name]).flatten() for name in uphill])
    wanted = torch.cat([slope.flatten() for slope in uphill.values()])
    assert float(torch.cosine_similarity(moved, wanted, dim=0)) > 0.98
    assert earned_after.item() > earned_before.item()


def earned(trainer: LegatoGRPOTrainer, batch: dict[str, Any]) -> torch.Tensor:
    """The sum of advantage times logprob over all that was sampled; what an update is to raise."""
    logps, _, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model,
        torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
        torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
        batch["completion_ids"].size(1),
        **{name: batch[name] for name in FORWARD},
    )
    return (logps * batch["tool_mask"] * batch["advantages"][:, None]).sum()


def test_a_broken_prefix_makes_more_rows_and_padding(make_trainer: MakeTrainer) -> None:
    harness = {
        "name": "dice",
        "image_max": 2,
        "options": {"width": stage.SIDE, "height": stage.SIDE},
    }
    trained = Trained(
        make_trainer(
            harness=harness, max_turns=4, max_steps=2, per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
        )
    )  # fmt: skip
    for entry in trained.logs:
        assert entry["rows/per_rollout"] > 1
        assert entry["mismatch/max"] <= 1e-3
        assert entry["grad_norm"] > 0
    real = [row for row in trained.rows if any(row.loss_mask)]
    assert len(real) > STEPS * GROUPS * SIZE
    assert len(trained.rows) % 4 == 0
    assert len({(row.rollout_id, row.first_step) for row in real}) == len(real)


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo", "luspo"])
def test_padding_does_not_change_the_loss(make_trainer: MakeTrainer, loss_type: str) -> None:
    trainer = make_trainer(max_steps=1, loss_type=loss_type)
    trained = Trained(trainer)
    rows = list(read_samples(trained.run, vision=trainer.vision))[:5]
    shown = {i.sha256: load_screenshot(trained.run, i.sha256) for r in rows for i in r.images}
    losses = []
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    for chunks in (1, 8):
        (share,) = shares(rows, shown, processes=1, chunks=chunks)
        batch, turns = type(trainer._tensoriser).tensors(trainer._tensoriser, share)
        batch["row_scale"] = torch.tensor(share.total / share.real)
        batch["num_items_in_batch"] = batch["tool_mask"].sum()
        trainer._score(batch, turns, "train")
        losses.append(trainer._compute_loss(trainer.model, batch).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert abs(losses[0]) > 0


# --- what goes wrong on the way ------------------------------------------------------------------


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


def test_a_server_that_restarts_gets_its_weights_again(
    make_trainer: MakeTrainer, server: Vllm
) -> None:
    """Lost in the middle of a step, and back with the weights it was started with."""
    real = urlsplit(server.root)
    with LossyServer(str(real.hostname), int(real.port or 80)) as lossy:
        slow = {"kind": "slow", "call": "act", "p": 1.0, "seconds": 0.2}
        trainer = make_trainer(
            vllm_server_base_url=lossy.url, desktop=faults(slow), desktops=2, step_timeout=5.0
        )
        rollouts = trainer.rollouts
        run, began = rollouts.run, threading.Event()

        def lose_it_once(*args: Any, **kwargs: Any) -> Any:
            if rollouts.version == "1" and not began.is_set():
                began.set()
                threading.Thread(target=restart, args=(lossy, server)).start()
            return run(*args, **kwargs)

        rollouts.run = lose_it_once  # type: ignore[method-assign]
        trained = Trained(trainer)
    assert began.is_set()
    assert len(trained.logs) == STEPS
    last = trained.logs[-1]
    assert last["rollout/verdicts"] == GROUPS * SIZE
    assert last["mismatch/max"] <= 1e-3, "no row was sampled from the weights it came back with"
    lost = [r for r in trained.records if r["error"] and r["error"]["kind"] == "policy"]
    assert lost
    assert all(r["reward"] is None for r in lost)
    assert Server(server.root).version() == "1"


def restart(lossy: LossyServer, server: Vllm) -> None:
    """What a restart looks like from outside, in a second instead of a minute."""
    threading.Event().wait(0.5)  # into the step
    lossy.go()
    admin = Server(server.root)
    admin.load(server.checkpoint)
    admin.name_weights("default")
    threading.Event().wait(1.5)
    lossy.come()


def test_resuming_goes_on_with_weights_and_record(make_trainer: MakeTrainer) -> None:
    whole = Trained(make_trainer(save_strategy="steps", save_steps=1))
    checkpoint = Path(whole.trainer.args.output_dir) / "checkpoint-1"
    whole.trainer.close()
    before = len(whole.records)
    again = Trained(make_trainer(), resume_from_checkpoint=str(checkpoint))
    assert again.trainer.state.global_step == STEPS
    assert len(again.logs) == STEPS, "the first is the checkpoint's own"
    added = again.records[before:]
    assert {record["policy"]["version"] for record in added} == {"1"}
    assert all("~1/" in record["rollout_id"] for record in added), "told apart from the first time"
    assert len({record["rollout_id"] for record in again.records}) == len(again.records)
    assert again.logs[-1]["mismatch/max"] <= 1e-3
    assert len(added) == GROUPS * SIZE


# --- models that cannot be trained ---------------------------------------------------------------


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
