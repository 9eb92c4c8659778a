"""Where things are on a page: the seed decides, and a reference episode knows where to click."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from legato.tasks.draw import Draw


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

    def down(self, pixels: int) -> Box:
        """The same rectangle further down."""
        return Box(self.x, self.y + pixels, self.width, self.height)


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a page."""

    paper: str
    ink: str
    accent: str


_PAPERS: Sequence[tuple[str, str]] = (
    ("#ffffff", "#222222"),
    ("#f6f3ea", "#2b2622"),
    ("#eef3f7", "#1d2a33"),
    ("#23272e", "#e8e8e8"),
)
_ACCENTS = ("#2457a6", "#1d7a5b", "#8a3b6c", "#9a5a14", "#4b4f8f")


def draw_theme(draw: Draw) -> Theme:
    paper, ink = draw.choice(_PAPERS)
    return Theme(paper, ink, draw.choice(_ACCENTS))


def column(count: int, first: Box, pitch: int) -> list[Box]:
    """``count`` boxes one below the other, ``pitch`` pixels from top to top."""
    return [first.down(pitch * i) for i in range(count)]
