"""What the app of ``settings_tabs`` shows: its controls, their places, and the page.

Every control stands at a place that the seed decides, in CSS pixels of the page, so that a page
of one seed always looks the same and a reference episode knows where to click.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from legato.tasks.draw import Draw
from legato.tasks.web.layout import Box, Theme, draw_theme
from legato.tasks.web.page import (
    button,
    check_box,
    choice,
    document,
    heading,
    label,
    notice,
    text_field,
)

Kind = Literal["check", "choice", "text"]
Value = bool | str

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
    theme: Theme
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
    with_text = draw.below(3)
    for tab, name in enumerate(tabs):
        for line, text in enumerate(_labels(draw, name, with_text=tab == with_text)):
            values = _TABS[name][text]
            initial = draw.choice(values)
            kind = _kind(text, values)
            y = origin[1] + row * line
            size = (20, 20) if kind == "check" else (240, 32)
            controls.append(
                Control(
                    id=f"s{len(controls)}",
                    tab=tab,
                    label=text,
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
        theme=draw_theme(draw),
        tabs=tuple(tabs),
        tab_boxes=tuple(tab_boxes),
        controls=tuple(controls),
        save=Box(save_x, bottom, 120, 38),
        status=Box(save_x + 140, bottom, 260, 38),
    )


def _labels(draw: Draw, tab: str, *, with_text: bool) -> list[str]:
    """Three or four of a tab's settings; one of them typed, if asked for."""
    mixed = draw.shuffled(sorted(_TABS[tab]))[: draw.between(3, 4)]
    if with_text and not _TEXTS.intersection(mixed):
        mixed[-1] = draw.choice(sorted(_TEXTS.intersection(_TABS[tab])))
    return mixed


def _kind(text: str, values: Sequence[Value]) -> Kind:
    if values is _ON_OFF:
        return "check"
    return "text" if text in _TEXTS else "choice"


def operations(screen: Screen) -> dict[str, Any]:
    fields = {c.id: {"kind": c.kind, "options": c.options} for c in screen.controls}
    return {"save": {"kind": "set", "into": "settings", "fields": fields}}


def render(screen: Screen, secret: str) -> str:
    parts = [heading(Box(screen.tab_boxes[0].x, 14, 600, 32), screen.title)]
    for i, (name, box) in enumerate(zip(screen.tabs, screen.tab_boxes, strict=True)):
        parts.append(button(box, f"t{i}", name, f"show({i})", "tab"))
    for i, _ in enumerate(screen.tabs):
        rows = "".join(_row(control) for control in screen.controls if control.tab == i)
        parts.append(f'<div class="pane" id="p{i}">{rows}</div>')
    parts.append(button(screen.save, "save", "Save", "save()", "strong"))
    parts.append(notice(screen.status))
    return document(screen.title, screen.theme, parts, _SCRIPT, secret)


def _row(control: Control) -> str:
    if control.kind == "check":
        field = check_box(control.box, control.id)
    elif control.kind == "text":
        field = text_field(control.box, control.id)
    else:
        field = choice(control.box, control.id, control.options)
    return label(control.label_box, control.label, control.id) + field


_SCRIPT = """
const ids = Object.keys(state.settings);
function show(n) {
  document.querySelectorAll(".tab, .pane").forEach(e =>
    e.classList.toggle("now", e.id === "t" + n || e.id === "p" + n));
}
function values() { return Object.fromEntries(ids.map(id => [id, value(id)])); }
function dirty() { return ids.some(id => value(id) !== state.settings[id]); }
function changed() {
  say(dirty() ? "Not saved yet" : "");
  mark();
}
function render() { ids.forEach(id => put(id, state.settings[id])); }
function save() { send({op: "save", values: values()}, "Saved"); }
ids.forEach(id => field(id).addEventListener("input", changed));
show(0);
"""
