"""Many calls at once."""

from __future__ import annotations

import asyncio

import pytest

from legato.rl.types import Generation
from tests.rl.policy.asking import SAMPLING, policy, prompt, until
from tests.rl.servers import (
    Hang,
    ModelServer,
)


def test_max_inflight_is_never_exceeded(server: ModelServer) -> None:
    server.behaviour.delay = 0.03

    async def run() -> list[Generation]:
        p = policy(server, max_inflight=4)
        asked = [p.generate(prompt(server, text=str(i)), SAMPLING) for i in range(40)]
        replies = await asyncio.gather(*asked)
        await p.aclose()
        return replies

    replies = asyncio.run(run())
    assert server.most_inflight == 4
    assert max(r.seconds for r in replies) > 5 * 0.03


def test_queueing_does_not_eat_the_step_timeout(server: ModelServer) -> None:
    server.behaviour.delay = 0.5

    async def run() -> list[Generation]:
        p = policy(server, max_inflight=1, step_timeout=3.0)
        replies = await asyncio.gather(*(p.generate(prompt(server), SAMPLING) for _ in range(8)))
        await p.aclose()
        return replies

    assert max(r.seconds for r in asyncio.run(run())) > 3.0


def test_a_queued_call_can_be_cancelled(server: ModelServer) -> None:
    server.always = Hang()

    async def run() -> int:
        p = policy(server, max_inflight=1, step_timeout=30.0)
        first = asyncio.create_task(p.generate(prompt(server), SAMPLING))
        await until(lambda: server.inflight == 1)
        queued = asyncio.create_task(p.generate(prompt(server), SAMPLING))
        await asyncio.sleep(0)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        server.always = None
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await p.generate(prompt(server), SAMPLING)  # the slot is free again
        await p.aclose()
        return len(server.requests)

    assert asyncio.run(asyncio.wait_for(run(), 10)) == 2


def test_cancelling_reaches_the_server(server: ModelServer) -> None:
    server.always = Hang()

    async def run() -> None:
        p = policy(server, step_timeout=30.0)
        calls = [asyncio.create_task(p.generate(prompt(server), SAMPLING)) for _ in range(5)]
        await until(lambda: server.inflight == 5)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: server.inflight == 0)
        await p.aclose()

    asyncio.run(run())
    assert server.gone == 5


def test_hundreds_of_calls_at_once(server: ModelServer) -> None:
    server.behaviour.delay = 0.2
    server.behaviour.reply = "ok"

    async def run() -> list[Generation]:
        p = policy(server, step_timeout=60.0)
        asked = [p.generate(prompt(server, text=str(i)), SAMPLING) for i in range(200)]
        replies = await asyncio.gather(*asked)
        again = await asyncio.gather(
            *(p.generate(prompt(server, text=str(i)), SAMPLING) for i in range(50))
        )
        await p.aclose()
        return [*replies, *again]

    replies = asyncio.run(run())
    assert len(replies) == 250
    assert server.connections < 250  # the second wave reused connections
