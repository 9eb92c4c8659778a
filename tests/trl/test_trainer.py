"""GRPO steps on the stage, with a real vLLM server whose weights follow the trainer's."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from legato.rl.export import export_steps
from legato.rl.samples import read_samples
from legato.rl.summary import summarise
from legato.view.gaps import read_gaps
from legato.view.site import write_site
from legato.view.trackers import TAG
from legato_trl import LegatoGRPOTrainer, to_dataset
from legato_trl.rows import FORWARD
from legato_trl.weights import Server
from tests.conftest import Vllm
from tests.trl import stage
from tests.trl.conftest import MakeTrainer, trainers
from tests.trl.trained import GROUPS, SIZE, STEPS, Trained, batch_of, gap
from tests.view.walk import walk

pytestmark = pytest.mark.vllm

STRIDE = 1e-3
"""How far one update may move the weights, all together: no further than the slope holds."""


class Shared(Trained):
    """Two ordinary steps, which several tests look at."""

    def __init__(self, trainer: LegatoGRPOTrainer, server: Vllm) -> None:
        super().__init__(trainer)
        self.server_version = Server(server.root).version()


@pytest.fixture(scope="module")
def trained(
    server: Vllm, on_stage: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    with trainers(server, tmp_path_factory.mktemp("shared")) as make:
        trainer = make(
            beta=0.01,  # keeps the first weights, as the model of reference
            probe=True,
            save_strategy="steps",
            save_steps=1,
            report_to=["tensorboard"],
            sheet_steps=1,
        )
        yield Shared(trainer, server)


def test_two_steps(trained: Shared, tmp_path: Path) -> None:
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
    assert trained.server_version == "1", "the weights after the first of two updates"
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


def check_export(trained: Shared, tmp_path: Path) -> None:
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


def check_dataset(trained: Shared) -> None:
    dataset = to_dataset(trained.run)
    by_id = {row.rollout_id: row for row in trained.rows}
    assert len(dataset) == len(by_id)
    for line in dataset:
        row = by_id[line["rollout_id"]]
        assert line["completion_ids"] == list(row.response_ids)
        assert line["advantage"] == row.advantage
        assert [image.size for image in line["images"]] == [(i.width, i.height) for i in row.images]
    assert len(to_dataset(str(trained.run), merged=False)) == 3 * len(dataset)


def test_every_screenshot_reaches_the_forward_pass(trained: Shared) -> None:
    """The trainer's logprobs are the server's over three turns with images, and only so."""
    trainer, first = trained.trainer, trained.trainer.ref_model
    rows = list(read_samples(trained.run, vision=trainer.vision))
    rows = [row for row in rows if row.policy_version_max == "0"]
    assert all(len(row.turns) == 3 and len(row.images) == 3 for row in rows)
    assert trainer._banned, "the comparison has to account for banned ids"
    right, compared = gap(trainer, first, trained.run, rows)
    assert compared >= 3 * len(rows)
    assert right <= 1e-3
    changed = [
        replace(row, images=row.images[::-1]) for row in rows if row.images[0] != row.images[2]
    ]
    assert changed
    swapped, _ = gap(trainer, first, trained.run, changed)
    assert swapped >= 10 * right
    assert swapped > 1e-3, "the screenshots must matter to this model at all"


def test_the_record_says_how_far_each_turn_was_off(trained: Shared) -> None:
    noted = read_gaps(trained.run)
    assert noted.keys() == {row.rollout_id for row in trained.rows}
    assert all([gap.step for gap in gaps] == [0, 1, 2] for gaps in noted.values())
    for step, entry in enumerate(trained.logs):
        of_step = [g for name, gaps in noted.items() if name.startswith(f"{step}/") for g in gaps]
        assert max(gap.max for gap in of_step) == pytest.approx(entry["mismatch/max"])
        assert all(0 <= gap.mean <= gap.max for gap in of_step)


@pytest.mark.browser
def test_the_run_can_be_looked_at(trained: Shared, tmp_path: Path) -> None:
    walk(trained.run, write_site([trained.run], tmp_path / "view"), gaps=True)


def test_the_tracker_shows_sheets_of_rollouts_beside_the_figures(trained: Shared) -> None:
    (folder,) = {path.parent for path in Path(trained.trainer.args.output_dir).rglob("*tfevents*")}
    events = EventAccumulator(str(folder))
    events.Reload()
    sheets = events.Images(TAG)
    assert [sheet.step for sheet in sheets] == [0, 1]
    assert Image.open(io.BytesIO(sheets[0].encoded_image_string)).height > stage.SIDE
    assert {"train/reward", "train/success_rate", "train/rollout/turns"} <= set(
        events.Tags()["scalars"]
    )


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo", "luspo"])
def test_padding_does_not_change_the_loss(
    trained: Shared, loss_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trained.trainer
    monkeypatch.setattr(trainer, "loss_type", loss_type)
    rows = list(read_samples(trained.run, vision=trainer.vision))[:5]
    losses = []
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    for chunks in (1, 8):
        share, batch, _ = batch_of(trainer, trained.run, rows, chunks=chunks)
        batch["row_scale"] = torch.tensor(share.total / share.real)
        batch["num_items_in_batch"] = batch["tool_mask"].sum()
        trainer._score(batch, "train")
        losses.append(trainer._compute_loss(trainer.model, batch).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert abs(losses[0]) > 0


def test_resuming_goes_on_with_weights_and_record(
    trained: Shared, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    out = tmp_path / "again"
    # What is live of a run that is still open, its sockets, is no part of it.
    shutil.copytree(trained.trainer.args.output_dir, out, ignore=shutil.ignore_patterns("live"))
    before = len(trained.records)
    again = Trained(
        make_trainer(output_dir=str(out)), resume_from_checkpoint=str(out / "checkpoint-1")
    )
    assert again.trainer.state.global_step == STEPS
    assert len(again.logs) == STEPS, "the first is the checkpoint's own"
    added = again.records[before:]
    assert {record["policy"]["version"] for record in added} == {"1"}
    assert all("~1/" in record["rollout_id"] for record in added), "told apart from the first time"
    assert len({record["rollout_id"] for record in again.records}) == len(again.records)
    assert again.logs[-1]["mismatch/max"] <= 1e-3
    assert len(added) == GROUPS * SIZE


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
    _, batch, _ = batch_of(trainer, trained.run, rows)

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


def test_an_adapter_is_trained_and_the_server_gets_the_sum(make_trainer: MakeTrainer) -> None:
    """LoRA: TRL trains the adapter alone; the server samples from it and the weights below."""
    adapter = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = make_trainer(peft_config=adapter, beta=0.01, learning_rate=2e-2)
    trained = Trained(trainer)
    assert len(trained.logs) == STEPS
    moved = {n: p for n, p in trainer.model.named_parameters() if p.requires_grad}
    assert moved
    assert all("lora_" in name for name in moved)
    assert max(float(p.detach().abs().max()) for n, p in moved.items() if "lora_B" in n) > 1e-3
    assert trained.logs[-1]["mismatch/max"] <= 1e-3, "the second step sampled from the sum"
    rows = [r for r in read_samples(trained.run, vision=trainer.vision) if r.rollout_id[0] == "1"]
    with trainer.model.disable_adapter():
        without, _ = gap(trainer, trainer.model, trained.run, rows)
    assert without > 1e-3, "the adapter must matter for the comparison to mean anything"
