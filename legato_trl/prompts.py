"""Tasks as TRL's dataset: one prompt per task, told apart by ``task_id``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from datasets import Dataset

from legato.desktop.contract import Task
from legato.errors import ConfigError
from legato.rl.collect import load
from legato.tasks.suites import suite_tasks

if TYPE_CHECKING:
    from legato_trl.config import LegatoGRPOConfig


def training_tasks(config: LegatoGRPOConfig) -> list[Task]:
    """The tasks to train on. Raises :class:`~legato.errors.ConfigError`."""
    if config.tasks is not None:
        settings = config.settings("model", "")
        return load(config.tasks, settings.desktop, infeasible=settings.rollout.infeasible)
    assert config.suite is not None
    return [*suite_tasks(config.suite, "train", config.seeds)]


def held_out_tasks(config: LegatoGRPOConfig) -> list[Task]:
    """Variants that training never sees; none without ``eval_seeds``."""
    if not config.eval_seeds:
        return []
    if config.suite is None:
        raise ConfigError("eval_seeds needs a suite; a tasks file has no variants to hold out")
    return [*suite_tasks(config.suite, "heldout", config.eval_seeds)]


def as_dataset(tasks: Sequence[Task]) -> Dataset:
    """Columns ``prompt`` (the instruction as a conversation) and ``task_id``."""
    return Dataset.from_dict(
        {
            "prompt": [[{"role": "user", "content": task.instruction}] for task in tasks],
            "task_id": [task.task_id for task in tasks],
        }
    )
