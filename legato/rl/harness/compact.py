"""One-line replies and small screenshots, for models of a few million parameters.

======================================  =======================================================
``click 37 42``                         also ``double_click``, ``triple_click``, ``right_click``,
                                        ``middle_click``, ``move``
``click B 37 42``                       words before the numbers are a label, and ignored
``drag 10 20 30 40``                    from, to
``scroll 37 42 down 3``                 up, down, left or right; 3 wheel clicks if not said
``type hello world``                    ``\\n``, ``\\r``, ``\\t`` and ``\\\\`` are the usual escapes
``key ctrl+s``                          also ``key_down``, ``key_up``
``wait 2``                              seconds; 1 if not said
``answer forty-two``                    ends the task, as do ``done`` and ``fail``
``screenshot``                          look again
======================================  =======================================================

Several lines are several actions, in order. Coordinates count the cells of a grid over the screen
from 0; an action goes to the middle of its cell.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from legato.desktop.actions import (
    Answer,
    AnyAction,
    Click,
    Done,
    DoubleClick,
    Drag,
    Fail,
    Key,
    KeyDown,
    KeyUp,
    MiddleClick,
    Move,
    RightClick,
    Scroll,
    TakeScreenshot,
    TripleClick,
    Type,
    Wait,
    parse_action,
)
from legato.desktop.contract import Screenshot
from legato.errors import ActionError
from legato.rl.harness.chat import ChatHarness, Point, Reading, Size
from legato.rl.harness.options import read_options
from legato.rl.harness.view import resize
from legato.rl.types import Tokenizer

_AT_POINT = ("click", "double_click", "triple_click", "right_click", "middle_click", "move")
_TEXT = ("type", "answer")
_KEY = ("key", "key_down", "key_up")
_BARE = ("done", "fail", "screenshot")
_VERBS = (*_AT_POINT, "drag", "scroll", *_TEXT, *_KEY, "wait", *_BARE)
_INTEGER = re.compile(r"[0-9]{1,6}")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNESCAPES = {written: meant for meant, written in _ESCAPES.items()}
_ESCAPED = re.compile(r"\\[\\nrt]")


@dataclass(frozen=True)
class CompactOptions:
    width: Annotated[int, Field(ge=1, le=4096)] = 256
    height: Annotated[int, Field(ge=1, le=4096)] = 144
    """Pixels of the screenshot as the model sees it."""
    grid: Annotated[Literal[100, 1000], BeforeValidator(int)] = 100
    """Cells along each axis of the screen."""


class Compact(ChatHarness):
    name = "compact"

    def __init__(self, *, tokenizer: Tokenizer | None, image_max: int, **options: Any) -> None:
        super().__init__(tokenizer=tokenizer, image_max=image_max)
        self.options = read_options(CompactOptions, self.name, options)

    def system(self, screen: Size) -> str:
        return (
            "Reply with one action: click x y, double_click x y, right_click x y, drag x y x y, "
            "scroll x y down 3, type text, key ctrl+s, wait, done, fail, answer text. "
            f"x and y go from 0 to {self.options.grid - 1}."
        )

    def task(self, instruction: str) -> str:
        return instruction

    def view(self, screenshot: Screenshot) -> Screenshot:
        return resize(screenshot, (self.options.width, self.options.height))

    def read(self, reply: str, screen: Size, pointer: Point | None) -> Reading:
        actions: list[AnyAction] = []
        try:
            for line in filter(str.strip, reply.split("\n")):
                actions += [self._read_line(line.lstrip().removesuffix("\r"), screen)]
        except ActionError as error:
            where = "A line after those performed was left out" if actions else "No action"
            return Reading(tuple(actions), f"{where}: {error}")
        return Reading(tuple(actions), None if actions else "the reply is empty")

    def render_reply(self, action: AnyAction, screen: Size) -> str:
        verb = action.action_type
        match action:
            case Click() | DoubleClick() | TripleClick() | RightClick() | MiddleClick() | Move():
                return f"{verb} {self._write_point(action.x, action.y, screen)}"
            case Drag() if not action.path:
                start = self._write_point(action.x, action.y, screen)
                return f"{verb} {start} {self._write_point(action.to_x, action.to_y, screen)}"
            case Scroll():
                point = self._write_point(action.x, action.y, screen)
                return f"{verb} {point} {action.direction} {action.amount}"
            case Type() | Answer():
                return f"{verb} {''.join(_ESCAPES.get(c, c) for c in action.text)}"
            case Key() | KeyDown() | KeyUp():
                if action.key.strip() != action.key or "\n" in action.key:
                    raise ActionError("write a key by its name, such as space or Return")
                return f"{verb} {action.key}"
            case Wait():
                return f"{verb} {action.seconds}"
            case Done() | Fail() | TakeScreenshot():
                return verb
        what = "a drag along a path" if isinstance(action, Drag) else verb
        raise ActionError(f"the compact grammar has no words for {what}")

    def _read_line(self, line: str, screen: Size) -> AnyAction:
        verb, spaced, rest = line.partition(" ")
        verb = verb.strip()
        words = rest.split()
        if verb in _AT_POINT:
            x, y = self._points(verb, words, screen, 1)[0]
            return parse_action({"action_type": verb, "x": x, "y": y})
        if verb == "drag":
            (x, y), (to_x, to_y) = self._points(verb, words, screen, 2)
            return Drag(x=x, y=y, to_x=to_x, to_y=to_y)
        if verb == "scroll":
            return self._scroll(words, screen)
        if verb in _TEXT and spaced:
            text = _ESCAPED.sub(lambda match: _UNESCAPES[match.group()], rest)
            return parse_action({"action_type": verb, "text": text})
        if verb in _KEY and words:
            return parse_action({"action_type": verb, "key": rest.strip()})
        if verb == "wait" and len(words) <= 1:
            return parse_action({"action_type": verb, **({"seconds": words[0]} if words else {})})
        if verb in _BARE and not words:
            return parse_action({"action_type": verb})
        if verb in _VERBS:
            raise ActionError(f"{verb} is not complete, or says too much")
        raise ActionError(f"a line must begin with one of: {', '.join(_VERBS)}")

    def _scroll(self, words: list[str], screen: Size) -> AnyAction:
        amount = {}
        if len(words) > 1 and _INTEGER.fullmatch(words[-1]):
            *words, count = words
            amount = {"amount": int(count)}
        if not words or words[-1] not in ("up", "down", "left", "right"):
            raise ActionError("scroll ends with up, down, left or right, and a number of clicks")
        x, y = self._points("scroll", words[:-1], screen, 1)[0]
        return parse_action(
            {"action_type": "scroll", "x": x, "y": y, "direction": words[-1], **amount}
        )

    def _points(self, verb: str, words: list[str], screen: Size, count: int) -> list[Point]:
        numbers = words[-2 * count :]
        if len(numbers) < 2 * count or not all(_INTEGER.fullmatch(word) for word in numbers):
            raise ActionError(f"{verb} needs {2 * count} whole numbers, x and y")
        cells = [int(word) for word in numbers]
        if max(cells) >= self.options.grid:
            raise ActionError(f"x and y go from 0 to {self.options.grid - 1}, got {max(cells)}")
        pairs = zip(cells[::2], cells[1::2], strict=True)
        return [(self._middle(x, screen[0]), self._middle(y, screen[1])) for x, y in pairs]

    def _middle(self, cell: int, side: int) -> int:
        return (2 * cell + 1) * side // (2 * self.options.grid)

    def _write_point(self, x: int, y: int, screen: Size) -> str:
        if not (0 <= x < screen[0] and 0 <= y < screen[1]):
            raise ActionError(f"({x}, {y}) lies outside the {screen[0]}x{screen[1]} screen")
        return f"{x * self.options.grid // screen[0]} {y * self.options.grid // screen[1]}"
