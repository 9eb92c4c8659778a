"""The desktop of every machine that runs the guest program, wherever that machine comes from."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from legato.desktop.actions import Answer, AnyAction, Done, Fail, Key, TakeScreenshot, Type
from legato.desktop.contract import (
    ActResult,
    Desktop,
    DesktopOptions,
    Ready,
    Score,
    Screenshot,
    Task,
)
from legato.desktop.extras import NeedsLockdown
from legato.desktop.guest.box import Box, Provider
from legato.desktop.guest.client import GuestClient
from legato.desktop.guest.machine import GuestMachine
from legato.desktop.keys import parse_chord
from legato.desktop.ready import ReadyRules, Signals, wait_ready
from legato.desktop.x11.display import Display
from legato.errors import EnvFailure, GradeFailure, LegatoError

log = logging.getLogger(__name__)

SESSION_S = 30.0
"""Deadline for the X session to come up, in seconds; it takes half a second."""


_RULES = ReadyRules()
_RULES_AFTER_RETURN = ReadyRules(quiet_s=0.4)
"""GTK shows a button that is pressed by key for 250 ms, and only then does what it is for."""


@dataclass(frozen=True, slots=True)
class _Session:
    """What exists from one reset to the next."""

    guest: GuestClient
    display: Display
    machine: GuestMachine
    signals: Signals


class GuestDesktop(Desktop):
    """A desktop on the boxes of a provider, which it owns.

    Implements ``Desktop``, ``CanPrepare``, ``CanKill`` and ``CanCheckHealth``.

    One thread at a time, but for :meth:`kill`. After a failure the next :meth:`prepare` builds
    the box anew; after :meth:`kill` only :meth:`close` is left.
    """

    def __init__(self, options: DesktopOptions, slot: int, provider: Provider) -> None:
        self._options = options
        self._slot = slot
        self._provider = provider
        self._box: Box | None = None
        self._guest: GuestClient | None = None
        self._session: _Session | None = None
        self._task: Task | None = None
        self._clean = False
        self._settled = False
        """Nothing was done since the last wait ended."""
        self._killed = threading.Event()
        self._guard = threading.Lock()
        """Between the thread that builds the machine and the one that kills it."""

    def prepare(self) -> None:
        """Make the desktop clean: within the box if it is sound, else in a new one."""
        self._clean = False
        self._task = None
        session = self._end_episode()
        try:
            if self._options.fast_reset and self._guest is not None and session:
                try:
                    self._guest.clean()
                except EnvFailure as e:
                    log.warning("desktop %d is built anew: %s", self._slot, e)
                    self._tear_down()
            else:
                self._tear_down()
            self._start_session()
        except BaseException:
            self._tear_down()
            raise
        self._clean = True

    def reset(self, task: Task) -> None:
        if not self._clean:
            self.prepare()
        self._clean = False
        self._task = task
        with self._sound() as session:
            machine = session.machine
            machine.locked = isinstance(task, NeedsLockdown) and task.lockdown
            if machine.locked:
                machine.check_lockdown()
            task.setup(machine)
            if machine.locked:
                machine.check_lockdown()
            machine.begin()

    def wait_after_reset(self) -> Ready:
        with self._sound() as session:
            return self._wait(session)

    def observe(self) -> Screenshot:
        settled = self._settled
        with self._sound() as session:
            return session.display.screenshot(settled=settled)

    def act(self, action: AnyAction) -> ActResult:
        with self._sound() as session:
            self._clean = False
            start = time.monotonic()
            if isinstance(action, Done | Fail | Answer):
                session.machine.ended_by = action
                return ActResult(0.0, Ready("none", 0.0))
            session.display.input.perform(action)
            act_s = time.monotonic() - start
            if isinstance(action, TakeScreenshot):
                return ActResult(act_s, Ready("none", 0.0))
            ready = self._wait(session, _rules_after(action))
            session.machine.check_alive()
            return ActResult(act_s, ready)

    def wait_before_eval(self) -> Ready:
        with self._sound() as session:
            return self._wait(session)

    def evaluate(self) -> Score:
        if self._task is None:
            raise EnvFailure("there is no task to evaluate: reset the desktop to one first")
        with self._sound() as session:
            session.machine.check_alive()
            try:
                return self._task.grade(session.machine)
            except LegatoError:
                raise
            except Exception as e:
                raise GradeFailure(f"the verifier broke: {type(e).__name__}: {e}") from e

    def check_health(self) -> None:
        """Prove that guest program, X server, screen and window manager work."""
        with self._sound() as session:
            session.guest.ping()
            session.display.check((self._options.width, self._options.height))

    def kill(self) -> None:
        self._killed.set()
        with self._guard:
            if self._box is not None:
                self._box.kill()
            if self._guest is not None:
                self._guest.cut()
            if self._session is not None:
                self._session.display.cut()

    def close(self) -> None:
        self.kill()
        self._end_episode()
        self._tear_down()
        self._provider.close()

    def _start_session(self) -> None:
        """Bring the X session up on a clean box, booting one if there is none."""
        if self._box is None or self._guest is None:
            self._box, self._guest = self._boot()
        box, guest = self._box, self._guest
        size = self._options.width, self._options.height
        seen = guest.start_session(*size, timeout=SESSION_S)
        display = Display(*seen, guest.busy_seconds, self._killed)
        machine = GuestMachine(guest, display, box.home, _empty(box.scratch))
        session = _Session(guest, display, machine, guest.signals(display))
        with self._guard:
            self._session = session
        if self._killed.is_set():
            raise EnvFailure("the desktop was killed while it started")
        display.wait_for_panel(SESSION_S)
        wait_ready(session.signals, timeout=SESSION_S, cancelled=self._killed)

    def _boot(self) -> tuple[Box, GuestClient]:
        if self._killed.is_set():
            raise EnvFailure("this desktop was killed; make a new one")
        box = self._provider.create()
        with self._guard:
            self._box = box  # from here on a kill reaches it
        if self._killed.is_set():
            raise EnvFailure("the desktop was killed while it started")
        return box, box.connect()

    def _wait(self, session: _Session, rules: ReadyRules = _RULES) -> Ready:
        if self._options.ready_signal:
            timeout = self._options.ready_timeout
            ready = wait_ready(
                session.signals, timeout=timeout, cancelled=self._killed, rules=rules
            )
            self._settled = True
            return ready
        if self._killed.wait(self._options.fixed_wait):
            raise EnvFailure("the desktop was killed during a wait")
        return Ready("fixed", self._options.fixed_wait)

    @contextlib.contextmanager
    def _sound(self) -> Iterator[_Session]:
        """The session, for one call; a failure in it makes the next ``prepare`` build anew."""
        if self._session is None:
            raise EnvFailure("this desktop is not running: prepare or reset it first")
        self._settled = False
        try:
            yield self._session
        except EnvFailure:
            self._tear_down()
            raise

    def _end_episode(self) -> bool:
        """Let go of the session; whether there was one."""
        with self._guard:
            session, self._session = self._session, None
        if session is None:
            return False
        session.machine.release()
        session.display.close()
        return True

    def _tear_down(self) -> None:
        """Destroy the box, if there is one. Never raises."""
        self._clean = False
        self._end_episode()
        with self._guard:
            box, self._box = self._box, None
            guest, self._guest = self._guest, None
        if guest is not None:
            guest.close()
        if box is None:
            return
        box.kill()
        try:
            box.wait_gone()
        except EnvFailure as e:
            log.warning("desktop %d: %s", self._slot, e)


def _rules_after(action: AnyAction) -> ReadyRules:
    pressed = isinstance(action, Key) and parse_chord(action.key)[-1] in ("Return", "KP_Enter", " ")
    submitted = isinstance(action, Type) and action.text.endswith("\n")
    return _RULES_AFTER_RETURN if pressed or submitted else _RULES


def _empty(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(0o700)
    return directory
