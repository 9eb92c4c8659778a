"""A finished training run on the stage, and what went into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from legato.rl.record import load_screenshot, read_records
from legato.rl.row import Row
from legato_trl import LegatoGRPOTrainer
from legato_trl.rows import Share, shares

GROUPS, SIZE, STEPS = 2, 4, 2


class Trained:
    """Trains; keeps the rows that went into the steps."""

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


def batch_of(
    trainer: LegatoGRPOTrainer, run: Path, rows: list[Row], *, chunks: int = 1
) -> tuple[Share, dict[str, Any], torch.Tensor]:
    """These rows as the trainer would make a batch of them."""
    shown = {i.sha256: load_screenshot(run, i.sha256) for row in rows for i in row.images}
    (share,) = shares(rows, shown, processes=1, chunks=chunks)
    batch, turns = type(trainer._tensoriser).tensors(trainer._tensoriser, share)
    return share, batch, turns


def gap(trainer: LegatoGRPOTrainer, model: Any, run: Path, rows: list[Row]) -> tuple[float, int]:
    """Largest difference of ``model``'s logprobs from the server's, and how many were compared."""
    _, batch, turns = batch_of(trainer, run, rows)
    logps = trainer._logps(model, batch, 4)
    trained = turns >= 0
    difference = (logps - batch["sampling_per_token_logps"]).abs()[trained]
    return difference.max().item(), int(trained.sum())
