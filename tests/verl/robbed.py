"""A worker whose first training group comes to nothing, as if every attempt had been lost."""

from __future__ import annotations

from typing import Any

from legato.rl.driver import GroupResult
from legato_verl.manager import LegatoAgentLoopManager
from legato_verl.recorder import Mode
from legato_verl.worker import LegatoAgentLoopWorker


class RobbedWorker(LegatoAgentLoopWorker):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._robbed = False

    async def _put(self, result: GroupResult, prompt: dict[str, Any], mode: Mode) -> int:
        if mode == "train" and not self._robbed:
            self._robbed = True
            for kept in (result.rollouts, result.rewards, result.advantages):
                kept.clear()
        return await super()._put(result, prompt, mode)


class RobbedManager(LegatoAgentLoopManager):
    worker_class = RobbedWorker
