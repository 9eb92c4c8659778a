"""A thread that belongs to one desktop, driven from asyncio.

Desktop calls block, some for seconds, and a broken one may never return. Each desktop therefore
has a daemon thread of its own: a call that outlives its deadline costs that thread, never the
event loop, another desktop, or the exit of the process.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs calls one after another on its own daemon thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._running: asyncio.Future[Any] | None = None

    def start(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Queue ``fn``. The returned future is the call's; cancelling it does not stop the call."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)  # type: ignore[arg-type]
            else:
                future.set_exception(error)
                future.exception()  # an abandoned call must not log "never retrieved"

        def job() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = fn()
            except BaseException as e:
                error = e
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                return  # the loop closed while the call hung: nobody is left to tell

        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            self._thread.start()
        self._running = future
        self._queue.put(job)
        return future

    async def call(self, fn: Callable[[], T], deadline: float) -> T:
        """Run ``fn`` and return its result.

        Raises ``TimeoutError`` after ``deadline`` seconds. The call itself goes on in its thread
        after that, and after a cancellation: see :meth:`idle`.
        """
        future = self.start(fn)
        async with asyncio.timeout(deadline):
            return await asyncio.shield(future)

    async def idle(self, deadline: float) -> bool:
        """Wait until the call in progress is over; ``False`` if it is not after ``deadline``."""
        if self._running is None or self._running.done():
            return True
        done, _ = await asyncio.wait([self._running], timeout=deadline)
        return bool(done)

    def stop(self) -> None:
        """Let the thread end after what is queued. Does not wait."""
        self._queue.put(None)

    def _loop(self) -> None:
        while (job := self._queue.get()) is not None:
            job()
