"""The control of the learning proof on verl: verdicts change hands inside each group."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from legato.rl.driver import GroupResult
from legato_verl.manager import LegatoAgentLoopManager
from legato_verl.recorder import Mode
from legato_verl.worker import LegatoAgentLoopWorker


class ShuffledWorker(LegatoAgentLoopWorker):
    """Hands over shuffled advantages; what is recorded and logged are the real verdicts."""

    async def _put(self, result: GroupResult, prompt: dict[str, Any], mode: Mode) -> int:
        if mode == "train":
            others = list(result.advantages.values())
            random.Random(result.group_id).shuffle(others)
            result = replace(result, advantages=dict(zip(result.advantages, others, strict=True)))
        return await super()._put(result, prompt, mode)


class ShuffledManager(LegatoAgentLoopManager):
    worker_class = ShuffledWorker
