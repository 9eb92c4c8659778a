"""When is the screen ready to be looked at?

Waiting is over when the screen stopped changing *and* nothing is under way that would change it
again: no process of the desktop is running or waiting for a processor, and no page request is in
flight. What never stops must not hold the wait up; such a screen is ready too, and is called
``animated``:

===========================  ==========  =====================================================
on the screen                reason      because
===========================  ==========  =====================================================
nothing moves                idle        all quiet for :attr:`ReadyRules.quiet_s`
blinking caret               idle        it rests 0.5 s and more between two blinks
spinner, canvas              animated    its tiles are masked; the rest is still for ``grace_s``
things that move about       animated    something changed in nearly every tenth of a second
a process that never rests   animated    the screen is still for ``patience_s``
an endless request           animated    the screen is still for ``patience_s``
changes without rhythm       timeout     new places all the time, with short rests in between
===========================  ==========  =====================================================

Not seen: a page that changes later by a timer alone, without asking its server anything, and a
program that sleeps before it shows its window. A launch therefore waits for the window first
(:meth:`Machine.launch <legato.desktop.contract.Machine.launch>`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from legato.desktop.contract import Ready, ReadyReason
from legato.errors import EnvFailure

TILE = 16
"""Edge of a tile in pixels: about a caret or a small spinner."""
SLOT_S = 0.1
"""Changes are remembered by the tenth of a second; a burst within one counts once."""
SLOTS = 10
MASK_SLOTS = 3
"""A tile that changed in this many of the last ``SLOTS`` slots keeps changing: it is masked.
A caret makes two; what changes more often than it leaves no gap long enough to be quiet."""
STEADY_SLOTS = 9
"""Changes of unmasked tiles in this many of the last ``SLOTS`` slots are a motion without end,
of something that is never long enough in one place to be masked."""
POLL_S = (0.03, 0.05)
"""Shortest and longest time between two looks; a twentieth of the wait so far in between."""


class Signals(Protocol):
    """What a desktop must be able to tell about itself. Called from one thread at a time.

    Any method may raise :class:`~legato.errors.EnvFailure` when the machine is gone.
    """

    def frame(self) -> np.ndarray:
        """The screen as it is now: uint32, shape (height, width), C-contiguous.

        Current as of an X round trip made by this call. It may be a live view of the server's
        memory (cheapest: no copy): the caller copies what it keeps. Called up to 40 times a
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


class Pace(Protocol):
    """The time by which a desktop is watched."""

    def now(self) -> float:
        """Seconds, never falling, of what the signals say at present."""
        ...

    def wait(self, seconds: float) -> None:
        """Return once the signals are as of ``seconds`` later."""
        ...


@runtime_checkable
class Pushed(Protocol):
    """Signals that come by themselves while they are wanted: for desktops far away, where asking
    takes long."""

    def pushed(self) -> AbstractContextManager[Pace]:
        """Within, the signals are those of the moment that :meth:`Pace.now` gives."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyRules:
    """How long what must be still."""

    quiet_s: float = 0.2
    """Seconds without any pixel change. Under 0.25 s, which is what a wait may last past the last
    change, and under a caret's rest between two blinks (0.5 s in Chromium, 0.6 s in GTK)."""
    idle_s: float = 0.1
    """Seconds at the end of ``quiet_s`` in which processes must be idle and requests absent."""
    busy_share: float = 0.15
    """Processors' worth of work and waiting that still counts as idle. In samples of 0.1 s on a
    loaded machine a page at rest stays under 0.05 nine times in ten; a browser that starts is
    over 1."""
    grace_s: float = 0.7
    """Seconds the unmasked tiles must be still while masked ones go on. With the 0.3 s it takes
    to mask a tile, a spinner ends the wait after 1 s."""
    patience_s: float = 5.0
    """Seconds of a still screen after which busy processes and pending requests are background."""


def wait_ready(
    signals: Signals,
    *,
    timeout: float,
    cancelled: threading.Event | None = None,
    rules: ReadyRules = ReadyRules(),
) -> Ready:
    """Wait until the screen is ready; call it right after the input was sent.

    Returns the reason and the seconds waited; ``timeout`` (seconds) ends it in any case. Setting
    ``cancelled`` from another thread ends it at once with
    :class:`~legato.errors.EnvFailure`.
    """
    start = time.monotonic()
    pushed = signals.pushed() if isinstance(signals, Pushed) else nullcontext(_OwnPace(cancelled))
    with pushed as pace:
        settling = Settling(signals, rules, pace.now)
        while True:
            reason = settling.look()
            elapsed = time.monotonic() - start
            if reason is None and elapsed >= timeout:
                reason = "timeout"
            if reason is not None:
                return Ready(reason, elapsed)
            pace.wait(max(0.0, min(settling.next_look_in(), timeout - elapsed)))


class Settling:
    """One wait, as a state machine: :meth:`look` as often as :meth:`next_look_in` says.

    ``clock`` gives seconds, never falling; nothing here sleeps.
    """

    def __init__(self, signals: Signals, rules: ReadyRules, clock: Callable[[], float]) -> None:
        self._signals, self._rules, self._clock = signals, rules, clock
        self._frames = _Frames(signals.frame())
        now = clock()
        self._motion = _Motion(self._frames.shape, now)
        self._start = self._last_change = self._last_plain = now
        self._sampled_at = -math.inf
        self._busy: tuple[float, float] | None = None
        self._idle_since: float | None = None
        self._clear_since: float | None = None

    def look(self) -> ReadyReason | None:
        """Look once; returns why the wait is over, ``None`` while it is not."""
        changed = self._frames.changed(self._signals.frame())
        now, rules = self._clock(), self._rules
        self._note(changed, now)
        quiet, still = now - self._last_change, now - self._last_plain
        # Twice: a loaded machine draws its animations slowly.
        moving = self._last_change > self._last_plain and quiet < 2 * rules.quiet_s
        nearly_quiet = quiet >= rules.quiet_s - rules.idle_s
        if not nearly_quiet and still < rules.grace_s - rules.idle_s:
            return None
        if now - self._sampled_at < rules.idle_s:
            return None
        self._sample(now, processes=nearly_quiet)
        clear, idle = self._lasts(self._clear_since, now), self._lasts(self._idle_since, now)
        if quiet >= rules.quiet_s and clear and idle:
            return "idle"
        if (moving and clear and still >= rules.grace_s) or still >= rules.patience_s:
            return "animated"
        return None

    def next_look_in(self) -> float:
        """Seconds until the next look is worth making."""
        now, rules = self._clock(), self._rules
        poll = min(max((now - self._start) / 20, POLL_S[0]), POLL_S[1])
        quiet_at = self._last_change + rules.quiet_s
        decisive = (quiet_at - rules.idle_s, max(quiet_at, self._sampled_at + rules.idle_s))
        return min([poll, *(at - now for at in decisive if at > now)])

    def _note(self, changed: np.ndarray | None, now: float) -> None:
        plain, steady_since = self._motion.note(changed, now)
        if changed is not None:
            self._last_change = now
            self._idle_since = self._busy = None
        if plain:
            self._last_plain = now
            self._clear_since = None
        if steady_since is not None:
            self._last_plain = min(self._last_plain, steady_since)

    def _sample(self, now: float, *, processes: bool) -> None:
        # Both ends of ``idle_s`` are sampled, so that neither an answer that just came in (its
        # page is about to be drawn) nor work that just began is taken for rest. On a loaded machine
        # asking takes a while: what was asked counts from the answer on.
        pending = self._signals.pending_requests()
        self._sampled_at = asked = self._clock()
        if pending:
            self._clear_since = None
        elif self._clear_since is None:
            self._clear_since = asked
        if not processes:
            return
        busy = self._signals.busy_seconds()
        self._sampled_at = asked = self._clock()
        if self._busy is None:
            self._idle_since = asked
        else:
            then, before = self._busy
            if abs(busy - before) > self._rules.busy_share * (now - then):
                self._idle_since = asked
        self._busy = (asked, busy)

    def _lasts(self, since: float | None, now: float) -> bool:
        return since is not None and now - since >= self._rules.idle_s


class _Frames:
    """Finds the tiles that differ from the frame before; 0.2 ms at 1280x720 where none does."""

    def __init__(self, first: np.ndarray) -> None:
        height, width = first.shape
        self.shape = (-(-height // TILE), -(-width // TILE))
        """(rows, columns) of tiles; the last ones may be partial."""
        padded = (self.shape[0] * TILE, self.shape[1] * TILE)
        self._seen, self._now = np.empty(padded, np.uint32), np.empty(padded, np.uint32)
        for frame in (self._seen, self._now):
            frame[height:], frame[:, width:] = 0, 0
        self._inside = np.s_[:height, :width]
        self._seen[self._inside] = first
        # Compared two pixels at a time where that is possible.
        self._word: type[np.unsignedinteger] = np.uint32 if width % 2 else np.uint64
        self._seen_words = self._seen[self._inside].view(self._word)
        self._differs = np.empty(self._seen_words.shape, np.bool_)

    def changed(self, frame: np.ndarray) -> np.ndarray | None:
        """Boolean (rows, columns) of the tiles that changed, ``None`` if none did."""
        np.not_equal(frame.view(self._word), self._seen_words, out=self._differs)
        if not self._differs.any():
            return None
        lines = np.flatnonzero(self._differs.any(axis=1))
        top, bottom = int(lines[0]) // TILE, int(lines[-1]) // TILE + 1
        band = np.s_[top * TILE : bottom * TILE]
        # Copied, and compared again: a live view may have changed meanwhile.
        self._now[self._inside][band] = frame[band]
        seen, now = self._seen[band], self._now[band]
        # Two pixels an element, eight elements a word: one word is the row of one tile.
        words = (seen.view(np.uint64) != now.view(np.uint64)).view(np.uint64)
        tiles = np.zeros(self.shape, np.bool_)
        tiles[top:bottom] = (
            np.bitwise_or.reduce(words.reshape(-1, TILE, self.shape[1]), axis=1) != 0
        )
        seen[:] = now
        return tiles


class _Motion:
    """Remembers which tiles changed in which of the last slots."""

    def __init__(self, shape: tuple[int, int], now: float) -> None:
        self._slots = np.zeros((SLOTS, *shape), np.bool_)
        self._began = [now] + [math.inf] * (SLOTS - 1)
        self._plain = [False] * SLOTS
        self._slot = 0

    def note(self, changed: np.ndarray | None, now: float) -> tuple[bool, float | None]:
        """Add what one look saw.

        Returns whether an unmasked tile changed, and, while the motion is steady, the time since
        when it has been (then nothing counts as unmasked: things that move about mask no tile).
        """
        # By the clock of the looks: on a loaded machine a slot lasts longer, but is never empty
        # only because nobody looked.
        if now - self._began[self._slot] >= SLOT_S:
            self._slot = (self._slot + 1) % SLOTS
            self._began[self._slot], self._plain[self._slot] = now, False
            self._slots[self._slot] = False
        plain = False
        if changed is not None:
            self._slots[self._slot] |= changed
            masked = self._slots.sum(axis=0, dtype=np.uint8) >= MASK_SLOTS
            plain = bool((changed & ~masked).any())
            self._plain[self._slot] |= plain
        steady = sum(self._plain) >= STEADY_SLOTS
        return plain and not steady, min(self._began) if steady else None


class _OwnPace:
    """Implements :class:`Pace` for signals that are asked for when they are wanted."""

    def __init__(self, cancelled: threading.Event | None) -> None:
        self._cancelled = cancelled

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        if self._cancelled is None:
            time.sleep(seconds)
        elif self._cancelled.wait(seconds):
            raise EnvFailure("the desktop was stopped during a wait")
