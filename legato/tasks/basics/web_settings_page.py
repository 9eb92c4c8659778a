"""What the settings app of ``web_settings`` shows: its controls, their places, and the page.

Every control stands at a place that the seed decides, in CSS pixels of the page, so that a page
of one seed always looks the same and a reference episode knows where to click.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from legato.tasks.draw import Draw

Kind = Literal["check", "choice", "text"]
Value = bool | str
VALUES_MARK = "__VALUES__"
"""Where the server puts the current values, as JSON, whenever it serves the page."""

_ON_OFF: Sequence[Value] = (True, False)
_TABS: Mapping[str, Mapping[str, Sequence[Value]]] = {
    "General": {
        "Display name": ("Harbour desk", "Front office", "Team Juniper", "Night shift"),
        "Language": ("Deutsch", "English", "Français", "Polski", "Svenska"),
        "First day of the week": ("Monday", "Saturday", "Sunday"),
        "Open at start-up": _ON_OFF,
        "Ask before closing": _ON_OFF,
    },
    "Notices": {
        "Sound": ("Bell", "Chime", "Click", "None"),
        "Quiet hours start": ("20:00", "21:30", "22:15", "23:45"),
        "Show on lock screen": _ON_OFF,
        "Daily summary": _ON_OFF,
        "Mail to": ("ann@example.org", "desk@example.org", "ops@example.org"),
    },
    "Privacy": {
        "Share usage data": _ON_OFF,
        "Remember searches": _ON_OFF,
        "Keep history for": ("1 day", "1 week", "1 month", "1 year"),
        "Who can find me": ("Everyone", "Friends", "Nobody"),
        "Alias": ("blue-otter", "grey-finch", "red-maple", "tall-pine"),
    },
    "Display": {
        "Theme": ("Dark", "Light", "Sepia"),
        "Text size": ("Small", "Medium", "Large", "Huge"),
        "Show grid": _ON_OFF,
        "Animate": _ON_OFF,
        "Window title": ("Overview", "Control room", "Workbench"),
    },
    "Backup": {
        "Back up by itself": _ON_OFF,
        "Include pictures": _ON_OFF,
        "How often": ("Daily", "Weekly", "Monthly"),
        "Copies to keep": ("2", "3", "5", "10"),
        "Folder": ("vault-a", "vault-b", "cold-store"),
    },
    "Printing": {
        "Paper": ("A3", "A4", "A5", "Letter"),
        "Both sides": _ON_OFF,
        "Colour": _ON_OFF,
        "Printer": ("Attic", "Basement", "Hallway"),
        "Footer": ("draft", "internal", "for the board"),
    },
}
_TEXTS = frozenset(
    {
        "Display name",
        "Quiet hours start",
        "Mail to",
        "Alias",
        "Window title",
        "Folder",
        "Footer",
    }
)
_NAMES = ("Fernlight", "Quayside", "Larkspur", "Tidemark", "Oakline", "Brightwater")
_COLOURS = ("#2457a6", "#1d7a5b", "#8a3b6c", "#9a5a14", "#4b4f8f")


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of the page, in CSS pixels from its top-left corner."""

    x: int
    y: int
    width: int
    height: int

    @property
    def centre(self) -> tuple[int, int]:
        return self.x + self.width // 2, self.y + self.height // 2

    @property
    def style(self) -> str:
        return f"left:{self.x}px;top:{self.y}px;width:{self.width}px;height:{self.height}px"


@dataclass(frozen=True, slots=True)
class Control:
    id: str
    tab: int
    label: str
    kind: Kind
    options: tuple[str, ...]
    """Of a ``choice``, in the order shown."""
    initial: Value
    others: tuple[Value, ...]
    """Values other than the initial one that a task may ask for."""
    label_box: Box
    box: Box


@dataclass(frozen=True, slots=True)
class Screen:
    """The app of one seed."""

    title: str
    colour: str
    tabs: tuple[str, ...]
    tab_boxes: tuple[Box, ...]
    controls: tuple[Control, ...]
    save: Box
    status: Box


def draw_screen(draw: Draw) -> Screen:
    tabs = draw.sample(sorted(_TABS), 3)
    left, top = draw.choice((24, 48, 90)), draw.choice((16, 28))
    beside = draw.choice((True, False))
    if beside:
        tab_boxes = [Box(left, top + 76 + 46 * i, 130, 38) for i in range(3)]
        origin = (left + 170, top + 76)
    else:
        tab_boxes = [Box(left + 140 * i, top + 64, 130, 38) for i in range(3)]
        origin = (left, top + 128)
    row, indent = draw.choice((50, 58, 64)), draw.choice((220, 260))
    controls: list[Control] = []
    for tab, name in enumerate(tabs):
        for line, label in enumerate(draw.sample(sorted(_TABS[name]), draw.between(3, 4))):
            values = _TABS[name][label]
            initial = draw.choice(values)
            kind = _kind(label, values)
            y = origin[1] + row * line
            size = (20, 20) if kind == "check" else (240, 32)
            controls.append(
                Control(
                    id=f"s{len(controls)}",
                    tab=tab,
                    label=label,
                    kind=kind,
                    options=tuple(map(str, values)) if kind == "choice" else (),
                    initial=initial,
                    others=tuple(value for value in values if value != initial),
                    label_box=Box(origin[0], y, indent - 10, 32),
                    box=Box(origin[0] + indent, y + (32 - size[1]) // 2, *size),
                )
            )
    bottom = origin[1] + 4 * row + 12
    save_x = origin[0] + draw.choice((0, indent))
    return Screen(
        title=f"{draw.choice(_NAMES)} settings",
        colour=draw.choice(_COLOURS),
        tabs=tuple(tabs),
        tab_boxes=tuple(tab_boxes),
        controls=tuple(controls),
        save=Box(save_x, bottom, 120, 38),
        status=Box(save_x + 140, bottom, 260, 38),
    )


def _kind(label: str, values: Sequence[Value]) -> Kind:
    if values is _ON_OFF:
        return "check"
    return "text" if label in _TEXTS else "choice"


def render(screen: Screen, secret: str) -> str:
    """The page. The secret is in it, unseen; ``VALUES_MARK`` stands for the current values."""
    parts = [f'<h1 style="left:{screen.tab_boxes[0].x}px;top:14px">{_text(screen.title)}</h1>']
    for i, (name, box) in enumerate(zip(screen.tabs, screen.tab_boxes, strict=True)):
        parts.append(
            f'<button class="tab" id="t{i}" style="{box.style}" onclick="show({i})">'
            f"{_text(name)}</button>"
        )
    for i, _ in enumerate(screen.tabs):
        rows = "".join(_row(control) for control in screen.controls if control.tab == i)
        parts.append(f'<div class="pane" id="p{i}">{rows}</div>')
    parts.append(f'<button id="save" style="{screen.save.style}" onclick="save()">Save</button>')
    parts.append(f'<div id="status" style="{screen.status.style}"></div>')
    return _PAGE.format(
        title=_text(screen.title),
        colour=screen.colour,
        body="\n".join(parts),
        secret=json.dumps(secret),
        values=VALUES_MARK,
    )


def _row(control: Control) -> str:
    label = f'<label for="{control.id}" style="{control.label_box.style}">{_text(control.label)}'
    shared = f'id="{control.id}" style="{control.box.style}" autocomplete="off"'
    if control.kind == "check":
        field = f'<input type="checkbox" {shared}>'
    elif control.kind == "text":
        field = f'<input type="text" maxlength="200" spellcheck="false" {shared}>'
    else:
        options = "".join(f"<option>{_text(option)}</option>" for option in control.options)
        field = f"<select {shared}>{options}</select>"
    return f"{label}</label>{field}"


def _text(text: str) -> str:
    return html.escape(text)


def page_spec(screen: Screen, secret: str, port: int) -> dict[str, Any]:
    """What the server is told (:mod:`legato.tasks.basics.web_settings_server`)."""
    return {
        "page": render(screen, secret),
        "controls": [{"id": c.id, "kind": c.kind, "options": c.options} for c in screen.controls],
        "values": {c.id: c.initial for c in screen.controls},
        "host": f"127.0.0.1:{port}",
        "secret": secret,
    }


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><link rel="icon" href="data:,">
<style>
* {{ box-sizing: border-box; margin: 0; font: 16px "DejaVu Sans", sans-serif; }}
body {{ background: #fff; color: #222; }}
h1, button, label, input, select, #status {{ position: absolute; }}
h1 {{ font-size: 24px; font-weight: bold; color: {colour}; }}
label, #status {{ line-height: 32px; white-space: nowrap; overflow: hidden; }}
input[type=text], select {{ border: 1px solid #777; background: #fff; padding: 0 6px; }}
button {{ border: 1px solid {colour}; background: #fff; color: {colour}; }}
button.now, #save {{ background: {colour}; color: #fff; }}
.pane {{ display: none; }} .pane.now {{ display: block; }}
</style></head><body>
{body}
<script>
const secret = {secret}, values = {values};
const field = id => document.getElementById(id);
const status = text => {{ field("status").textContent = text; }};
function show(n) {{
  document.querySelectorAll(".tab, .pane").forEach(e =>
    e.classList.toggle("now", e.id === "t" + n || e.id === "p" + n));
}}
for (const id in values) {{
  if (field(id).type === "checkbox") field(id).checked = values[id];
  else field(id).value = values[id];
  field(id).addEventListener("input", () => status("Not saved yet"));
}}
async function save() {{
  for (const id in values)
    values[id] = field(id).type === "checkbox" ? field(id).checked : field(id).value;
  try {{
    const answer = await fetch("/save", {{method: "POST", body: JSON.stringify(values),
      headers: {{"Content-Type": "application/json", "X-Session": secret}}}});
    status(answer.ok ? "Saved" : "Could not save");
  }} catch (e) {{ status("Could not save"); }}
}}
show(0);
</script></body></html>
"""
