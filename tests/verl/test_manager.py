"""Prompts dealt out to workers that die, and requests that are taken back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf
from ray.exceptions import RayActorError
from verl.utils.tensordict_utils import get_tensordict

from legato_verl.manager import WORKER_RESTARTS, LegatoAgentLoopManager
from legato_verl.policy import abortable

LONG = 120.0


class Recorder:
    """As far as the manager asks it: nothing ever comes to its end."""

    async def unsettled(self, uids: Sequence[str]) -> list[str]:
        return list(uids)

    async def more_groups(self, title: str, groups: int, verdicts: int) -> None:
        pass


class Worker:
    def __init__(self, *_: Any) -> None:
        self.begun: list[str] = []

    async def pid(self) -> int:
        return os.getpid()

    async def generate_sequences(self, prompts: Any) -> None:
        self.begun += [str(uid) for uid in prompts["uid"]]

    async def forget(self, uids: Sequence[str], partition: str) -> None:
        pass

    async def told(self) -> list[str]:
        return self.begun


class Doomed(Worker):
    """Dies as soon as it is given anything."""

    async def generate_sequences(self, prompts: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


class Manager(LegatoAgentLoopManager):
    """Without a model and a config that only a whole run has."""

    def __init__(self, worker: type[Worker], count: int) -> None:
        self.config = OmegaConf.create(
            {
                "actor_rollout_ref": {"rollout": {"n": 2, "val_kwargs": {"n": 1}}},
                "trainer": {"total_training_steps": 3},
            }
        )
        self.llm_client = self.teacher_client = self.reward_loop_worker_handles = None
        self.agent_loop_workers_class = ray.remote(worker)
        self.agent_loop_workers = [actor(Worker) for _ in range(count)]
        self.recorder = actor(Recorder)
        self._prepare()

    def told(self, number: int) -> list[str]:
        found: list[str] = ray.get(self.agent_loop_workers[number].told.remote(), timeout=LONG)
        return found


def actor(kind: type) -> Any:
    return ray.remote(kind).options(num_cpus=0).remote()


def prompts(*uids: str) -> Any:
    return get_tensordict({"uid": list(uids)}, {"global_steps": 1})


def killed(worker: Any) -> None:
    os.kill(ray.get(worker.pid.remote(), timeout=LONG), signal.SIGKILL)
    with pytest.raises(RayActorError):
        ray.get(worker.pid.remote(), timeout=LONG)


def test_a_worker_that_died_unnoticed_does_not_end_the_run() -> None:
    manager = Manager(Worker, 2)
    killed(manager.agent_loop_workers[0])
    manager.generate_sequences(prompts("a", "b", "c", "d"))
    assert manager.told(1) == ["c", "d"]
    manager.replace(0)
    assert manager.told(0) == ["a", "b"]
    manager.generate_sequences(prompts("e", "f"))
    assert manager.told(0) == ["a", "b", "e"]


def test_a_successor_that_dies_is_replaced_in_turn_until_too_many_have() -> None:
    manager = Manager(Doomed, 1)
    killed(manager.agent_loop_workers[0])
    manager.generate_sequences(prompts("a"))
    for _ in range(WORKER_RESTARTS):
        manager.replace(0)
    with pytest.raises(RuntimeError, match="agent-loop workers died"):
        manager.replace(0)


class Server:
    """A model server, as far as verl's client asks it."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.begun = asyncio.Event()

    async def generate(self, request_id: str) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended.put_nowait(request_id)
            raise

    async def asked(self) -> None:
        await self.begun.wait()

    async def next_end(self) -> str:
        return await self.ended.get()


class Client:
    def __init__(self, server: Any) -> None:
        self.server = server

    async def _acquire_server(self, request_id: str) -> tuple[str, Any]:
        return "0", self.server

    async def generate(self, request_id: str) -> None:
        _, server = await self._acquire_server(request_id)
        await server.generate.remote(request_id=request_id)


def test_a_request_that_is_cancelled_ends_in_the_server() -> None:
    server = ray.remote(Server).options(num_cpus=0, max_concurrency=10).remote()
    client = abortable(Client(server))

    async def run() -> str:
        request = asyncio.create_task(client.generate("g0:1"))
        await server.asked.remote()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        ended: str = await server.next_end.remote()
        return ended

    assert asyncio.run(asyncio.wait_for(run(), LONG)) == "g0:1"
