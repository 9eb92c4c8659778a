"""A contact sheet: a batch on one page, a line of small pictures for each rollout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from legato.errors import ConfigError
from legato.rl.store import replacing
from legato.view.draw import draw_actions, fit, font
from legato.view.strip import Frame, Strip

CELL = 240
"""Width of a picture, in pixels."""
GAP = 8
LABEL = 20
PAPER, TEXT, DIM = (250, 250, 250), (25, 25, 30), (110, 110, 120)
GOOD, BAD, LOST = (20, 130, 70), (190, 40, 40), (130, 130, 140)


def make_sheet(strips: Sequence[Strip], *, columns: int = 8) -> Image.Image:
    """Rollouts below each other, each with up to ``columns`` pictures: the first ones, evenly
    spaced ones in between, and the last.

    Raises :class:`ConfigError` if no rollout has a picture.
    """
    shown = [(strip, _choose(strip.frames, columns)) for strip in strips if strip.frames]
    if not shown:
        raise ConfigError("there is no screenshot to make a sheet of")
    heights = [_picture_height(frames[0]) for _, frames in shown]
    width = GAP + max(len(frames) for _, frames in shown) * (CELL + GAP)
    sheet = Image.new("RGB", (max(width, 2 * (CELL + GAP)), _total(heights)), PAPER)
    top = GAP
    for (strip, frames), height in zip(shown, heights, strict=True):
        _title(sheet, top, strip)
        for column, frame in enumerate(frames):
            _cell(sheet, GAP + column * (CELL + GAP), top + LABEL, height, strip, frame)
        top += LABEL + height + LABEL + GAP
    return sheet


def write_sheet(strips: Sequence[Strip], out: Path, *, columns: int = 8) -> None:
    """Write :func:`make_sheet` to a ``.png``. Raises as it does, and ``StorageError``."""
    if out.suffix.lower() != ".png":
        raise ConfigError(f"a sheet is a .png, not {out.name}")
    sheet = make_sheet(strips, columns=columns)
    with replacing(out) as file:
        sheet.save(file, format="PNG", optimize=True)


def _choose(frames: Sequence[Frame], columns: int) -> list[Frame]:
    if len(frames) <= columns:
        return list(frames)
    last = len(frames) - 1
    return [frames[round(i * last / max(1, columns - 1))] for i in range(columns)]


def _picture_height(frame: Frame) -> int:
    picture = frame.load()
    return round(CELL * picture.height / picture.width)


def _total(heights: Sequence[int]) -> int:
    return GAP + sum(LABEL + height + LABEL + GAP for height in heights)


def _title(sheet: Image.Image, top: int, strip: Strip) -> None:
    draw, face = ImageDraw.Draw(sheet), font(14)
    draw.rectangle((GAP, top + 4, GAP + 8, top + 12), fill=_colour(strip))
    words = f"{strip.title}  {strip.verdict}"
    draw.text((GAP + 14, top), fit(draw, words, sheet.width - 3 * GAP - 14, face), TEXT, face)


def _cell(sheet: Image.Image, left: int, top: int, height: int, strip: Strip, frame: Frame) -> None:
    picture = frame.load()
    small = picture.resize((CELL, height), Image.Resampling.LANCZOS)
    sheet.paste(draw_actions(small, frame.actions, strip.screen or picture.size), (left, top))
    draw, face = ImageDraw.Draw(sheet), font(12)
    draw.rectangle((left - 1, top - 1, left + CELL, top + height), outline=(210, 210, 215))
    if frame.step is None:
        words = "end"
    else:
        actions = "; ".join(shown.words for shown in frame.actions) or "no action"
        words = f"{frame.step + 1}  {actions}"
    draw.text((left, top + height + 2), fit(draw, words, CELL, face), DIM, face)


def _colour(strip: Strip) -> tuple[int, int, int]:
    if strip.reward is None:
        return LOST
    return GOOD if strip.reward >= 1 else BAD
