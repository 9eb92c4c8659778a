"""A reward curve, as a PNG and as lines for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

SIZE = (900, 520)
LEFT, RIGHT, TOP, BOTTOM = 70, 30, 50, 60
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")
BLOCKS = " ▁▂▃▄▅▆▇█"
ROWS = 8

Points = Sequence[tuple[float, float]]
"""(x, y), y in [0, 1]."""


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Mean of each value and up to ``window - 1`` before it."""
    return [
        math.fsum(part) / len(part)
        for part in (values[max(0, i + 1 - window) : i + 1] for i in range(len(values)))
    ]


def draw_png(path: Path, title: str, curves: Mapping[str, Points], *, along: str, up: str) -> None:
    """Write the curves, one colour each, y from 0 to 1."""
    image = Image.new("RGB", SIZE, "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(15)
    width, height = SIZE[0] - LEFT - RIGHT, SIZE[1] - TOP - BOTTOM
    end = max((x for points in curves.values() for x, _ in points), default=1.0) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + width * x / end, TOP + height * (1 - y)

    draw.text((LEFT, 15), title, fill="black", font=ImageFont.load_default(19))
    for tenth in range(0, 11, 2):
        _, y = place(0, tenth / 10)
        draw.line([(LEFT, y), (LEFT + width, y)], fill="#dddddd")
        draw.text((LEFT - 12, y), f"{tenth / 10:g}", fill="black", font=font, anchor="rm")
    for fifth in range(6):
        x, y = place(end * fifth / 5, 0)
        draw.text((x, y + 10), f"{end * fifth / 5:,.0f}", fill="black", font=font, anchor="mt")
    draw.text((LEFT + width / 2, SIZE[1] - 12), along, fill="black", font=font, anchor="mb")
    draw.text((12, TOP - 12), up, fill="black", font=font, anchor="lb")
    for number, (name, points) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        line = [place(x, y) for x, y in points]
        if len(line) > 1:
            draw.line(line, fill=colour, width=3)
        for x, y in line if len(line) < 6 else ():
            draw.ellipse([x - 4, y - 4, x + 4, y + 4], fill=colour)
        at = (LEFT + width - 10, TOP + height - 18 - 20 * number)
        draw.text(at, name, fill=colour, font=font, anchor="rm")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def terminal(points: Points, width: int = 72) -> list[str]:
    """Bars from 0 to 1, the points averaged into ``width`` columns, with the scale at the left."""
    if not points:
        return []
    width = min(width, len(points))
    columns: list[list[float]] = [[] for _ in range(width)]
    for number, (_, y) in enumerate(points):
        columns[number * width // len(points)].append(y)
    heights = [ROWS * math.fsum(column) / len(column) for column in columns]
    lines = []
    for row in reversed(range(ROWS)):
        cells = (BLOCKS[round(8 * min(1.0, max(0.0, height - row)))] for height in heights)
        mark = {ROWS - 1: "1.0", ROWS // 2 - 1: "0.5", 0: "0.0"}.get(row, "   ")
        lines.append(f"{mark} │{''.join(cells)}")
    return [*lines, f"    └{'─' * width} {points[-1][0]:,.0f}"]
