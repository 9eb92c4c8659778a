"""Actions drawn on a screenshot, with Pillow: rings, paths, arrows, and words below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from legato.desktop.actions import AnyAction, Drag, Scroll, describe

INK = (230, 30, 120)
HALO = (255, 255, 255)
RINGS = {"click": 1, "double_click": 2, "triple_click": 3, "right_click": 1, "middle_click": 1}
_ARROWS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Shown:
    """One action and whether it was carried out."""

    action: AnyAction | None
    error: str | None = None

    @property
    def words(self) -> str:
        said = "" if self.action is None else describe(self.action)
        return said if self.error is None else f"{said} ! {self.error}".strip()


def font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The font that comes with Pillow; characters it lacks become boxes."""
    return ImageFont.load_default(size)


def draw_actions(
    picture: Image.Image, actions: Sequence[Shown], screen: tuple[int, int]
) -> Image.Image:
    """A copy of ``picture`` (RGB, any size) with ``actions`` of a screen of that many pixels."""
    marked = picture.convert("RGB")
    pen = _Pen(marked, screen)
    for shown in actions:
        if shown.action is not None:
            pen.draw(shown.action)
    return marked


def caption(width: int, text: str, size: int, *, lines: int = 1) -> Image.Image:
    """A strip of text, cut with an ellipsis where it does not fit."""
    strip = Image.new("RGB", (width, round(size * 1.5) * lines), (24, 26, 30))
    draw, face = ImageDraw.Draw(strip), font(size)
    for row, line in enumerate(text.split("\n")[:lines]):
        fitted = fit(draw, line, width - size, face)
        draw.text((size // 2, round(size * 1.5) * row + size // 5), fitted, (240, 240, 240), face)
    return strip


def fit(
    draw: ImageDraw.ImageDraw,
    text: str,
    width: float,
    face: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> str:
    """``text`` on one line, at most ``width`` pixels wide."""
    text = " ".join(text.split())[:500]
    if draw.textlength(text, face) <= width:
        return text
    while text and draw.textlength(text + "…", face) > width:
        text = text[: -max(1, len(text) // 20)]
    return text + "…"


class _Pen:
    def __init__(self, picture: Image.Image, screen: tuple[int, int]) -> None:
        self.draw_on = ImageDraw.Draw(picture)
        self.scale = (picture.width / screen[0], picture.height / screen[1])
        self.unit = max(1.0, picture.width / 400)

    def draw(self, action: AnyAction) -> None:
        points = [self._at(point) for point in action.points()]
        if isinstance(action, Drag):
            self._path(points)
            self._head(points)
        elif isinstance(action, Scroll):
            self._arrow(points[0], _ARROWS[action.direction])
        elif points:
            for ring in range(RINGS.get(action.action_type, 1)):
                self._ring(points[0], (4 + 3 * ring) * self.unit)
            self._dot(points[0])
            if action.action_type in ("right_click", "middle_click"):
                self._label(points[0], action.action_type[0].upper())

    def _at(self, point: tuple[int, int]) -> Point:
        return point[0] * self.scale[0], point[1] * self.scale[1]

    def _ring(self, at: Point, radius: float) -> None:
        box = (at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius)
        width = max(1, round(self.unit))
        self.draw_on.ellipse(_grown(box, width), outline=HALO, width=3 * width)
        self.draw_on.ellipse(box, outline=INK, width=width)

    def _dot(self, at: Point) -> None:
        r = self.unit
        self.draw_on.ellipse((at[0] - r, at[1] - r, at[0] + r, at[1] + r), fill=INK)

    def _path(self, points: Sequence[Point]) -> None:
        width = max(1, round(self.unit))
        self.draw_on.line(list(points), HALO, 3 * width, joint="curve")
        self.draw_on.line(list(points), INK, width, joint="curve")

    def _head(self, points: Sequence[Point]) -> None:
        tip = points[-1]
        tail = next((p for p in reversed(points) if p != tip), None)
        if tail is None:
            return self._dot(tip)
        angle, length = math.atan2(tip[1] - tail[1], tip[0] - tail[0]), 6 * self.unit
        wings = [
            (tip[0] - length * math.cos(angle + turn), tip[1] - length * math.sin(angle + turn))
            for turn in (-0.5, 0.5)
        ]
        self.draw_on.polygon([tip, *wings], fill=INK, outline=HALO)

    def _arrow(self, at: Point, towards: tuple[int, int]) -> None:
        reach = 12 * self.unit
        points = [at, (at[0] + towards[0] * reach, at[1] + towards[1] * reach)]
        self._path(points)
        self._head(points)
        self._dot(at)

    def _label(self, at: Point, letter: str) -> None:
        self.draw_on.text(
            (at[0] + 6 * self.unit, at[1] - 6 * self.unit),
            letter,
            INK,
            font(8 * self.unit),
            stroke_width=max(1, round(self.unit)),
            stroke_fill=HALO,
        )


def _grown(box: tuple[float, float, float, float], by: float) -> tuple[float, float, float, float]:
    return box[0] - by, box[1] - by, box[2] + by, box[3] + by
