"""The desktop pool: leases clean desktops, bounds every call, and never trusts a failed one.

A *seat* is one desktop with its worker thread. ``size`` seats may be leased at a time; with
standby there is one more seat per lease, which is made clean while the policy works, so that
the next lease finds a clean desktop waiting::

    new -> preparing -> clean -> leased -> preparing -> ...
                 \\______________ failed ______________/   killed, closed, built anew, checked
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from legato.desktop.contract import Desktop, DesktopFactory, DesktopOptions
from legato.desktop.extras import (
    CanCheckHealth,
    CanKill,
    CanPrepare,
    Deadlines,
    DeclinesStandby,
    KnowsDeadlines,
)
from legato.errors import ActionError, EnvFailure, GradeFailure
from legato.rl.worker import Worker

T = TypeVar("T")
log = logging.getLogger(__name__)

BOOT_ATTEMPTS = 3
"""Failed starts in a row after which a seat is given up."""

STARTS_AT_ONCE = max(4, os.cpu_count() or 1)
"""Desktops made clean at the same time; more only makes each of them slower."""


class Lease:
    """The exclusive right to one clean desktop, until :meth:`release`."""

    def __init__(self, pool: Pool, seat: _Seat, waited_s: float) -> None:
        self._pool = pool
        self._seat = seat
        self._released = False
        self._failed = False
        self.waited_s = waited_s
        """Seconds for which this lease had a place but no clean desktop yet."""

    @property
    def slot(self) -> int:
        return self._seat.slot

    @property
    def desktop(self) -> Desktop:
        return self._seat.desktop

    async def call(self, what: str, fn: Callable[[Desktop], T], deadline: float) -> T:
        """Run ``fn(desktop)`` on the desktop's thread.

        ``what`` names the call in errors. Whatever the backend raises becomes an ``EnvFailure``,
        but for ``ActionError`` and ``GradeFailure``, which leave the desktop good. A call past
        its deadline kills the desktop.
        """
        desktop = self._seat.desktop
        try:
            return await self._seat.worker.call(lambda: fn(desktop), deadline)
        except (ActionError, GradeFailure):
            raise
        except TimeoutError:
            self._failed = True
            self._seat.kill()
            raise EnvFailure(
                f"{what} on desktop {self.slot} took longer than {deadline:g} s; it was killed"
            ) from None
        except EnvFailure:
            self._failed = True
            raise
        except Exception as e:
            self._failed = True
            raise EnvFailure(f"{what} on desktop {self.slot}: {type(e).__name__}: {e}") from e

    def release(self) -> None:
        """Give the desktop back; it is made clean, or replaced, in the background. Idempotent."""
        if not self._released:
            self._released = True
            self._pool._give_back(self._seat, failed=self._failed)


class Pool:
    """``async with Pool(factory, options, size=16) as pool: lease = await pool.lease()``."""

    def __init__(
        self,
        factory: DesktopFactory,
        options: DesktopOptions,
        *,
        size: int,
        standby: bool = True,
        deadlines: Deadlines | None = None,
    ) -> None:
        self.size = size
        self.deadlines = deadlines or Deadlines()
        self._deadlines_given = deadlines is not None
        self.options = options
        self._factory = factory
        self._standby = standby and options.fast_reset
        self._seats: list[_Seat] = []
        self._clean: deque[_Seat] = deque()
        self._wanting: deque[asyncio.Future[_Seat]] = deque()
        self._places = size
        self._order = itertools.count()
        self._waiting: list[tuple[Any, int, asyncio.Future[None]]] = []
        self._starts = asyncio.Semaphore(STARTS_AT_ONCE)
        self._background: set[asyncio.Task[None]] = set()
        self._closing = False
        self._last_error: str | None = None
        self.lease_waits: list[float] = []
        """Seconds each lease waited for a clean desktop, in order (see ``Lease.waited_s``)."""
        self.failures = 0
        """Desktops that had to be replaced."""

    async def __aenter__(self) -> Pool:
        try:
            for slot in range(self.size):
                self._open_seat(slot)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def leased(self) -> int:
        return self.size - self._places

    async def lease(self, priority: Any = 0) -> Lease:
        """Wait for a place, lowest ``priority`` first, then for a clean desktop.

        Raises ``EnvFailure`` when no desktop can be started any more.
        """
        await self._take_place(priority)
        started = time.monotonic()
        try:
            seat = await self._sound_seat()
        except BaseException:
            self._free_place()
            raise
        waited = time.monotonic() - started
        self.lease_waits.append(waited)
        return Lease(self, seat, waited)

    async def aclose(self) -> None:
        """Close every desktop, each within its deadline. Idempotent."""
        self._closing = True
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await asyncio.gather(*(seat.close(self.deadlines.close) for seat in self._seats))
        self._seats.clear()
        self._clean.clear()
        self._disappoint("the desktop pool is closed")

    def kill_all(self, deadline: float = 5.0) -> None:
        """Destroy every desktop now, whatever runs on it. Blocks up to ``deadline`` seconds."""
        until = time.monotonic() + deadline
        for killing in [seat.kill() for seat in list(self._seats)]:
            if killing is not None:
                killing.join(max(0.0, until - time.monotonic()))

    # --- places: how many may be leased, and who is next -----------------------------------------

    async def _take_place(self, priority: Any) -> None:
        if self._places > 0 and not self._waiting:
            self._places -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._order), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free_place()
            raise

    def _free_place(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._places += 1

    # --- seats ---------------------------------------------------------------------------------

    def _open_seat(self, slot: int) -> None:
        seat = _Seat(slot, self._factory(self.options, slot))
        self._seats.append(seat)
        if len(self._seats) == 1:
            self._ask_backend(seat.desktop)
        self._spawn(self._make_clean(seat, failed=False))

    def _ask_backend(self, desktop: Desktop) -> None:
        """What is known only once a desktop exists: its deadlines, and whether it keeps spares."""
        if isinstance(desktop, KnowsDeadlines) and not self._deadlines_given:
            self.deadlines = desktop.deadlines
        spares = isinstance(desktop, CanPrepare) and not isinstance(desktop, DeclinesStandby)
        if self._standby and spares:
            for spare in range(self.size, 2 * self.size):
                self._open_seat(spare)

    def _give_back(self, seat: _Seat, *, failed: bool) -> None:
        self._free_place()
        if not self._closing:
            self._spawn(self._make_clean(seat, failed=failed))

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _make_clean(self, seat: _Seat, *, failed: bool) -> None:
        if not await seat.worker.idle(self.deadlines.act):
            failed = True
        for attempt in range(BOOT_ATTEMPTS):
            try:
                if failed:
                    self.failures += 1
                    await seat.replace(self._factory, self.options, self.deadlines.close)
                async with self._starts:
                    await self._prepare(seat, check=failed)
            except EnvFailure as e:
                failed = True
                self._last_error = str(e)
                log.warning("desktop %d, start %d: %s", seat.slot, attempt + 1, e)
                continue
            self._offer(seat)
            return
        self._seats.remove(seat)
        await seat.close(self.deadlines.close)
        if not self._seats:
            self._disappoint(self._none_left())

    async def _prepare(self, seat: _Seat, *, check: bool) -> None:
        desktop = seat.desktop
        if isinstance(desktop, CanPrepare) and self.options.fast_reset:
            await self._try(seat, desktop.prepare, self.deadlines.prepare)
        if check:
            await self._check(seat)

    async def _check(self, seat: _Seat) -> None:
        if isinstance(seat.desktop, CanCheckHealth):
            await self._try(seat, seat.desktop.check_health, self.deadlines.observe)

    async def _try(self, seat: _Seat, call: Callable[[], None], deadline: float) -> None:
        """Whatever goes wrong in ``call`` is the desktop's failure."""
        try:
            await seat.worker.call(call, deadline)
        except TimeoutError:
            raise EnvFailure(f"desktop {seat.slot} was not ready within {deadline:g} s") from None
        except EnvFailure:
            raise
        except Exception as e:
            raise EnvFailure(f"desktop {seat.slot}: {type(e).__name__}: {e}") from e

    # --- handing over ----------------------------------------------------------------------------

    async def _sound_seat(self) -> _Seat:
        """A clean seat whose desktop works: while it stood by it may have died."""
        while True:
            seat = await self._clean_seat()
            try:
                await self._check(seat)
            except EnvFailure as e:
                self._last_error = str(e)
                log.warning("desktop %d died while it stood by: %s", seat.slot, e)
                self._spawn(self._make_clean(seat, failed=True))
            except BaseException:
                self._spawn(self._make_clean(seat, failed=False))
                raise
            else:
                return seat

    async def _clean_seat(self) -> _Seat:
        if self._clean:
            return self._clean.popleft()
        if self._closing:
            raise EnvFailure("the desktop pool is closed")
        if not self._seats:
            raise EnvFailure(self._none_left(), transient=False)
        handed: asyncio.Future[_Seat] = asyncio.get_running_loop().create_future()
        self._wanting.append(handed)
        try:
            return await handed
        except asyncio.CancelledError:
            if handed.done() and not handed.cancelled() and handed.exception() is None:
                self._offer(handed.result())
            raise

    def _offer(self, seat: _Seat) -> None:
        while self._wanting:
            handed = self._wanting.popleft()
            if not handed.done():
                handed.set_result(seat)
                return
        self._clean.append(seat)

    def _disappoint(self, why: str) -> None:
        while self._wanting:
            handed = self._wanting.popleft()
            if not handed.done():
                handed.set_exception(EnvFailure(why, transient=False))

    def _none_left(self) -> str:
        return f"no desktop can be started; the last one said: {self._last_error}"


class _Seat:
    """One desktop and the thread that drives it."""

    def __init__(self, slot: int, desktop: Desktop) -> None:
        self.slot = slot
        self.desktop = desktop
        self.worker = Worker(f"desktop-{slot}")

    def kill(self) -> threading.Thread | None:
        """Stop the machine on a thread of its own: killing may itself hang."""
        if not isinstance(self.desktop, CanKill):
            return None
        killing = threading.Thread(
            target=_quietly, args=(self.desktop.kill,), name=f"kill-{self.slot}", daemon=True
        )
        killing.start()
        return killing

    async def close(self, deadline: float) -> None:
        """Close the desktop; one that does not let itself be closed in time is killed."""
        if not await self.worker.idle(deadline / 3):
            self.kill()
            await self.worker.idle(deadline / 3)
        try:
            await self.worker.call(self.desktop.close, deadline)
        except Exception as e:
            log.warning("closing desktop %d: %s: %s", self.slot, type(e).__name__, e)
            self.kill()
        self.worker.stop()

    async def replace(
        self, factory: DesktopFactory, options: DesktopOptions, deadline: float
    ) -> None:
        """Destroy the desktop and build another in its place, on a fresh thread."""
        self.kill()
        await self.close(deadline)
        self.worker = Worker(f"desktop-{self.slot}")
        try:
            self.desktop = factory(options, self.slot)
        except Exception as e:
            raise EnvFailure(f"desktop {self.slot}: {type(e).__name__}: {e}") from e


def _quietly(fn: Callable[[], None]) -> None:
    try:
        fn()
    except Exception as e:
        log.warning("killing a desktop: %s: %s", type(e).__name__, e)
