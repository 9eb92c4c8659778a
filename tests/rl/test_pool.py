"""The pool on fake desktops whose faults really happen: they hang, die and refuse to start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from legato.desktop.actions import Move
from legato.desktop.contract import Desktop, DesktopOptions
from legato.desktop.fake import fake_tasks, make_desktop
from legato.errors import ActionError, EnvFailure
from legato.rl.pool import BOOT_ATTEMPTS, Deadlines, Pool
from legato.tasks import parse_tasks

QUICK = Deadlines(prepare=20.0, reset=1.0, act=1.0, observe=1.0, evaluate=1.0, close=1.0)
"""For desktops that hang: somebody waits these out."""


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 30))


def pool(size: int = 1, *, standby: bool = False, **extra: Any) -> Pool:
    options = DesktopOptions(width=320, height=240, extra=extra)
    hangs = any(fault["kind"] == "hang" for fault in extra.get("faults", ()))
    deadlines = QUICK if hangs else Deadlines()
    return Pool(make_desktop, options, size=size, standby=standby, deadlines=deadlines)


def test_no_more_than_its_size_is_leased_and_the_lowest_priority_goes_first() -> None:
    async def main() -> None:
        order: list[int] = []
        async with pool(2, standby=True) as desktops:
            first, second = await desktops.lease(), await desktops.lease()
            assert desktops.leased == 2

            async def wait_for(priority: int) -> None:
                lease = await desktops.lease(priority)
                order.append(priority)
                assert desktops.leased <= 2
                lease.release()

            waiting = [asyncio.create_task(wait_for(p)) for p in (3, 1, 2)]
            await asyncio.sleep(0.05)
            assert order == []
            first.release()
            await asyncio.gather(*waiting)
            assert order == [1, 2, 3]
            second.release()
            second.release()
            assert desktops.leased == 0

    run(main())


def test_a_cancelled_wait_gives_its_turn_away() -> None:
    async def main() -> None:
        async with pool(1) as desktops:
            lease = await desktops.lease()
            impatient = asyncio.create_task(desktops.lease(0))
            patient = asyncio.create_task(desktops.lease(1))
            await asyncio.sleep(0.02)
            impatient.cancel()
            await asyncio.gather(impatient, return_exceptions=True)
            lease.release()
            (await patient).release()
            assert desktops.leased == 0

    run(main())


def test_a_hang_costs_the_desktop_and_nothing_else() -> None:
    async def main() -> None:
        fault = {"kind": "hang", "call": "observe", "at": 1, "lives": 1}
        async with pool(1, faults=[fault]) as desktops:
            lease = await desktops.lease()
            started = time.monotonic()
            with pytest.raises(EnvFailure, match=r"observe on desktop 0 took longer than 1 s"):
                await lease.call("observe", lambda d: d.observe(), QUICK.observe)
            assert time.monotonic() - started < 20
            broken = lease.desktop
            lease.release()
            again = await desktops.lease()
            assert again.desktop is not broken
            assert desktops.failures == 1
            task = parse_tasks(fake_tasks(1), backend="fake")[0]
            await again.call("reset", lambda d: d.reset(task), 20.0)
            await again.call("observe", lambda d: d.observe(), 20.0)
            again.release()

    run(main())


def test_errors_of_the_agent_leave_the_desktop_good() -> None:
    async def main() -> None:
        async with pool(1) as desktops:
            lease = await desktops.lease()

            def reject(_: object) -> None:
                raise ActionError("no such key")

            with pytest.raises(ActionError):
                await lease.call("act", reject, 1.0)
            desktop = lease.desktop
            lease.release()
            assert (await desktops.lease()).desktop is desktop
            assert desktops.failures == 0

    run(main())


def test_whatever_a_backend_raises_is_its_own_failure() -> None:
    async def main() -> None:
        async with pool(1) as desktops:
            lease = await desktops.lease()

            def explode(_: object) -> None:
                raise KeyError("display")

            with pytest.raises(EnvFailure, match="observe on desktop 0: KeyError: 'display'"):
                await lease.call("observe", explode, 1.0)
            lease.release()
            await desktops.lease()
            assert desktops.failures == 1

    run(main())


def test_a_pool_without_a_working_desktop_says_so() -> None:
    async def main() -> None:
        faults = [{"kind": "crash", "call": "prepare", "p": 1.0}]
        async with pool(2, standby=True, faults=faults) as desktops:
            with pytest.raises(EnvFailure, match="no desktop can be started; the last one said"):
                await desktops.lease()
            assert desktops.leased == 0
            assert desktops.failures == 4 * (BOOT_ATTEMPTS - 1)

    run(main())


def test_a_desktop_that_cannot_be_made_again_ends_the_wait_with_the_reason() -> None:
    made = 0

    def once(options: DesktopOptions, slot: int) -> Desktop:
        nonlocal made
        made += 1
        if made > 1:
            raise ValueError("the provider is out of machines")
        return make_desktop(options, slot)

    async def main() -> None:
        options = DesktopOptions(width=320, height=240)
        async with Pool(once, options, size=1, standby=False, deadlines=QUICK) as desks:
            lease = await desks.lease()
            with pytest.raises(EnvFailure):
                await lease.call("act", _broken, 1.0)
            lease.release()
            with pytest.raises(EnvFailure, match="out of machines"):
                await asyncio.wait_for(desks.lease(), 5)

    run(main())


def _broken(desktop: Desktop) -> None:
    raise EnvFailure("broken")


def test_a_replaced_desktop_must_pass_its_health_check() -> None:
    async def main() -> None:
        faults = [
            {"kind": "crash", "call": "prepare", "at": 1, "lives": 1},
            {"kind": "crash", "call": "check_health", "at": 1, "lives": 2},
        ]
        async with pool(1, faults=faults) as desktops:
            lease = await desktops.lease()
            assert desktops.failures == 2
            await lease.call("observe", lambda d: d.observe(), 20.0)
            lease.release()

    run(main())


def test_a_desktop_that_died_on_standby_is_not_leased() -> None:
    async def main() -> None:
        async with pool(1, standby=True) as desktops:
            async with asyncio.timeout(10):
                while len(desktops._clean) < 2:  # noqa: ASYNC110 - the pool has no signal for it
                    await asyncio.sleep(0.01)
            desktops._clean[0].desktop.kill()  # type: ignore[attr-defined]
            lease = await desktops.lease()
            await lease.call("observe", lambda d: d.observe(), QUICK.observe)
            assert desktops.leased == 1
            lease.release()
        assert desktops.failures == 1

    run(main())


def test_a_lease_given_up_during_its_check_costs_no_desktop() -> None:
    async def main() -> None:
        slow = {"kind": "slow", "call": "check_health", "at": 1, "seconds": 0.2}
        async with pool(1, faults=[slow]) as desktops:
            impatient = asyncio.create_task(desktops.lease())
            seat = desktops._seats[0]
            async with asyncio.timeout(10):
                while seat.worker._running is None or desktops._clean:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            impatient.cancel()
            await asyncio.gather(impatient, return_exceptions=True)
            assert desktops.leased == 0
            lease = await desktops.lease()
            await lease.call("observe", lambda d: d.observe(), 20.0)
            lease.release()
        assert desktops.failures == 0

    run(main())


def test_with_standby_the_next_lease_does_not_wait_for_the_last_reset() -> None:
    async def next_lease(standby: bool) -> float:
        async with pool(1, standby=standby, latency={"prepare": 1.0}) as desktops:
            lease = await desktops.lease()
            async with asyncio.timeout(20):
                while standby and not desktops._clean:  # noqa: ASYNC110 - it has no signal for it
                    await asyncio.sleep(0.01)
            lease.release()
            again = await desktops.lease()
            again.release()
            return again.waited_s

    assert run(next_lease(True)) < 0.8 < run(next_lease(False))


def test_closing_does_not_wait_for_a_desktop_that_hangs() -> None:
    async def main() -> float:
        desktops = pool(1, faults=[{"kind": "hang", "call": "act", "at": 1}])
        async with desktops:
            lease = await desktops.lease()
            hanging = asyncio.create_task(lease.call("act", lambda d: d.act(Move(x=1, y=1)), 60.0))
            await asyncio.sleep(0.05)
            hanging.cancel()
            started = time.monotonic()
        return time.monotonic() - started

    assert run(main()) < 20
