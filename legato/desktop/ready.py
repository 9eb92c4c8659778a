"""When is the screen ready to be looked at?

Waiting is over when the screen stopped changing *and* nothing is under way that would change it
again: no process of the desktop is running or waiting for a processor, and no page request is in
flight. What never stops (a spinner, a canvas, a poll) must not hold the wait up; such a screen is
ready too, and is called ``animated``.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from legato.desktop.contract import Ready


class Signals(Protocol):
    """What a desktop must be able to tell about itself. Called from one thread at a time.

    Any method may raise :class:`~legato.errors.EnvFailure` when the machine is gone.
    """

    def frame(self) -> np.ndarray:
        """The screen as it is now: uint32, shape (height, width), C-contiguous.

        Current as of an X round trip made by this call. It may be a live view of the server's
        memory (cheapest: no copy): the caller copies what it keeps. Called up to 50 times a
        second.
        """
        ...

    def busy_seconds(self) -> float:
        """Processor time plus run-queue wait of the desktop's processes, in seconds.

        Only differences matter. Not counted are the processes that merely serve the measurement
        (the X server, woken by :meth:`frame`, and the guest program): on a loaded machine their
        waiting alone would look like work. The sum may fall when a thread ends; a fall counts as
        activity. Called at most ten times a second.
        """
        ...

    def pending_requests(self) -> int:
        """Page requests and navigations under way in the desktop's browsers; 0 without one."""
        ...

    def windows(self) -> frozenset[int]:
        """X ids of the managed top-level windows (``_NET_CLIENT_LIST``)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyRules:
    """The numbers behind the signal, all in seconds unless said otherwise."""

    quiet_s: float = 0.2
    """No pixel may have changed for this long. Below 0.25 s so that the wait past the last change
    stays under it; below half a caret's blink (0.5 s in Chromium, 0.6 s in GTK)."""


def wait_ready(
    signals: Signals,
    *,
    timeout: float,
    cancelled: threading.Event | None = None,
    rules: ReadyRules = ReadyRules(),  # noqa: B008 - frozen
) -> Ready:
    """Wait until the screen is ready; call it right after the input was sent.

    Returns the reason and the seconds waited; ``timeout`` (seconds) ends it in any case. Setting
    ``cancelled`` from another thread ends it at once with
    :class:`~legato.errors.EnvFailure`.
    """
    raise RuntimeError("not built yet")


def wait_window(
    signals: Signals,
    *,
    known: frozenset[int],
    timeout: float,
    cancelled: threading.Event | None = None,
) -> frozenset[int]:
    """Wait for managed windows that are not in ``known`` (taken before the launch).

    Returns the new windows. Raises :class:`~legato.errors.EnvFailure` after ``timeout`` seconds
    or when ``cancelled`` is set.
    """
    raise RuntimeError("not built yet")
