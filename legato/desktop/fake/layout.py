"""Where everything goes: from a screen's description and its size to widgets in their places.

All lengths follow from the font size, which follows from the screen's size, so that one
description serves 1920 x 1080 pixels and a thumbnail for a tiny model alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import assert_never

from legato.desktop.fake import drawing as d
from legato.desktop.fake import text as txt
from legato.desktop.fake.spec import (
    ButtonSpec,
    CheckSpec,
    FieldSpec,
    ListSpec,
    SceneSpec,
    SliderSpec,
    WidgetSpec,
)
from legato.desktop.fake.text_field import TextField
from legato.desktop.fake.widgets import (
    Button,
    CheckBox,
    ListBox,
    Slider,
    TabStrip,
    Widget,
)
from legato.errors import ConfigError

SMALLEST = 96
"""Fewest pixels a screen may have in each direction."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A screen ready to be used. ``pages`` has one entry per tab, or a single one."""

    size: int
    """Font size in pixels."""
    backdrop: d.BackdropLook
    note: d.Picture
    """The instruction."""
    tabs: TabStrip | None
    pages: tuple[tuple[tuple[str, Widget], ...], ...]
    """By tab, the (name, widget) pairs in the order Tab visits them."""
    captions: tuple[tuple[d.Picture, ...], ...]
    """By tab, the fixed labels beside the widgets."""
    save: Button | None
    revert: Button | None
    status: d.Rect | None


def font_size(width: int, height: int) -> int:
    return max(8, min(round(width / 70), round(height / 42), 26))


def bare_view(width: int, height: int) -> d.View:
    """A desktop with nothing open."""
    size = font_size(width, height)
    backdrop = d.BackdropLook(width, height, size, _panel(height, size), None, 0, "", None)
    return d.View(backdrop, (), (width // 2, height // 2))


def lay_out(spec: SceneSpec, instruction: str, hint: str, width: int, height: int) -> Layout:
    """Place everything on a screen of ``width`` x ``height`` pixels.

    ``hint`` is shown under the instruction. Raises ``ConfigError`` if it does not fit.
    """
    size = font_size(width, height)
    line, pad = d.line_height(size), max(2, size // 2)
    panel = _panel(height, size)
    margin = width // 14 if width >= 640 else 2
    window = d.Rect(margin, panel + pad, width - margin, height - pad)
    bar = line + pad if height >= 200 else 0
    rows = 1 if height < 200 else 2
    left, right, top = window.x0 + pad, window.x1 - pad, window.y0 + bar + pad

    limit = right - left - 2 * pad
    lines = txt.wrap(instruction, size, limit, rows)
    hints = txt.wrap(hint, size, limit, rows)
    # Not by the lines in use: where the widgets are must not depend on how a task is worded.
    note_height = (2 * rows if hint else rows) * line + pad
    note = d.Rect(left, top, right, top + note_height)
    look = d.TextLook(limit, note_height, size, lines, paper=d.NOTE, hint=hints)
    top = note.y1 + pad

    tabs = None
    if spec.tabs:
        tabs = TabStrip(d.Rect(left, top, right, top + line + pad), size, spec.tabs)
        top = tabs.place.y1 + pad

    bottom = window.y1 - pad
    save = revert = status = None
    if spec.save:
        tall, wide = line + pad, min(size * 7, (right - left) // 4)
        bottom -= tall
        save = Button(
            d.Rect(right - wide, bottom, right, bottom + tall), size, "Save", primary=True
        )
        revert = Button(
            d.Rect(right - 2 * wide - pad, bottom, right - wide - pad, bottom + tall),
            size,
            "Revert",
        )
        status = d.Rect(left, bottom, right - 2 * wide - 2 * pad, bottom + tall)
        bottom -= pad

    body = d.Rect(left, top, right, bottom)
    groups = [[w for w in spec.widgets if w.tab == tab] for tab in spec.tabs] or [
        list(spec.widgets)
    ]
    pages, captions = [], []
    for group in groups:
        placed, labels = _page(group, body, size)
        pages.append(tuple(placed))
        captions.append(tuple(labels))
    backdrop = d.BackdropLook(width, height, size, panel, window, bar, spec.title, note)
    return Layout(
        size,
        backdrop,
        (left + pad, note.y0, look),
        tabs,
        tuple(pages),
        tuple(captions),
        save,
        revert,
        status,
    )


def _panel(height: int, size: int) -> int:
    return d.line_height(size) + 4 if height >= 240 else 0


def _page(
    group: list[WidgetSpec], body: d.Rect, size: int
) -> tuple[list[tuple[str, Widget]], list[d.Picture]]:
    if all(isinstance(w, ButtonSpec) for w in group):
        return [(w.name, b) for w, b in _button_grid(group, body, size)], []
    lists = [w for w in group if isinstance(w, ListSpec)]
    others = [w for w in group if not isinstance(w, ListSpec)]
    gap = size
    middle = body.x0 + (body.width * 11 // 20 if others else -gap)
    if not lists:
        middle = min(body.x1, body.x0 + size * 42)
    placed: dict[str, Widget] = {}
    labels: list[d.Picture] = []

    column = d.Rect(body.x0, body.y0, middle, body.y1)
    pitch = min(round(size * 2.6), column.height // max(len(others), 1))
    tall = min(round(size * 1.9), pitch - 2)
    if others and tall < round(size * 1.3):
        raise ConfigError(f"{len(others)} widgets do not fit on a screen this low; use fewer")
    for number, spec in enumerate(others):
        y = column.y0 + number * pitch
        if not isinstance(spec, CheckSpec | ButtonSpec):
            labels.append(_caption(spec, column.x0, y, column.width * 2 // 5 - 4, tall, size))
        x = column.x0 + column.width * 2 // 5
        placed[spec.name] = _widget(spec, d.Rect(x, y, column.x1, y + tall), size)

    for number, listing in enumerate(lists):
        share = body.height // len(lists)
        y = body.y0 + number * share
        caption = d.line_height(size) + 2
        place = d.Rect(middle + gap, y + caption, body.x1, y + share - 2)
        if place.height < d.line_height(size) * 2 or place.width < size * 5:
            raise ConfigError(f"the list {listing.name!r} does not fit on this screen")
        labels.append(_caption(listing, place.x0, y, place.width, caption, size))
        placed[listing.name] = _widget(listing, place, size)
    return [(w.name, placed[w.name]) for w in group], labels


def _caption(spec: WidgetSpec, x: int, y: int, width: int, height: int, size: int) -> d.Picture:
    label = txt.fit(spec.caption, size, width - 4)
    return x, y, d.TextLook(width, height, size, (label,))


def _button_grid(
    group: list[WidgetSpec], body: d.Rect, size: int
) -> list[tuple[WidgetSpec, Widget]]:
    columns = math.ceil(math.sqrt(len(group)))
    lines = math.ceil(len(group) / columns)
    cell_w, cell_h = body.width // columns, body.height // lines
    wide, tall = min(cell_w * 7 // 10, size * 16), min(cell_h * 7 // 10, size * 6)
    if wide < size or tall < size:
        raise ConfigError(f"{len(group)} buttons do not fit on this screen; use fewer")
    placed: list[tuple[WidgetSpec, Widget]] = []
    for number, spec in enumerate(group):
        row, column = divmod(number, columns)
        x = body.x0 + column * cell_w + (cell_w - wide) // 2
        y = body.y0 + row * cell_h + (cell_h - tall) // 2
        placed.append((spec, _widget(spec, d.Rect(x, y, x + wide, y + tall), size)))
    return placed


def _widget(spec: WidgetSpec, place: d.Rect, size: int) -> Widget:
    match spec:
        case FieldSpec():
            return TextField(place, size, spec.value)
        case CheckSpec():
            return CheckBox(place, size, spec.caption, spec.value)
        case ListSpec():
            return ListBox(place, size, spec.items, spec.value)
        case SliderSpec():
            return Slider(place, size, spec.low, spec.high, spec.value)
        case ButtonSpec():
            return Button(place, size, spec.caption, value=spec.value, colour=spec.colour)
        case _:
            assert_never(spec)
