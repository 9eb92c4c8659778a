"""Change settings in a small web app in Chromium: tabs, checkboxes, lists, text fields, Save.

The app's server runs on the host, out of the agent's reach; the state lives there, and only what
was saved counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction, Click, Done, Key, Type
from legato.desktop.contract import Machine
from legato.errors import EnvFailure
from legato.tasks.app_server import AppServer, read_events
from legato.tasks.basics.web_settings_page import (
    Box,
    Control,
    Screen,
    Value,
    draw_screen,
    page_spec,
)
from legato.tasks.draw import Draw
from legato.tasks.seeded import SeededTask

PORT = 8321
_FOLDER = "web_settings"
_SERVER = Path(__file__).with_name("web_settings_server.py")


@dataclass(frozen=True)
class WebSettings(SeededTask):
    """Change settings in a web app in Chromium, on several tabs, and save them."""

    suite = "basics"
    name = "web_settings"
    lockdown = True
    judge = Path(__file__).with_name("web_settings_judge.py")

    @cached_property
    def _plan(self) -> tuple[Screen, list[tuple[Control, Value]]]:
        draw = Draw("web_settings", self.seed)
        screen = draw_screen(draw)
        mixed = draw.shuffled(screen.controls)
        firsts = [next((c for c in mixed if c.tab == tab), None) for tab in range(3)]
        wanted = [c for c in firsts if c is not None][: draw.between(2, 3)]
        rest = [c for c in mixed if c not in wanted]
        wanted += rest[: draw.between(0, 1)]
        return screen, [(control, draw.choice(control.others)) for control in wanted]

    @property
    def screen(self) -> Screen:
        return self._plan[0]

    @property
    def changes(self) -> list[tuple[Control, Value]]:
        """Which controls are to get which value, in the order asked."""
        return self._plan[1]

    @property
    def instruction(self) -> str:
        wanted = "; ".join(
            f'({i}) on the tab "{self.screen.tabs[control.tab]}", {_request(control, value)}'
            for i, (control, value) in enumerate(self.changes, 1)
        )
        return (
            f'The browser shows "{self.screen.title}". Make these changes and save them: {wanted}. '
            "Leave all other settings as they are."
        )

    def setup(self, machine: Machine) -> None:
        spec = page_spec(self.screen, secrets.token_hex(16), PORT)
        server = AppServer(_SERVER, machine.scratch / _FOLDER, spec)
        machine.own(server)
        machine.expose(PORT, server.socket)
        machine.launch(
            [
                "chromium",
                f"--app=http://127.0.0.1:{PORT}/",
                "--start-maximized",
                "--no-first-run",
                "--force-device-scale-factor=1",
            ]
        )

    def evidence(self, machine: Machine) -> dict[str, Any]:
        return {
            "before": {c.id: c.initial for c in self.screen.controls},
            "changes": [
                {"id": c.id, "name": f"{self.screen.tabs[c.tab]}: {c.label}", "value": value}
                for c, value in self.changes
            ],
            "events": read_events(machine.scratch / _FOLDER),
        }

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        """The page fills its window, so a place of the page is one of the screen."""
        window = next((w for w in machine.windows() if self.screen.title in w.title), None)
        if window is None:
            raise EnvFailure(f"no window shows {self.screen.title!r}")

        def click(box: Box) -> Click:
            x, y = box.centre
            return Click(x=window.x + x, y=window.y + y)

        for control, value in self.changes:
            yield click(self.screen.tab_boxes[control.tab])
            yield click(control.box)
            if control.kind == "text":
                yield Key(key="ctrl+a")
                yield Type(text=str(value))
            elif control.kind == "choice":
                now, then = (control.options.index(str(v)) for v in (control.initial, value))
                for _ in range(abs(then - now)):
                    yield Key(key="Down" if then > now else "Up")
                yield Key(key="Return")
        yield click(self.screen.save)
        yield Done()


def _request(control: Control, value: Value) -> str:
    if control.kind == "check":
        return f'switch "{control.label}" {"on" if value else "off"}'
    return f'set "{control.label}" to "{value}"'
