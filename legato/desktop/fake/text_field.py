"""The text field: caret, selection and clipboard."""

from __future__ import annotations

from collections.abc import Iterator

from legato.desktop.fake import drawing as d
from legato.desktop.fake import text as txt
from legato.desktop.fake.spec import MAX_FIELD, Value
from legato.desktop.fake.widgets import Clipboard, Stroke, Widget


class TextField(Widget):
    """One line of text with a caret; the part around the caret is shown if it is too long."""

    value: str

    def __init__(self, place: d.Rect, size: int, value: str) -> None:
        super().__init__(place, size)
        self.value = value
        self.caret = self._anchor = len(value)
        self._first = 0
        self._inner = place.width - 2 * d.field_padding(size) - 1

    @property
    def selection(self) -> tuple[int, int]:
        """Selected characters ``[start, end)``; empty at the caret if there is none."""
        return min(self.caret, self._anchor), max(self.caret, self._anchor)

    def restore(self, value: Value) -> None:
        self.value = str(value)
        self._first = 0
        self._move(len(self.value), False)

    def select_all(self) -> None:
        self._anchor, self.caret = 0, len(self.value)

    def pictures(self, focused: bool) -> Iterator[d.Picture]:
        shown, start, end = self._view(), *self.selection
        marks = None
        if focused and start < end:
            marks = (self._offset(max(start, self._first)), min(self._offset(end), self._inner))
        caret = self._offset(self.caret) if focused else None
        x, y, _, _ = self.place
        yield (
            x,
            y,
            d.FieldLook(self.place.width, self.place.height, self.size, shown, marks, caret),
        )

    def press(self, x: int, y: int, *, clicks: int = 1, extend: bool = False) -> None:
        if clicks >= 3:
            self.select_all()
        elif clicks == 2:
            self._select_word(self._index_at(x))
        else:
            self._move(self._index_at(x), extend)

    def drag(self, x: int, y: int) -> None:
        self._move(self._index_at(x), True)

    def insert(self, text: str) -> bool:
        start, end = self.selection
        text = text[: MAX_FIELD - len(self.value) + end - start]
        self.value = self.value[:start] + text + self.value[end:]
        self._move(start + len(text), False)
        return False

    def stroke(self, stroke: Stroke, clipboard: Clipboard) -> bool:
        start, end = self.selection
        key = stroke.key.lower() if stroke.ctrl else stroke.key
        if stroke.ctrl and key == "a":
            self.select_all()
        elif stroke.ctrl and key in ("c", "x") and start < end:
            clipboard.text = self.value[start:end]
            if key == "x":
                self.insert("")
        elif stroke.ctrl and key == "v":
            self.insert(clipboard.text)
        elif stroke.key in ("BackSpace", "Delete"):
            self._delete(stroke)
        elif stroke.key in ("Left", "Right", "Home", "End"):
            if start < end and not stroke.shift and stroke.key in ("Left", "Right"):
                self._move(start if stroke.key == "Left" else end, False)
            else:
                self._move(self._target(stroke), stroke.shift)
        return False

    def _delete(self, stroke: Stroke) -> None:
        start, end = self.selection
        if start == end:
            towards = "Left" if stroke.key == "BackSpace" else "Right"
            self._move(self._target(Stroke(towards, ctrl=stroke.ctrl)), True)
        self.insert("")

    def _target(self, stroke: Stroke) -> int:
        match stroke.key:
            case "Home":
                return 0
            case "End":
                return len(self.value)
            case "Left" if stroke.ctrl:
                return self.value.rstrip().rfind(" ", 0, max(self.caret - 1, 0)) + 1
            case "Right" if stroke.ctrl:
                space = self.value.find(" ", self.caret + 1)
                return len(self.value) if space < 0 else space
            case "Left":
                return max(self.caret - 1, 0)
            case _:
                return min(self.caret + 1, len(self.value))

    def _move(self, to: int, extend: bool) -> None:
        self.caret = to
        if not extend:
            self._anchor = to
        self._first = min(self._first, to)
        room = self._inner
        for index in range(to - 1, self._first - 1, -1):
            room -= txt.advance(self.value[index], self.size)
            if room < 0:
                self._first = index + 1
                return

    def _select_word(self, at: int) -> None:
        self._anchor = self.value.rfind(" ", 0, at) + 1
        end = self.value.find(" ", at)
        self.caret = len(self.value) if end < 0 else end

    def _view(self) -> str:
        room, end = self._inner, self._first
        while end < len(self.value):
            room -= txt.advance(self.value[end], self.size)
            if room < 0:
                break
            end += 1
        return self.value[self._first : end]

    def _offset(self, index: int) -> int:
        return txt.width(self.value[self._first : index], self.size)

    def _index_at(self, x: int) -> int:
        left = x - self.place.x0 - d.field_padding(self.size)
        if left < 0:
            return max(self._first - 1, 0)
        for index in range(self._first, len(self.value)):
            step = txt.advance(self.value[index], self.size)
            if left < step / 2:
                return index
            left -= step
        return len(self.value)
