"""The operator's way into a machine that runs the guest program."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction
from legato.desktop.contract import Completed, EndedBy, Window
from legato.desktop.guest.client import GuestClient
from legato.desktop.lockdown import check_lockdown
from legato.desktop.ready import wait_ready
from legato.desktop.x11.display import Display
from legato.errors import EnvFailure

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.5
"""How often a launch that shows no window yet is asked whether it still runs."""


class GuestMachine:
    """Implements :class:`~legato.desktop.contract.Machine` for one episode."""

    def __init__(self, guest: GuestClient, display: Display, home: str, scratch: Path) -> None:
        self._guest = guest
        self._display = display
        self._owned: list[Any] = []
        self.screen = display.size
        self.home = home
        self.scratch = scratch
        self.ended_by: EndedBy | None = None
        self.locked = False
        """Programs are launched in the agent's view."""
        self._ports: list[int] = []
        self._frozen = False

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 60.0,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Completed:
        return self._guest.run(argv, timeout=timeout, env=env, cwd=cwd)

    def launch(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        wait_window: bool = True,
        timeout: float = 30.0,
    ) -> int:
        known = self._display.windows.managed()
        pid = self._guest.launch(argv, env, locked=self.locked)
        if wait_window:
            self._await_window(pid, argv[0], known, timeout)
        return pid

    def launched(self, pid: int) -> tuple[int | None, str]:
        return self._guest.launched(pid)

    def _await_window(self, pid: int, name: str, known: frozenset[int], timeout: float) -> None:
        """By events of the window manager's list; a program that fails is noticed at once."""
        windows = self._display.windows
        deadline = time.monotonic() + timeout
        while not self._display.x.wait_until(
            lambda: bool(windows.managed() - known),
            max(0.0, min(LOOK_AGAIN_S, deadline - time.monotonic())),
        ):
            code, said = self._guest.launched(pid)
            if code:
                raise EnvFailure(f"{name} ended with {code} and showed no window: {said[-500:]}")
            if code == 0:
                # It gave its job to an instance that runs already: a browser opens a tab for it.
                signals = self._guest.signals(self._display)
                wait_ready(signals, timeout=max(0.0, deadline - time.monotonic()))
                return
            if time.monotonic() >= deadline:
                raise EnvFailure(
                    f"{name} showed no new window within {timeout:g} s; launch programs that "
                    f"show none with wait_window=False. {said[-500:]}"
                )

    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        self._guest.write_file(path, data, mode)

    def read_file(self, path: str, *, limit: int = 64 * 2**20) -> bytes | None:
        return self._guest.read_file(path, limit)

    def list_files(self, path: str) -> list[str]:
        return self._guest.list_files(path)

    def windows(self) -> list[Window]:
        return self._display.windows.list()

    def activate_window(self, window_id: int) -> None:
        self._display.windows.activate(window_id)

    def close_window(self, window_id: int) -> bool:
        return not self._frozen and self._display.windows.close(window_id)

    def place_window(self, window_id: int, x: int, y: int, width: int, height: int) -> None:
        self._display.windows.place(window_id, x, y, width, height)

    def input(self, action: AnyAction) -> None:
        self._display.input.perform(action)

    def expose(self, port: int, socket_path: Path) -> None:
        self._guest.expose(port, socket_path)
        self._ports.append(port)

    def check_lockdown(self) -> None:
        """Raise :class:`~legato.errors.SandboxError` unless every step of the lockdown holds."""
        check_lockdown(self._guest.probe(self._ports), self._guest.outsiders())

    def begin(self) -> None:
        """Set-up is over: from now on :meth:`check_alive` means something."""
        self._guest.begin()

    def check_alive(self) -> None:
        """Raise ``EnvFailure`` if something ended that the agent did not end: killed for want of
        memory, as a rule. What the screen shows then is no result of the agent's."""
        if lost := self._guest.lost():
            raise EnvFailure(f"{', '.join(lost)} ended, and not by the agent's doing")

    def freeze(self) -> None:
        self._frozen = True
        self._guest.freeze()

    def own(self, resource: Any) -> None:
        self._owned.append(resource)

    def release(self) -> None:
        """Close what is tied to the episode, last first; a failure is logged, not raised."""
        while self._owned:
            resource = self._owned.pop()
            try:
                resource.close()
            except Exception as e:  # the next one must be closed all the same
                log.warning("closing %r failed: %r", resource, e)
