"""verl's agent-loop manager: hands prompts to our workers, and replaces one that died."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ
from verl.utils.tensordict_utils import get_non_tensor_data

from legato_verl import advantage as _advantage  # noqa: F401 - registers the estimator
from legato_verl import trainer
from legato_verl.checks import check
from legato_verl.pool import pool_actor
from legato_verl.recorder import recorder_actor
from legato_verl.settings import read_settings
from legato_verl.worker import LegatoAgentLoopWorker

log = logging.getLogger(__name__)

WORKER_RESTARTS = 3
"""How many workers may die in one run."""
CALL_S = 300.0
"""Deadline of a call to a worker that is alive."""


@dataclass(slots=True)
class _Sent:
    """Prompts that a worker was given."""

    worker: int
    prompts: Any
    partition: str


class LegatoAgentLoopManager(AgentLoopManagerTQ):
    """Made by verl in the trainer's process once the model is loaded; see ``create``."""

    worker_class: type[LegatoAgentLoopWorker] = LegatoAgentLoopWorker
    """What a subclass may replace to change what a worker does with its groups."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        check(config)
        super().__init__(config, *args, **kwargs)
        self.agent_loop_workers_class = ray.remote(self.worker_class)
        self.settings = read_settings(config)
        self.recorder = recorder_actor(self.settings)
        self.pool = pool_actor()
        self._prepare()
        trainer.extend()

    def _prepare(self) -> None:
        self._sent: list[_Sent] = []
        self._deaths = 0
        self._dealing = threading.Lock()  # the trainer's thread deals, the watch replaces

    async def _init_agent_loop_workers(self) -> None:
        async with asyncio.timeout(CALL_S):
            await self.recorder.open.remote()
            await self.pool.open.remote(self.settings.desktop, self.settings.rollout.desktops)
        await super()._init_agent_loop_workers()

    def generate_sequences(self, prompts: Any) -> None:
        """Deal the prompts out; returns when the workers have begun.

        Those of a worker that dies meanwhile are left to :meth:`replace`.
        """
        partition = "val" if get_non_tensor_data(prompts, "validate", False) else "train"
        with self._dealing:
            self._sent = [sent for sent in self._sent if self._open(sent)]
            self._announce(prompts, partition)
            chunks = prompts.chunk(len(self.agent_loop_workers))
            fresh = [_Sent(number, chunk, partition) for number, chunk in enumerate(chunks)]
            self._sent += fresh
            begun = [self._send(sent) for sent in fresh]
        for call in begun:
            with contextlib.suppress(RayActorError):
                ray.get(call, timeout=CALL_S)

    def replace(self, number: int) -> None:
        """Start another worker in the place of one that died, and give it the unfinished prompts.

        If that one dies, too, it is to be replaced in turn. Raises ``RuntimeError`` once too many
        have died.
        """
        self._deaths += 1
        if self._deaths > WORKER_RESTARTS:
            raise RuntimeError(f"{self._deaths} agent-loop workers died, the last was {number}")
        with self._dealing, contextlib.suppress(RayActorError):
            self._replace(number)

    def _replace(self, number: int) -> None:
        worker = self.agent_loop_workers_class.options(num_cpus=0).remote(
            self.config, self.llm_client, self.teacher_client, self.reward_loop_worker_handles
        )
        self.agent_loop_workers[number] = worker
        again = [sent for sent in self._sent if sent.worker == number and self._open(sent)]
        log.warning("agent-loop worker %d died; another one takes over", number)
        for sent in again:
            uids = self._open(sent)
            keep = [i for i, uid in enumerate(sent.prompts["uid"]) if str(uid) in uids]
            sent.prompts = sent.prompts[keep]
            ray.get(worker.forget.remote(uids, sent.partition), timeout=CALL_S)
            ray.get(self._send(sent), timeout=CALL_S)

    def _announce(self, prompts: Any, partition: str) -> None:
        """Tell who watches the run what is to come."""
        rollout = self.config.actor_rollout_ref.rollout
        size = int(rollout.val_kwargs.n if partition == "val" else rollout.n)
        title = f"step {get_non_tensor_data(prompts, 'global_steps', 0)}"
        if total := self.config.trainer.total_training_steps:
            title += f"/{total}"
        if partition == "val":
            title = f"validation at {title}"
        self.recorder.more_groups.remote(title, len(prompts), len(prompts) * size)

    def _send(self, sent: _Sent) -> Any:
        return self.agent_loop_workers[sent.worker].generate_sequences.remote(sent.prompts)

    def _open(self, sent: _Sent) -> list[str]:
        """Its prompts that have not come to an end."""
        uids = [str(uid) for uid in sent.prompts["uid"]]
        unsettled: list[str] = ray.get(self.recorder.unsettled.remote(uids), timeout=CALL_S)
        return unsettled
