"""Ctrl-C: once to stop in good order, twice to be gone at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

_last_acts: list[Callable[[], object]] = []


@contextlib.contextmanager
def before_hard_exit(act: Callable[[], object]) -> Iterator[None]:
    """Have ``act`` run when a second Ctrl-C ends the process without leaving this block."""
    _last_acts.append(act)
    try:
        yield
    finally:
        _last_acts.remove(act)


def _exit_hard() -> None:
    try:
        for act in reversed(_last_acts):
            with contextlib.suppress(Exception):  # whatever it is, the others have their turn
                act()
    finally:
        os._exit(130)


async def interruptible(batch: Coroutine[Any, Any, T]) -> T:
    """Await ``batch``; the first SIGINT or SIGTERM cancels it, the second ends the process."""
    work = asyncio.ensure_future(batch)
    if threading.current_thread() is not threading.main_thread():
        return await work
    loop = asyncio.get_running_loop()
    interrupted = False

    def on_signal() -> None:
        nonlocal interrupted
        if interrupted:
            _exit_hard()
        interrupted = True
        work.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        return await work
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
