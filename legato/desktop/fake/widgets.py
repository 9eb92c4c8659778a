"""The widgets: what they hold, and how each answers the mouse and the keyboard.

A widget knows its place on the screen and nothing of its neighbours; focus, tabs and saving are
the scene's (:mod:`legato.desktop.fake.scene`). Points are screen pixels and may lie anywhere
while a button is held down.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from legato.desktop.fake import drawing as d
from legato.desktop.fake import text as txt
from legato.desktop.fake.spec import Value


@dataclass(slots=True)
class Clipboard:
    text: str = ""


@dataclass(frozen=True, slots=True)
class Stroke:
    """A key going down, by canonical name, with the modifiers held at that moment."""

    key: str
    ctrl: bool = False
    shift: bool = False


class Widget(ABC):
    """Something that can have the focus. ``place`` is where it is seen and hit.

    A widget that says nothing else is deaf to an input.
    """

    value: Value

    def __init__(self, place: d.Rect, size: int) -> None:
        self.place = place
        self.size = size

    @abstractmethod
    def pictures(self, focused: bool) -> Iterator[d.Picture]: ...

    def restore(self, value: Value) -> None:
        """Hold a value that it held before."""
        self.value = value

    def press(self, x: int, y: int, *, clicks: int = 1, extend: bool = False) -> None:
        """The left button goes down on it for the ``clicks``-th time; ``extend`` is shift."""
        return

    def drag(self, x: int, y: int) -> None:
        """The pointer moves with the button held since :meth:`press`."""
        return

    def release(self, x: int, y: int) -> bool:
        """The button comes up. True if that activates the widget."""
        return False

    def stroke(self, stroke: Stroke, clipboard: Clipboard) -> bool:
        """A key goes down while it has the focus. True if that activates the widget."""
        return False

    def insert(self, text: str) -> bool:
        """Printable text is typed while it has the focus. True if that activates the widget."""
        return False

    def wheel(self, rows: int) -> None:
        """The wheel turns over it; positive is down."""
        return


class Button(Widget):
    value: bool

    def __init__(
        self,
        place: d.Rect,
        size: int,
        label: str,
        *,
        value: bool = False,
        colour: d.RGB | None = None,
        primary: bool = False,
    ) -> None:
        super().__init__(place, size)
        self.label, self.value, self.colour, self.primary = label, value, colour, primary
        self._armed = False

    def pictures(self, focused: bool) -> Iterator[d.Picture]:
        x, y, _, _ = self.place
        down = self._armed or self.value
        yield (
            x,
            y,
            d.ButtonLook(
                self.place.width,
                self.place.height,
                self.size,
                self.label,
                focused,
                down,
                self.colour,
                self.primary,
            ),
        )

    def press(self, x: int, y: int, *, clicks: int = 1, extend: bool = False) -> None:
        self._armed = True

    def drag(self, x: int, y: int) -> None:
        self._armed = self.place.holds(x, y)

    def release(self, x: int, y: int) -> bool:
        self._armed = False
        return self.place.holds(x, y)

    def stroke(self, stroke: Stroke, clipboard: Clipboard) -> bool:
        return stroke.key in ("Return", "KP_Enter")

    def insert(self, text: str) -> bool:
        return " " in text


class CheckBox(Widget):
    value: bool

    def __init__(self, place: d.Rect, size: int, label: str, value: bool) -> None:
        super().__init__(place, size)
        self.label, self.value = label, value

    def pictures(self, focused: bool) -> Iterator[d.Picture]:
        x, y, _, _ = self.place
        width, height = self.place.width, self.place.height
        yield x, y, d.CheckLook(width, height, self.size, self.label, self.value, focused)

    def release(self, x: int, y: int) -> bool:
        if self.place.holds(x, y):
            self.value = not self.value
        return False

    def insert(self, text: str) -> bool:
        if text.count(" ") % 2:
            self.value = not self.value
        return False


class ListBox(Widget):
    """Rows to choose one from; it scrolls by wheel, keys and its bar."""

    value: str | None

    def __init__(self, place: d.Rect, size: int, items: Sequence[str], value: str | None) -> None:
        super().__init__(place, size)
        self.items = tuple(items)
        self.value = value
        self.row = d.line_height(size) + max(2, size // 4)
        self.shown = min(max(1, (place.height - 2) // self.row), len(self.items))
        self.place = place._replace(y1=place.y0 + self.shown * self.row + 2)
        self._bar = max(8, size * 2 // 3)
        self._on_bar = False
        self.top = 0
        if value is not None:
            self._reveal(self.items.index(value))

    @property
    def scrolls(self) -> bool:
        return len(self.items) > self.shown

    def row_center(self, item: str) -> tuple[int, int] | None:
        """Where to click for an item, ``None`` while it is scrolled out of view."""
        line = self.items.index(item) - self.top
        if not 0 <= line < self.shown:
            return None
        y = self.place.y0 + 1 + line * self.row + self.row // 2
        return (self.place.x0 + (self.place.width - self._bar) // 2, y)

    def pictures(self, focused: bool) -> Iterator[d.Picture]:
        x, y, _, _ = self.place
        width, height = self.place.width, self.place.height
        yield x, y, d.BoxLook(width, height, self.size, focused)
        bar = self._bar if self.scrolls else 0
        for line, item in enumerate(self.items[self.top : self.top + self.shown]):
            look = d.RowLook(width - 2 - bar, self.row, self.size, item, item == self.value)
            yield x + 1, y + 1 + line * self.row, look
        if bar:
            inner = height - 2
            thumb = max(8, inner * self.shown // len(self.items))
            top = (inner - thumb) * self.top // (len(self.items) - self.shown)
            yield x + width - 1 - bar, y + 1, d.BarLook(bar, inner, self.size, top, top + thumb)

    def press(self, x: int, y: int, *, clicks: int = 1, extend: bool = False) -> None:
        self._on_bar = self.scrolls and x >= self.place.x1 - 1 - self._bar
        self.drag(x, y)

    def drag(self, x: int, y: int) -> None:
        if self._on_bar:
            share = (y - self.place.y0) / self.place.height
            self._scroll_to(round(share * len(self.items) - self.shown / 2))
            return
        index = self.top + (y - self.place.y0 - 1) // self.row
        if self.place.holds(x, y) and self.top <= index < self.top + self.shown:
            self._select(index)

    def wheel(self, rows: int) -> None:
        self._scroll_to(self.top + rows)

    def stroke(self, stroke: Stroke, clipboard: Clipboard) -> bool:
        last = len(self.items) - 1
        now = -1 if self.value is None else self.items.index(self.value)
        targets = {
            "Up": max(now - 1, 0),
            "Down": now + 1,
            "Home": 0,
            "End": last,
            "Page_Up": now - self.shown,
            "Page_Down": now + self.shown,
        }
        if stroke.key in targets and not stroke.ctrl:
            index = max(0, min(targets[stroke.key], last))
            self._select(index)
            self._reveal(index)
        return False

    def _select(self, index: int) -> None:
        if index < len(self.items):
            self.value = self.items[index]

    def _scroll_to(self, top: int) -> None:
        self.top = max(0, min(top, len(self.items) - self.shown))

    def _reveal(self, index: int) -> None:
        if index < self.top:
            self._scroll_to(index)
        elif index >= self.top + self.shown:
            self._scroll_to(index - self.shown + 1)


class Slider(Widget):
    value: int

    def __init__(self, place: d.Rect, size: int, low: int, high: int, value: int) -> None:
        super().__init__(place, size)
        self.low, self.high, self.value = low, high, value
        digits = max(txt.width(str(low), size), txt.width(str(high), size))
        self._track = place.width - digits - size
        self._radius = d.slider_radius(place.height)

    def point_of(self, value: int) -> tuple[int, int]:
        """Where on the screen the handle stands for a value."""
        return self.place.x0 + self._handle(value), self.place.center[1]

    def pictures(self, focused: bool) -> Iterator[d.Picture]:
        x, y, _, _ = self.place
        look = d.SliderLook(
            self.place.width,
            self.place.height,
            self.size,
            self._handle(self.value),
            str(self.value),
            self._track,
            focused,
        )
        yield x, y, look

    def press(self, x: int, y: int, *, clicks: int = 1, extend: bool = False) -> None:
        if x < self.place.x0 + self._track:
            self.drag(x, y)

    def drag(self, x: int, y: int) -> None:
        run = max(self._track - 2 * self._radius, 1)
        share = (x - self.place.x0 - self._radius) / run
        self._set(self.low + round(share * (self.high - self.low)))

    def stroke(self, stroke: Stroke, clipboard: Clipboard) -> bool:
        page = max((self.high - self.low) // 10, 1)
        targets = {
            "Left": self.value - 1,
            "Down": self.value - 1,
            "Right": self.value + 1,
            "Up": self.value + 1,
            "Page_Down": self.value - page,
            "Page_Up": self.value + page,
            "Home": self.low,
            "End": self.high,
        }
        self._set(targets.get(stroke.key, self.value))
        return False

    def _set(self, value: int) -> None:
        self.value = max(self.low, min(value, self.high))

    def _handle(self, value: int) -> int:
        run = max(self._track - 2 * self._radius, 1)
        return self._radius + round(run * (value - self.low) / (self.high - self.low))


class TabStrip(Widget):
    """Titles side by side; ``value`` is the number of the one in front."""

    value: int

    def __init__(self, place: d.Rect, size: int, titles: Sequence[str]) -> None:
        super().__init__(place, size)
        self.titles = tuple(titles)
        self.value = 0

    def tab_center(self, number: int) -> tuple[int, int]:
        left, right = self._edges(number)
        return (left + right) // 2, self.place.center[1]

    def pictures(self, focused: bool) -> Iterator[d.Picture]:
        for number, title in enumerate(self.titles):
            left, right = self._edges(number)
            front = number == self.value
            look = d.TabLook(
                right - left, self.place.height, self.size, title, front, focused and front
            )
            yield left, self.place.y0, look

    def press(self, x: int, y: int, *, clicks: int = 1, extend: bool = False) -> None:
        for number in range(len(self.titles)):
            left, right = self._edges(number)
            if left <= x < right:
                self.value = number

    def stroke(self, stroke: Stroke, clipboard: Clipboard) -> bool:
        step = {"Left": -1, "Right": 1}.get(stroke.key, 0)
        self.value = max(0, min(self.value + step, len(self.titles) - 1))
        return False

    def _edges(self, number: int) -> tuple[int, int]:
        width, count = self.place.width, len(self.titles)
        return (
            self.place.x0 + width * number // count,
            self.place.x0 + width * (number + 1) // count,
        )
