"""Change settings in a small web app in Chromium: tabs, boxes, lists, text fields, Save.

Partial credit is for settings that were typed as asked and saved. Boxes and lists, which a few
blind clicks can change, count only beside one of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction, Done, Key, Type
from legato.desktop.contract import Machine
from legato.tasks.desktop_basics.settings_tabs_page import (
    Control,
    Screen,
    Value,
    draw_screen,
    operations,
    render,
)
from legato.tasks.draw import Draw
from legato.tasks.place import Place, draw_place
from legato.tasks.web.task import App, WebTask


@dataclass(frozen=True)
class SettingsTabs(WebTask):
    """Change settings in a web app in Chromium, on several tabs, and save them."""

    suite = "desktop_basics"
    name = "settings_tabs"
    judge = Path(__file__).with_name("settings_tabs_judge.py")

    @cached_property
    def _plan(self) -> tuple[Screen, list[tuple[Control, Value]], Place]:
        draw = Draw(self.name, self.seed)
        screen = draw_screen(draw)
        mixed = draw.shuffled(screen.controls)
        typed = next(c for c in mixed if c.kind == "text")
        elsewhere = [c for c in mixed if c.tab != typed.tab]
        wanted = [typed, elsewhere[0]]
        rest = [c for c in mixed if c not in wanted]
        wanted = draw.shuffled(wanted + rest[: draw.between(0, 2)])
        changes = [(control, draw.choice(control.others)) for control in wanted]
        return screen, changes, draw_place(draw)

    @property
    def place(self) -> Place:
        return self._plan[2]

    @cached_property
    def app(self) -> App:
        settings = {c.id: c.initial for c in self.screen.controls}
        return App(
            self.screen.title,
            {"/": partial(render, self.screen)},
            {"settings": settings, "next": 1},
            operations(self.screen),
        )

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

    def wanted(self) -> Mapping[str, Any]:
        return {
            "changes": [
                {
                    "id": c.id,
                    "name": f"{self.screen.tabs[c.tab]}: {c.label}",
                    "value": value,
                    "cheap": c.kind != "text",
                }
                for c, value in self.changes
            ]
        }

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self._make(machine, self.changes)

    def cheap_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self._make(machine, [c for c in self.changes if c[0].kind != "text"])

    def _make(
        self, machine: Machine, changes: Sequence[tuple[Control, Value]]
    ) -> Iterator[AnyAction]:
        window = self.window(machine)
        for control, value in changes:
            yield self.click(window, self.screen.tab_boxes[control.tab])
            yield self.click(window, control.box)
            if control.kind == "text":
                yield Key(key="ctrl+a")
                yield Type(text=str(value))
            elif control.kind == "choice":
                yield Type(text=f"{value}\n")
        yield self.click(window, self.screen.save)
        yield Done()


def _request(control: Control, value: Value) -> str:
    if control.kind == "check":
        return f'switch "{control.label}" {"on" if value else "off"}'
    return f'set "{control.label}" to "{value}"'
