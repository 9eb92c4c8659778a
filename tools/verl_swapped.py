"""What a trainer would do if it saw other screenshots than the policy did.

In the last step of a run two groups exchange their screenshots, in what is trained on alone. The
trainer's logprobs must then be far from the server's.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from legato.rl.driver import GroupResult
from legato_verl.manager import LegatoAgentLoopManager
from legato_verl.recorder import Mode
from legato_verl.worker import LegatoAgentLoopWorker

OTHER_S = 300.0
"""How long a group waits for another to exchange with."""

Outputs = list[list[AgentLoopOutput]]


class SwappedWorker(LegatoAgentLoopWorker):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting: tuple[Outputs, asyncio.Event] | None = None

    async def _outputs(self, result: GroupResult, prompt: dict[str, Any], mode: Mode) -> Outputs:
        outputs = await super()._outputs(result, prompt, mode)
        if mode == "train" and prompt["global_steps"] == self.config.trainer.total_training_steps:
            await self._swap(outputs)
        return outputs

    async def _swap(self, mine: Outputs) -> None:
        if self._waiting is None:
            swapped = asyncio.Event()
            self._waiting = mine, swapped
            async with asyncio.timeout(OTHER_S):
                await swapped.wait()
            return
        (other, swapped), self._waiting = self._waiting, None
        for a, b in zip(chain(*mine), chain(*other), strict=False):
            a.multi_modal_data, b.multi_modal_data = b.multi_modal_data, a.multi_modal_data
        swapped.set()


class SwappedManager(LegatoAgentLoopManager):
    worker_class = SwappedWorker
