"""From what is to be seen to pixels.

A frame is put together from small pictures, each drawn by Pillow once per *look* and then kept:
a look is a frozen value that says everything its picture depends on. Typing one character thus
redraws one field, and desktops that show the same thing share the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from legato.desktop.fake import text as txt

Pixels = npt.NDArray[np.uint8]
RGB = tuple[int, int, int]

WALLPAPER: RGB = (58, 84, 110)
PANEL: RGB = (36, 40, 48)
SURFACE: RGB = (246, 245, 244)
TITLE_BAR: RGB = (222, 221, 218)
PAPER: RGB = (255, 255, 255)
INK: RGB = (46, 52, 54)
FAINT: RGB = (119, 124, 128)
LINE: RGB = (190, 186, 181)
ACCENT: RGB = (38, 116, 210)
MARKED: RGB = (188, 215, 247)
NOTE: RGB = (228, 237, 248)


class Rect(NamedTuple):
    """Pixels ``[x0, x1) x [y0, y1)``."""

    x0: int
    y0: int
    x1: int
    y1: int

    @property
    def width(self) -> int:
        return self.x1 - self.x0

    @property
    def height(self) -> int:
        return self.y1 - self.y0

    @property
    def center(self) -> tuple[int, int]:
        return (self.x0 + self.x1) // 2, (self.y0 + self.y1) // 2

    def holds(self, x: int, y: int) -> bool:
        return self.x0 <= x < self.x1 and self.y0 <= y < self.y1


@dataclass(frozen=True, slots=True)
class Look(ABC):
    """One small picture: its size in pixels, its font size, and in subclasses the rest."""

    width: int
    height: int
    size: int

    @abstractmethod
    def paint(self, draw: ImageDraw.ImageDraw) -> None: ...

    def background(self) -> RGB:
        return SURFACE


@dataclass(frozen=True, slots=True)
class TextLook(Look):
    """Lines of text from the top; one line is centred vertically."""

    lines: tuple[str, ...]
    colour: RGB = INK
    paper: RGB = SURFACE
    hint: tuple[str, ...] = ()
    """Further lines, in the accent colour."""

    def background(self) -> RGB:
        return self.paper

    def paint(self, draw: ImageDraw.ImageDraw) -> None:
        rows = [(line, self.colour) for line in self.lines] + [(line, ACCENT) for line in self.hint]
        step = line_height(self.size)
        y = max(0, (self.height - step * len(rows)) // 2)
        for line, colour in rows:
            draw.text((2, y + step // 2), line, fill=colour, font=txt.font(self.size), anchor="lm")
            y += step


@dataclass(frozen=True, slots=True)
class ButtonLook(Look):
    label: str
    focused: bool = False
    down: bool = False
    colour: RGB | None = None
    primary: bool = False

    def paint(self, draw: ImageDraw.ImageDraw) -> None:
        fill = self.colour or (ACCENT if self.primary else (237, 236, 234))
        ink = PAPER if self.colour or self.primary else INK
        if self.down:
            fill = _shade(fill, 0.82)
        box = (1, 1, self.width - 2, self.height - 2)
        draw.rounded_rectangle(box, _radius(self), fill=fill, outline=_shade(fill, 0.75))
        label = txt.fit(self.label, self.size, self.width - 6)
        draw.text(
            (self.width / 2, self.height / 2),
            label,
            fill=ink,
            font=txt.font(self.size),
            anchor="mm",
        )
        if self.focused:
            draw.rounded_rectangle((0, 0, self.width - 1, self.height - 1), 5, outline=ACCENT)
            inner = (3, 3, self.width - 4, self.height - 4)
            draw.rounded_rectangle(inner, _radius(self), outline=_shade(ink, 0.9))


@dataclass(frozen=True, slots=True)
class FieldLook(Look):
    """``text`` starts at the first visible character; ``marks`` and ``caret`` are pixels from
    the inner left edge."""

    text: str
    marks: tuple[int, int] | None
    caret: int | None

    def paint(self, draw: ImageDraw.ImageDraw) -> None:
        edge = ACCENT if self.caret is not None else LINE
        box = (0, 0, self.width - 1, self.height - 1)
        draw.rounded_rectangle(
            box, _radius(self), fill=PAPER, outline=edge, width=2 if self.caret is not None else 1
        )
        pad, top, bottom = field_padding(self.size), 4, self.height - 5
        if self.marks is not None:
            draw.rectangle((pad + self.marks[0], top, pad + self.marks[1], bottom), fill=MARKED)
        draw.text(
            (pad, self.height / 2), self.text, fill=INK, font=txt.font(self.size), anchor="lm"
        )
        if self.caret is not None:
            draw.line((pad + self.caret, top, pad + self.caret, bottom), fill=INK)


@dataclass(frozen=True, slots=True)
class CheckLook(Look):
    label: str
    on: bool
    focused: bool

    def paint(self, draw: ImageDraw.ImageDraw) -> None:
        side = min(self.height - 4, round(self.size * 1.15))
        x, y = 2, (self.height - side) // 2
        draw.rounded_rectangle(
            (x, y, x + side, y + side),
            3,
            fill=ACCENT if self.on else PAPER,
            outline=_shade(ACCENT, 0.8) if self.on else LINE,
        )
        if self.on:
            tick = ((0.22, 0.52), (0.43, 0.74), (0.80, 0.28))
            points = [(x + side * a, y + side * b) for a, b in tick]
            draw.line(points, fill=PAPER, width=max(1, side // 7), joint="curve")
        start = x + side + self.size // 2
        label = txt.fit(self.label, self.size, self.width - start - 2)
        draw.text((start, self.height / 2), label, fill=INK, font=txt.font(self.size), anchor="lm")
        if self.focused:
            draw.rounded_rectangle((0, 0, self.width - 1, self.height - 1), 3, outline=ACCENT)


@dataclass(frozen=True, slots=True)
class SliderLook(Look):
    handle: int
    """Centre of the handle, in pixels from the left edge."""
    value: str
    track: int
    """Right end of the track; the value stands behind it."""
    focused: bool

    def paint(self, draw: ImageDraw.ImageDraw) -> None:
        middle, r = self.height // 2, slider_radius(self.height)
        draw.line((r, middle, self.track - r, middle), fill=LINE, width=max(2, r // 3))
        draw.line((r, middle, self.handle, middle), fill=ACCENT, width=max(2, r // 3))
        ring = (self.handle - r + 1, middle - r + 1, self.handle + r - 1, middle + r - 1)
        draw.ellipse(ring, fill=PAPER, outline=ACCENT if self.focused else FAINT, width=2)
        draw.text(
            (self.width - 2, middle), self.value, fill=INK, font=txt.font(self.size), anchor="rm"
        )


@dataclass(frozen=True, slots=True)
class TabLook(Look):
    label: str
    active: bool
    focused: bool

    def background(self) -> RGB:
        return SURFACE if self.active else TITLE_BAR

    def paint(self, draw: ImageDraw.ImageDraw) -> None:
        label = txt.fit(self.label, self.size, self.width - 6)
        draw.text(
            (self.width / 2, self.height / 2),
            label,
            fill=INK if self.active else FAINT,
            font=txt.font(self.size),
            anchor="mm",
        )
        draw.line((self.width - 1, 0, self.width - 1, self.height), fill=LINE)
        if self.active:
            draw.rectangle((0, 0, self.width, 2), fill=ACCENT)
        if self.focused:
            draw.rectangle((3, 4, self.width - 5, self.height - 4), outline=ACCENT)


@dataclass(frozen=True, slots=True)
class BoxLook(Look):
    """The frame of a list."""

    focused: bool

    def paint(self, draw: ImageDraw.ImageDraw) -> None:
        edge = ACCENT if self.focused else LINE
        draw.rectangle((0, 0, self.width - 1, self.height - 1), fill=PAPER, outline=edge)


@dataclass(frozen=True, slots=True)
class RowLook(Look):
    """One row of a list."""

    label: str
    selected: bool

    def background(self) -> RGB:
        return ACCENT if self.selected else PAPER

    def paint(self, draw: ImageDraw.ImageDraw) -> None:
        pad = field_padding(self.size)
        label = txt.fit(self.label, self.size, self.width - 2 * pad)
        ink = PAPER if self.selected else INK
        draw.text((pad, self.height / 2), label, fill=ink, font=txt.font(self.size), anchor="lm")


@dataclass(frozen=True, slots=True)
class BarLook(Look):
    """A vertical scroll bar; the thumb covers the pixels ``[top, bottom)``."""

    top: int
    bottom: int

    def background(self) -> RGB:
        return (237, 236, 234)

    def paint(self, draw: ImageDraw.ImageDraw) -> None:
        thumb = (2, self.top + 1, self.width - 3, self.bottom - 2)
        draw.rounded_rectangle(thumb, max(1, (self.width - 4) // 2), fill=FAINT)


@dataclass(frozen=True, slots=True)
class BackdropLook(Look):
    """Everything behind the widgets: wallpaper, panel, and the window if there is one."""

    panel: int
    window: Rect | None
    bar: int
    """Height of the window's title bar, 0 for none."""
    title: str
    note: Rect | None

    def background(self) -> RGB:
        return WALLPAPER

    def paint(self, draw: ImageDraw.ImageDraw) -> None:
        face = txt.font(self.size)
        if self.panel:
            draw.rectangle((0, 0, self.width, self.panel - 1), fill=PANEL)
            draw.text(
                (self.size, self.panel / 2), "Desktop", fill=TITLE_BAR, font=face, anchor="lm"
            )
        if self.window is None:
            return
        x0, y0, x1, y1 = self.window
        draw.rectangle((x0, y0, x1 - 1, y1 - 1), fill=SURFACE, outline=PANEL)
        if self.bar:
            draw.rectangle((x0, y0, x1 - 1, y0 + self.bar - 1), fill=TITLE_BAR, outline=PANEL)
            middle = y0 + self.bar / 2
            draw.text(((x0 + x1) / 2, middle), self.title, fill=INK, font=face, anchor="mm")
            for i, colour in enumerate(((224, 84, 75), (235, 186, 62), (98, 186, 96))):
                x, r = x0 + self.size * (1 + 1.3 * i), self.size * 0.38
                draw.ellipse((x - r, middle - r, x + r, middle + r), fill=colour)
        if self.note is not None:
            box = (self.note.x0, self.note.y0, self.note.x1 - 1, self.note.y1 - 1)
            draw.rectangle(box, fill=NOTE)


Picture = tuple[int, int, Look]
"""A look and where its top-left pixel goes, as (x, y, look)."""


class View(NamedTuple):
    """All that a frame depends on; equal views give equal frames."""

    backdrop: BackdropLook
    pictures: tuple[Picture, ...]
    """Drawn over the backdrop in order; each must lie inside the frame."""
    pointer: tuple[int, int]


def compose(view: View) -> Pixels:
    """A fresh frame: uint8 of shape (height, width, 3)."""
    frame = _backdrop(view.backdrop).copy()
    for x, y, look in view.pictures:
        frame[y : y + look.height, x : x + look.width] = _pixels(look)
    _put_pointer(frame, *view.pointer)
    return frame


def line_height(size: int) -> int:
    return round(size * 1.35)


def field_padding(size: int) -> int:
    return max(3, size // 2)


def slider_radius(height: int) -> int:
    return max(3, round(height * 0.3))


@lru_cache(maxsize=1024)
def _pixels(look: Look) -> Pixels:
    return _painted(look)


# A few megabytes each, so only as many as differ in one run: one per title and screen size.
@lru_cache(maxsize=8)
def _backdrop(look: BackdropLook) -> Pixels:
    return _painted(look)


def _painted(look: Look) -> Pixels:
    image = Image.new("RGB", (look.width, look.height), look.background())
    look.paint(ImageDraw.Draw(image))
    return np.asarray(image)


_ARROW = (
    "X",
    "XX",
    "X.X",
    "X..X",
    "X...X",
    "X....X",
    "X.....X",
    "X......X",
    "X.......X",
    "X........X",
    "X.....XXXXX",
    "X..X..X",
    "X.XX..X",
    "XX  X..X",
    "X   X..X",
    "     XX",
)
"""``X`` is black, a dot white, a space transparent; the hot spot is the top-left corner."""


@lru_cache(maxsize=1)
def _pointer_sprite() -> tuple[npt.NDArray[np.bool_], Pixels]:
    rows = [row.ljust(max(map(len, _ARROW))) for row in _ARROW]
    cells = np.array([list(row) for row in rows])
    grey = np.where(cells == ".", 255, 0).astype(np.uint8)
    return cells != " ", np.repeat(grey[..., None], 3, axis=2)


def _put_pointer(frame: Pixels, x: int, y: int) -> None:
    mask, arrow = _pointer_sprite()
    under = frame[y : y + mask.shape[0], x : x + mask.shape[1]]
    height, width = under.shape[:2]
    shown = mask[:height, :width]
    under[shown] = arrow[:height, :width][shown]


def _radius(look: Look) -> int:
    return min(5, look.height // 5)


def _shade(colour: RGB, by: float) -> RGB:
    return round(colour[0] * by), round(colour[1] * by), round(colour[2] * by)
