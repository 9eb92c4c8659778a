"""What of verl's trainer has to be ours: its end, its metrics, its advantages.

verl 0.9 lets a plugin bring the agent loop, and nothing that learns of a step. So three methods of
``PPOTrainer``, which all its modes inherit, are extended in the trainer's process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ray
import torch
import transfer_queue as tq
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from legato.view.trackers import SheetLogger
from legato_verl.advantage import given
from legato_verl.metrics import gaps_of, mismatch
from legato_verl.settings import ESTIMATOR
from legato_verl.watch import Watch

CALL_S = 300.0
"""Deadline of a call to an actor of ours."""


def extend() -> None:
    """Extend ``PPOTrainer`` in this process. Idempotent."""
    if getattr(PPOTrainer.fit, "legato", False):
        return
    for name, around in (
        ("fit", _fit),
        ("_compute_metrics", _compute_metrics),
        ("_compute_advantage", _compute_advantage),
    ):
        setattr(PPOTrainer, name, _around(getattr(PPOTrainer, name), around))


def _around(original: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def extended(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(self, original, *args, **kwargs)

    extended.legato = True  # type: ignore[attr-defined]
    return extended


def _fit(trainer: Any, original: Callable[..., Any], manager: Any) -> None:
    """Train under watch; then every desktop is closed and the record finished."""
    trainer._desktop_seconds = ray.get(manager.pool.usage.remote(), timeout=CALL_S)
    trainer._sheets = _Sheets(manager)
    try:
        with Watch(manager, trainer._rollout_server_managers()):
            original(trainer, manager)
    finally:
        _close(trainer, manager)


def _close(trainer: Any, manager: Any) -> None:
    """Whatever fails at it, the rest is closed, too."""
    try:
        stats = ray.get(manager.pool.close.remote(), timeout=CALL_S)
        print(f"legato: desktops are closed; leases left: {stats['leased']}", flush=True)
    finally:
        try:
            ray.get(manager.recorder.close.remote(), timeout=CALL_S)
        finally:
            trainer._sheets.close()


def _compute_metrics(
    trainer: Any,
    original: Callable[..., Any],
    batch: Any,
    metrics: dict[str, Any],
    *args: Any,
    **kwargs: Any,
) -> None:
    original(trainer, batch, metrics, *args, **kwargs)
    manager = trainer.agent_loop_manager
    uids = list(dict.fromkeys(key.rsplit("_", 2)[0] for key in batch.keys))
    told: dict[str, float] = ray.get(manager.recorder.figures.remote(uids), timeout=CALL_S)
    before = trainer._desktop_seconds
    now = trainer._desktop_seconds = ray.get(manager.pool.usage.remote(), timeout=CALL_S)
    if now.offered > before.offered:
        share = (now.leased - before.leased) / (now.offered - before.offered)
        told["desktops/utilisation"] = share
    rows = _differences(batch)
    told.update(mismatch((difference, turns) for _, difference, turns in rows))
    ray.get(manager.recorder.note_gaps.remote(gaps_of(rows)), timeout=CALL_S)
    metrics.update({f"legato/{name}": value for name, value in told.items()})
    trainer._sheets.log(trainer)


class _Sheets:
    """Contact sheets for the trackers that ``trainer.logger`` names, begun once those have."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._logger: SheetLogger | None = None

    def log(self, trainer: Any) -> None:
        """A sheet of the latest rollouts, if this step wants one.

        Raises :class:`~legato.errors.ConfigError` if a tracker is not installed.
        """
        if self._logger is None:
            settings = self._manager.settings
            started = trainer.logger.logger
            events = started["tensorboard"].writer.log_dir if "tensorboard" in started else None
            self._logger = SheetLogger(
                started,
                every=settings.sheet_steps,
                screen=settings.desktop.screen,
                log_dir=events,
            )
        if self._logger.due(trainer.global_steps):
            sheet = ray.get(self._manager.recorder.sheet.remote(), timeout=CALL_S)
            if sheet is not None:
                self._logger.put(trainer.global_steps, sheet)

    def close(self) -> None:
        if self._logger is not None:
            self._logger.close()


def _compute_advantage(
    trainer: Any, original: Callable[..., Any], batch: Any, metrics: dict[str, Any]
) -> Any:
    if trainer.config.algorithm.adv_estimator != ESTIMATOR:
        return original(trainer, batch, metrics)
    fields = _extra_fields(batch)
    with given(torch.tensor([float(field["advantage"]) for field in fields])):
        return original(trainer, batch, metrics)


def _differences(batch: Any) -> list[tuple[str, torch.Tensor, list[list[int]]]]:
    """Of each row the rollout's id, trainer - server of the logprobs (T,), and its turns."""
    names = ["old_log_probs", "rollout_log_probs"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    if any(name not in data for name in names):
        return []
    return [
        (field["rollout_id"], trainer.float() - server.float(), field["turns"])
        for trainer, server, field, tag in zip(
            data["old_log_probs"].unbind(),
            data["rollout_log_probs"].unbind(),
            _extra_fields(batch),
            batch.tags,
            strict=True,
        )
        if not tag.get("is_padding", False)
    ]


def _extra_fields(batch: Any) -> list[dict[str, Any]]:
    data = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"]
    )
    return [getattr(field, "data", field) for field in data["extra_fields"]]
