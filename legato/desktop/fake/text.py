"""Measuring and breaking text in the one font of the fake desktop.

Pillow carries the font itself, so that a frame does not depend on what the host has installed.
Sizes and widths are in pixels. Advances are whole pixels and the font has no kerning here, so the
width of a string is the sum of its characters' advances.
"""

from __future__ import annotations

from functools import lru_cache

from PIL import ImageFont


@lru_cache(maxsize=32)
def font(size: int) -> ImageFont.FreeTypeFont:
    face = ImageFont.load_default(size)
    assert isinstance(face, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return face


@lru_cache(maxsize=8192)
def advance(char: str, size: int) -> int:
    return round(font(size).getlength(char))


def width(text: str, size: int) -> int:
    return sum(advance(c, size) for c in text)


def fit(text: str, size: int, limit: int) -> str:
    """``text``, cut and closed by three dots if it is wider than ``limit``."""
    if width(text, size) <= limit:
        return text
    room = limit - width("...", size)
    kept = 0
    for char in text:
        room -= advance(char, size)
        if room < 0:
            break
        kept += 1
    return text[:kept].rstrip() + "..."


@lru_cache(maxsize=1024)
def wrap(text: str, size: int, limit: int, max_lines: int) -> tuple[str, ...]:
    """Break at spaces into at most ``max_lines`` lines; what is left over ends in three dots."""
    words = text.split()
    lines: list[str] = []
    while words and len(lines) < max_lines:
        if len(lines) == max_lines - 1:
            lines.append(fit(" ".join(words), size, limit))
            break
        count, used = 0, 0
        while count < len(words):
            used += width(words[count], size) + (advance(" ", size) if count else 0)
            if used > limit:
                break
            count += 1
        count = max(count, 1)
        lines.append(fit(" ".join(words[:count]), size, limit))
        words = words[count:]
    return tuple(lines)
