"""verl's dataset of tasks, read straight from a suite or a tasks file: nothing to prepare."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset

from legato_verl.tasks import name_tasks


class TaskDataset(Dataset[dict[str, Any]]):
    """One row per task; ``data.custom_cls`` names it, and :mod:`legato_verl.tasks` its files.

    A row holds ``raw_prompt`` (the instruction as a conversation), ``task`` (its text form),
    ``data_source`` (the task's domain), ``index``, and the fields that verl looks for.
    """

    def __init__(
        self,
        data_files: str | Sequence[str],
        tokenizer: Any,
        config: Any,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        """Raises :class:`~legato.errors.ConfigError` if a file names no tasks."""
        named = name_tasks(
            data_files,
            backend=config.custom_cls.get("backend") or "local",
            osworld_path=config.custom_cls.get("osworld_path"),
            environment=config.custom_cls.get("environment"),
            infeasible=config.custom_cls.get("infeasible", True),
        )
        if 0 < max_samples < len(named):
            if config.get("shuffle"):
                random.Random(config.get("seed") or 0).shuffle(named)
            named = named[:max_samples]
        self._named = named

    def __len__(self) -> int:
        return len(self._named)

    def __getitem__(self, number: int) -> dict[str, Any]:
        task, text = self._named[number]
        return {
            "raw_prompt": [{"role": "user", "content": task.instruction}],
            "task": text,
            "data_source": task.domain,
            "index": number,
            "reward_model": {"style": "verdict", "ground_truth": task.task_id},
            "extra_info": {"index": number, "task_id": task.task_id},
        }
