"""Typing through XTEST: any Unicode text, in any toolkit.

A key can only be pressed if the keyboard has it, so characters it lacks are first put on spare
keycodes. Programs hear of the new map (``MappingNotify``) before the key events that follow, but
fetch it when they get to it: the map must stay as it is until they have handled what was typed.
That is awaited with a ping; see :meth:`Keyboard._settle`.
"""

from __future__ import annotations

import struct
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

from xcffib.xproto import KB, AutoRepeatMode, KeyButMask

from legato.desktop import keys
from legato.desktop.x11.connection import XConnection
from legato.desktop.x11.windows import Windows
from legato.errors import ActionError, EnvFailure

KEY_PRESS, KEY_RELEASE = 2, 3

PONG_S = 2.0
"""A program that takes longer than this to handle its input is as good as one without pings."""
REST_S = 0.03
"""Programs that take no pings (xterm) have handled their input when every process has rested for
two times this long: a program with input is woken at once, and then runs or waits to run."""
RESTING_SHARE = 0.2

BEFORE_RETURN_S = 0.2
"""GTK's file dialogs enable their button up to 150 ms after the last letter, by a timer; a Return
before that is lost. So the line break that ends a text comes later, as it does from people."""

SYNC_EVERY = 200
"""Events between round trips, so that a hung server fills no socket buffer we would block on."""

_CONTROL = {"\n": "Return", "\t": "Tab", "\b": "BackSpace"}
_LETTERS_LOSE_CASE = frozenset({"Control_L", "Control_R", "Alt_L", "Alt_R", "Super_L", "Super_R"})

Stroke = tuple[int, bool]
"""A keycode, and whether it needs Shift."""


class Keyboard:
    """Types text and presses keys. Raises ``ActionError`` before anything was sent."""

    def __init__(
        self,
        x: XConnection,
        windows: Windows,
        busy_seconds: Callable[[], float],
        cancelled: threading.Event,
    ) -> None:
        self._x = x
        self._windows = windows
        self._busy_seconds = busy_seconds
        self._cancelled = cancelled
        self._held: set[int] = set()
        self._sent = 0
        self._fixed: dict[int, Stroke] = {}
        self._spare: dict[int, int] = {}
        """Keycode to the symbol put on it (0: none yet), least recently used first."""
        self._read_map()
        # The server would repeat a key whose release it gets late, from a driver that was not
        # scheduled in between: letters doubled at random.
        with x.guarded():
            x.conn.core.ChangeKeyboardControl(KB.AutoRepeatMode, [AutoRepeatMode.Off])
        x.sync()

    def type_text(self, text: str) -> None:
        """Type ``text``; a line break is Return. Control characters are an ``ActionError``."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        symbols = [_character(c) for c in text]
        caps = self._caps_lock_is_on()
        if caps:
            self._tap((self._fixed[keys.KEYSYMS["Caps_Lock"]][0], False))
        body = len(text.rstrip("\n"))
        self._type_symbols(symbols[:body])
        if 0 < body < len(symbols):
            self._x.sync()
            self._pause(BEFORE_RETURN_S)
        self._type_symbols(symbols[body:])
        if caps:
            self._tap((self._fixed[keys.KEYSYMS["Caps_Lock"]][0], False))
        self._x.sync()

    def _type_symbols(self, symbols: Sequence[int]) -> None:
        for batch in self._batches(symbols):
            self._provide(batch)
            for symbol in batch:
                self._tap(self._stroke(symbol))

    def chord(self, key: str) -> None:
        """Press the keys of ``ctrl+shift+t`` in order and release them in reverse.

        With Ctrl, Alt or Super the case of a letter means nothing: models write ``Ctrl+S`` for
        what people type without Shift.
        """
        names = keys.parse_chord(key)
        if not _LETTERS_LOSE_CASE.isdisjoint(names):
            names = tuple(n.lower() if len(n) == 1 else n for n in names)
        symbols = [keys.keysym(name) for name in names]
        self._provide(symbols)
        strokes = [self._stroke(symbol) for symbol in symbols]
        shift = self._fixed[keys.KEYSYMS["Shift_L"]][0]
        codes = [code for code, _ in strokes]
        if any(shifted for _, shifted in strokes) and shift not in codes:
            codes.insert(len(codes) - 1, shift)
        for code in codes:
            self._send(KEY_PRESS, code)
        for code in reversed(codes):
            self._send(KEY_RELEASE, code)
            self._held.discard(code)
        self._x.sync()

    def down(self, key: str) -> None:
        """Press one key, or every key of a chord, and leave it pressed."""
        for code in self._codes(key):
            self._send(KEY_PRESS, code)
            self._held.add(code)
        self._x.sync()

    def up(self, key: str) -> None:
        """Release one key, or every key of a chord; harmless if it is not pressed."""
        for code in reversed(self._codes(key)):
            self._send(KEY_RELEASE, code)
            self._held.discard(code)
        self._x.sync()

    def _codes(self, key: str) -> list[int]:
        symbols = [keys.keysym(name) for name in keys.parse_chord(key)]
        self._provide(symbols)
        return [self._stroke(symbol)[0] for symbol in symbols]

    def _tap(self, stroke: Stroke) -> None:
        code, shifted = stroke
        shift = self._fixed[keys.KEYSYMS["Shift_L"]][0]
        shifted = shifted and shift not in self._held
        if shifted:
            self._send(KEY_PRESS, shift)
        self._send(KEY_PRESS, code)
        self._send(KEY_RELEASE, code)
        if shifted:
            self._send(KEY_RELEASE, shift)

    def _send(self, kind: int, code: int) -> None:
        self._x.fake_input(kind, code)
        self._sent += 1
        if self._sent % SYNC_EVERY == 0:
            self._x.sync()
            self._pause(0.0)

    def _stroke(self, symbol: int) -> Stroke:
        if symbol in self._fixed:
            return self._fixed[symbol]
        return next((code, False) for code, s in self._spare.items() if s == symbol)

    def _batches(self, symbols: Sequence[int]) -> Iterator[list[int]]:
        """Split into stretches whose missing symbols all fit on the spare keycodes at once."""
        batch: list[int] = []
        missing: set[int] = set()
        for symbol in symbols:
            if symbol not in self._fixed and symbol not in missing:
                if len(missing) == len(self._spare):
                    yield batch
                    batch, missing = [], set()
                missing.add(symbol)
            batch.append(symbol)
        yield batch

    def _provide(self, symbols: Iterable[int]) -> None:
        """Put the symbols that the keyboard lacks on spare keycodes."""
        wanted = [s for s in dict.fromkeys(symbols) if s not in self._fixed]
        if len(wanted) > len(self._spare):
            raise ActionError(f"a chord of {len(wanted)} keys that the keyboard lacks")
        present = {s: code for code, s in self._spare.items() if s}
        for symbol in wanted:
            if symbol in present:
                self._spare[present[symbol]] = self._spare.pop(present[symbol])
        missing = [s for s in wanted if s not in present]
        if not missing:
            return
        # The least recently used come first, so none that this call needs is taken.
        codes = list(self._spare)[: len(missing)]
        if any(self._spare[code] for code in codes):
            self._settle()  # what was typed with these must be understood first
        for code, symbol in zip(codes, missing, strict=True):
            with self._x.guarded():
                self._x.conn.core.ChangeKeyboardMapping(1, code, 2, [symbol, symbol])
            del self._spare[code]
            self._spare[code] = symbol
        self._announce()
        self._settle()

    def _announce(self) -> None:
        """Tell every program once more that the map changed.

        Chromium asks for XKB's own news of a new keyboard and no other; but it believes a plain
        ``MappingNotify`` (event 34; request 1: keyboard) from anyone.
        """
        setup = self._x.conn.setup
        first, count = setup.min_keycode, setup.max_keycode - setup.min_keycode + 1
        event = struct.pack("=BBHBBBx24x", 34, 0, 0, 1, first, count)
        for window in self._windows.managed():
            with self._x.guarded():
                self._x.conn.core.SendEvent(False, window, 0, event)
        self._x.sync()

    def _settle(self) -> None:
        """Wait until the program that gets our keys has handled all it was sent, new map included.

        There is a signal for it in most (GTK, Qt, Chromium): the answer to a ping.
        """
        if self._windows.ping(self._windows.active(), PONG_S):
            return
        deadline = time.monotonic() + PONG_S
        rests = 0
        then, before = time.monotonic(), self._busy_seconds()
        while rests < 2 and then < deadline:
            self._pause(REST_S)
            now, busy = time.monotonic(), self._busy_seconds()
            rests = rests + 1 if busy - before < RESTING_SHARE * (now - then) else 0
            then, before = now, busy

    def _pause(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise EnvFailure("the desktop was stopped while it typed")

    def _caps_lock_is_on(self) -> bool:
        with self._x.guarded():
            state = self._x.conn.core.QueryPointer(self._x.root).reply().mask
        return bool(state & KeyButMask.Lock)

    def _read_map(self) -> None:
        first = self._x.conn.setup.min_keycode
        count = self._x.conn.setup.max_keycode - first + 1
        with self._x.guarded():
            reply = self._x.conn.core.GetKeyboardMapping(first, count).reply()
        width, flat = reply.keysyms_per_keycode, list(reply.keysyms)
        empty = []
        for i in range(count):
            row = flat[i * width : (i + 1) * width]
            if not any(row):
                empty.append(first + i)
            for column in (0, 1):
                if column < width and row[column]:
                    better = column == 0 and self._fixed.get(row[0], (0, True))[1]
                    if row[column] not in self._fixed or better:
                        self._fixed[row[column]] = first + i, column == 1
        # Not those of multimedia keys too: Chromium knows these by their code, whatever is on them.
        self._spare = dict.fromkeys(empty, 0)


def _character(character: str) -> int:
    """The keysym of one character of a text."""
    if character in _CONTROL:
        return keys.KEYSYMS[_CONTROL[character]]
    if unicodedata.category(character) in ("Cc", "Cs"):
        raise ActionError(f"cannot type the control character U+{ord(character):04X}")
    code = ord(character)
    return code if code < 0x100 else 0x0100_0000 + code
