"""The sandboxes of this process at one provider: made within its limits, kept alive, ended.

Providers limit how fast sandboxes are made and how many there are. Only so many are being created
at a time; a provider that is busy is asked again, ever later, until the caller's deadline. A
sandbox lives on only as long as it is renewed from here, so that none outlives us for long.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from legato.desktop.sandboxes import owner
from legato.desktop.sandboxes.contract import Busy, Sandbox, Sandboxes, SandboxGone
from legato.desktop.sandboxes.options import SandboxOptions
from legato.errors import EnvFailure

T = TypeVar("T")
log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 20.0
RENEWALS = 4
"""Times that a sandbox is renewed in its life; so many may fail but one."""
DELETE_S = 30.0
"""Longest that a deletion is tried for, in seconds."""


class Fleet:
    """Used by all desktops of this process with the same options. Thread-safe."""

    def __init__(self, sandboxes: Sandboxes, options: SandboxOptions) -> None:
        self.sandboxes = sandboxes
        self.options = options
        self._places = threading.Semaphore(options.creating)
        self._alive: set[str] = set()
        self._guard = threading.Lock()
        self._closed = threading.Event()
        self._swept = False
        self._renewing: threading.Thread | None = None

    def create(self, cancelled: threading.Event) -> Sandbox:
        """A new sandbox. Raises ``EnvFailure``, soon if ``cancelled`` is set meanwhile."""
        deadline = time.monotonic() + self.options.create_timeout
        what = f"a {self.sandboxes.kind} sandbox"
        while not self._places.acquire(timeout=0.5):
            _go_on(what, deadline, cancelled)
        try:
            self._sweep_once()
            sandbox = retrying(lambda: self._create(deadline), what, deadline, cancelled)
        finally:
            self._places.release()
        with self._guard:
            self._alive.add(sandbox.id)
            if self._renewing is None:
                self._renewing = threading.Thread(
                    target=self._renew, name="legato sandboxes", daemon=True
                )
                self._renewing.start()
        return sandbox

    def delete(self, id: str) -> None:
        """End a sandbox of ours; one that cannot be ended now ends by itself. Raises
        ``EnvFailure``."""
        with self._guard:
            self._alive.discard(id)
        deadline = time.monotonic() + DELETE_S
        what = f"the end of {self.sandboxes.kind} sandbox {id}"
        retrying(lambda: self.sandboxes.delete(id), what, deadline, threading.Event())

    def close(self) -> None:
        self._closed.set()
        with self._guard:
            left = list(self._alive)
        for id in left:
            try:
                self.delete(id)
            except EnvFailure as e:
                log.warning("%s", e)
        if self._renewing is not None:
            self._renewing.join()
        self.sandboxes.close()

    def _create(self, deadline: float) -> Sandbox:
        left = max(1.0, deadline - time.monotonic())
        return self.sandboxes.create(owner.labels(), life_s=self.options.life_s, timeout=left)

    def _sweep_once(self) -> None:
        """Sandboxes of dead processes of this machine take up the quota."""
        with self._guard:
            if self._swept:
                return
            self._swept = True
        try:
            swept = reap(self.sandboxes)
        except EnvFailure as e:
            log.warning("could not look for sandboxes that were left behind: %s", e)
        else:
            if swept:
                log.warning("ended %d sandboxes of processes that are dead", len(swept))

    def _renew(self) -> None:
        while not self._closed.wait(self.options.life_s / RENEWALS):
            with self._guard:
                alive = list(self._alive)
            for id in alive:
                try:
                    self.sandboxes.keep(id, self.options.life_s)
                except SandboxGone:
                    with self._guard:
                        self._alive.discard(id)
                except EnvFailure as e:
                    log.warning("%s sandbox %s was not renewed: %s", self.sandboxes.kind, id, e)


def reap(sandboxes: Sandboxes, *, everybodys: bool = False) -> list[Sandbox]:
    """End what dead processes of ours left behind; returns it.

    With ``everybodys``, all sandboxes of ours, whoever uses them. Raises ``EnvFailure``.
    """
    found = [s for s in sandboxes.list(owner.OURS) if owner.is_ours(s.labels)]
    doomed = [s for s in found if everybodys or owner.state(s.labels) == "left behind"]
    for sandbox in doomed:
        sandboxes.delete(sandbox.id)
    return doomed


def retrying(call: Callable[[], T], what: str, deadline: float, cancelled: threading.Event) -> T:
    """Repeat a call while the provider is busy; ``deadline`` is on ``time.monotonic()``."""
    pause = FIRST_PAUSE_S
    while True:
        try:
            return call()
        except Busy as e:
            # Apart from one another: those who were refused together must not come together.
            seconds = max(e.retry_after or 0.0, pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_S)
            if time.monotonic() + seconds > deadline:
                raise EnvFailure(f"{what} was not to be had in time: {e}") from e
            log.info("%s: waiting %.1f s: %s", what, seconds, e)
            if cancelled.wait(seconds):
                raise EnvFailure(f"{what} is not wanted any more") from e


def _go_on(what: str, deadline: float, cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise EnvFailure(f"{what} is not wanted any more")
    if time.monotonic() > deadline:
        raise EnvFailure(
            f"{what} was not to be had in time: others are still being created. Raise "
            "desktop.options.creating or create_timeout"
        )


@dataclass
class _Shared:
    fleet: Fleet
    users: int = field(default=0)


_shared: dict[SandboxOptions, _Shared] = {}
_sharing = threading.Lock()


def acquire(options: SandboxOptions, connect: Callable[[], Sandboxes]) -> Fleet:
    """This process's fleet with these options; give it back with :func:`release`."""
    with _sharing:
        if options not in _shared:
            _shared[options] = _Shared(Fleet(connect(), options))
        _shared[options].users += 1
        return _shared[options].fleet


def release(fleet: Fleet) -> None:
    """The last release ends what the fleet still has."""
    with _sharing:
        shared = _shared[fleet.options]
        shared.users -= 1
        if shared.users:
            return
        del _shared[fleet.options]
    fleet.close()
