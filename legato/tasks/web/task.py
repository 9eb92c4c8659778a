"""What tasks about a web app in Chromium have in common: set-up, evidence, where to click."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legato.desktop.actions import Click
from legato.desktop.contract import Machine, Window
from legato.errors import EnvFailure
from legato.tasks.place import Place, launch_placed
from legato.tasks.seeded import SeededTask, window_titles
from legato.tasks.web.app_server import AppServer, read_log
from legato.tasks.web.layout import Box
from legato.tasks.web.ops import Operations, State

PORT = 8321
"""The one address that the browser's policy lets a locked desktop open."""
LEAST = (1000, 600)
"""Smallest inside of the window, in pixels; every page fits into it."""
_FOLDER = "app"
_SERVER = Path(__file__).with_name("server.py")


@dataclass(frozen=True, slots=True)
class App:
    """The app of one seed."""

    title: str
    pages: Mapping[str, Callable[[str], str]]
    """Path to what makes the page, given the session's secret."""
    state: State
    """Where it starts."""
    operations: Operations


@dataclass(frozen=True)
class WebTask(SeededTask):
    """A task whose state is that of a web app."""

    @property
    @abstractmethod
    def app(self) -> App: ...

    @property
    @abstractmethod
    def place(self) -> Place: ...

    @abstractmethod
    def wanted(self) -> Mapping[str, Any]:
        """What the judge is told of the changes asked for."""

    def setup(self, machine: Machine) -> None:
        app, secret = self.app, secrets.token_hex(16)
        spec = {
            "pages": {path: page(secret) for path, page in app.pages.items()},
            "state": app.state,
            "operations": app.operations,
            "host": f"127.0.0.1:{PORT}",
            "secret": secret,
        }
        server = AppServer(_SERVER, machine.scratch / _FOLDER, spec)
        machine.own(server)
        machine.expose(PORT, server.socket)
        argv = ["chromium", f"--app=http://127.0.0.1:{PORT}/", "--force-device-scale-factor=1"]
        launch_placed(machine, argv, self.place, LEAST)

    def evidence(self, machine: Machine) -> dict[str, Any]:
        events, state = read_log(machine.scratch / _FOLDER)
        return {
            "app": {
                "title": self.app.title,
                "state": self.app.state,
                "operations": self.app.operations,
            },
            "wanted": self.wanted(),
            "found": {"events": events, "state": state, "titles": window_titles(machine)},
        }

    def window(self, machine: Machine) -> Window:
        """The app's window. Its page fills it: a place of the page is one of the window."""
        window = next((w for w in machine.windows() if self.app.title in w.title), None)
        if window is None:
            raise EnvFailure(f"no window shows {self.app.title!r}")
        return window

    @staticmethod
    def click(window: Window, box: Box) -> Click:
        x, y = box.centre
        return Click(x=window.x + x, y=window.y + y)
