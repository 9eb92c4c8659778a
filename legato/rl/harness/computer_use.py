"""The ``computer_use`` tool that Qwen-VL models are trained on: its schema and its arguments.

Names and meanings are those that OSWorld's Qwen agents understand, so that one reply means one
thing in both. Where those agents guess or fall over, this module says what is wrong instead
(:class:`~legato.errors.ActionError`, told back to the policy):

- a point that is missing, has other than two numbers, or lies off the grid: they click where the
  pointer happens to be, raise, move to (0, 0), or clip to the edge;
- an unknown action, or a key action without keys: they do nothing and say nothing.

And where they lose what the model asked for, it is honoured: ``terminate`` with ``failure`` fails
(they report success), ``triple_click`` clicks three times (twice, or not at all), ``hscroll``
scrolls sideways, positive to the right (vertically, or not at all), ``scroll`` with a coordinate
scrolls there (where the pointer is), ``wait`` waits its ``time``. A single key name or a chord
``ctrl+s`` is accepted for ``keys``, and a scroll is cut at 100 wheel clicks.

Alike: a click without ``coordinate`` clicks where the last action left the pointer, a drag starts
there, ``scroll`` counts wheel clicks with positive up, and a ``text`` made of modifier names holds
them around a mouse action for ``qwen3_5``.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    TripleClick,
    Type,
    Wait,
)
from legato.desktop.keys import MODIFIERS, canonical_key
from legato.errors import ActionError

TOOL = "computer_use"
MAX_CLICKS = 100
"""Wheel clicks of one scroll; a longer one is cut to this."""

_AT_POINT: dict[str, type[Click | RightClick | MiddleClick | DoubleClick | TripleClick | Move]] = {
    "left_click": Click,
    "right_click": RightClick,
    "middle_click": MiddleClick,
    "double_click": DoubleClick,
    "triple_click": TripleClick,
    "mouse_move": Move,
}
_NAME_OF = {kind: name for name, kind in _AT_POINT.items()}

_MEANING = {
    "key": "press `keys` together, such as ['ctrl', 's'], and let them go",
    "type": "type `text` where the keyboard focus is",
    "mouse_move": "move the pointer to `coordinate`",
    "left_click": "click at `coordinate`",
    "left_click_drag": "drag with the left button from where the pointer is to `coordinate`",
    "right_click": "click with the right button at `coordinate`",
    "middle_click": "click with the middle button at `coordinate`",
    "double_click": "click twice at `coordinate`",
    "triple_click": "click three times at `coordinate`",
    "scroll": "turn the wheel by `pixels` clicks at `coordinate`; positive is up, negative down",
    "hscroll": "the same sideways; positive is right, negative left",
    "wait": "let `time` seconds pass",
    "terminate": "end the task with `status`",
    "answer": "end the task by replying `text` to the user",
}


@dataclass(frozen=True, slots=True)
class Space:
    """How the coordinates a model writes relate to screen pixels.

    Per axis, ``pixel = int(value * screen / span)``, as OSWorld's agents compute it, cut to the
    last pixel; values from 0 to ``highest`` are on the grid.
    """

    screen: tuple[int, int]
    span: tuple[int, int]
    highest: tuple[int, int]

    @classmethod
    def grid(cls, screen: tuple[int, int]) -> Space:
        """Qwen3-VL and later: 0 to 999 on both axes, whatever the screen."""
        return cls(screen, (999, 999), (999, 999))

    @classmethod
    def image(cls, screen: tuple[int, int], seen: tuple[int, int]) -> Space:
        """Qwen2.5-VL: pixels of the image the model sees, (width, height) ``seen``."""
        return cls(screen, seen, (seen[0] - 1, seen[1] - 1))

    def to_pixel(self, value: float, axis: int) -> int:
        pixel = int(value * (self.screen[axis] / self.span[axis]))
        return min(pixel, self.screen[axis] - 1)

    def from_pixel(self, pixel: int, axis: int) -> int:
        """The value that comes back nearest to ``pixel``."""
        guess = pixel * self.span[axis] // self.screen[axis]
        near = range(max(0, guess - 1), min(self.highest[axis], guess + 2) + 1)
        return min(near, key=lambda value: abs(self.to_pixel(value, axis) - pixel))


def tool(note: str) -> dict[str, Any]:
    """The tool's schema; ``note`` tells the model about its coordinates."""
    meaning = "\n".join(f"* `{name}`: {text}." for name, text in _MEANING.items())
    return {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": f"Work on a computer desktop with mouse and keyboard. {note}",
            "parameters": {
                "type": "object",
                "properties": {
                    "action": {
                        "type": "string",
                        "enum": list(_MEANING),
                        "description": f"What to do:\n{meaning}",
                    },
                    "coordinate": {
                        "type": "array",
                        "description": "[x, y], counted from the top left corner.",
                    },
                    "text": {"type": "string", "description": "For `type` and `answer`."},
                    "keys": {"type": "array", "description": "For `key`."},
                    "pixels": {"type": "number", "description": "For `scroll` and `hscroll`."},
                    "time": {"type": "number", "description": "For `wait`."},
                    "status": {
                        "type": "string",
                        "enum": ["success", "failure"],
                        "description": "For `terminate`.",
                    },
                },
                "required": ["action"],
            },
        },
    }


def read_arguments(
    arguments: Mapping[str, Any],
    space: Space,
    pointer: tuple[int, int] | None,
    *,
    hold_modifiers: bool = False,
) -> list[AnyAction]:
    """The actions of one call, in screen pixels; several only around held modifiers.

    ``pointer`` is where earlier actions left the pointer. With ``hold_modifiers`` a ``text`` of
    modifier names on a mouse action holds them. Raises ``ActionError``.
    """
    name = arguments.get("action")
    held = _modifiers(arguments.get("text")) if hold_modifiers else []
    action = _read_mouse(name, arguments, space, pointer)
    if action is not None:
        down = [KeyDown(key=key) for key in held]
        return [*down, action, *(KeyUp(key=key) for key in reversed(held))]
    match name:
        case "type":
            return [Type(text=_text(arguments))]
        case "key":
            return [Key(key=_chord(arguments.get("keys")))]
        case "wait":
            seconds = _number(arguments, "time", None)
            return [Wait() if seconds is None else Wait(seconds=seconds)]
        case "terminate":
            return [_status(arguments.get("status", "success"))]
        case "answer":
            return [Answer(text=_text(arguments))]
    raise ActionError(f"unknown action {_show(name)}; known: {', '.join(_MEANING)}")


def write_arguments(action: AnyAction, space: Space) -> list[dict[str, Any]]:
    """The calls that ask for ``action``: two for a drag, whose start is a move.

    Raises ``ActionError`` if the tool has no words for it.
    """
    match action:
        case Click() | RightClick() | MiddleClick() | DoubleClick() | TripleClick() | Move():
            point = _write_point(action.x, action.y, space)
            return [{"action": _NAME_OF[type(action)], "coordinate": point}]
        case Drag() if not action.path:
            start = _write_point(action.x, action.y, space)
            end = _write_point(action.to_x, action.to_y, space)
            return [
                {"action": "mouse_move", "coordinate": start},
                {"action": "left_click_drag", "coordinate": end},
            ]
        case Scroll():
            forward = action.direction in ("up", "right")
            vertical = action.direction in ("up", "down")
            return [
                {
                    "action": "scroll" if vertical else "hscroll",
                    "coordinate": _write_point(action.x, action.y, space),
                    "pixels": action.amount if forward else -action.amount,
                }
            ]
        case Type():
            return [{"action": "type", "text": action.text}]
        case Key():
            return [{"action": "key", "keys": _split_chord(action.key)}]
        case Wait():
            return [{"action": "wait", "time": action.seconds}]
        case Done():
            return [{"action": "terminate", "status": "success"}]
        case Fail():
            return [{"action": "terminate", "status": "failure"}]
        case Answer():
            return [{"action": "answer", "text": action.text}]
    what = "a drag along a path" if isinstance(action, Drag) else action.action_type
    raise ActionError(f"{TOOL} has no words for {what}")


# --- one argument at a time --------------------------------------------------------------------


def _read_mouse(
    name: object, arguments: Mapping[str, Any], space: Space, pointer: tuple[int, int] | None
) -> AnyAction | None:
    if name in ("scroll", "hscroll"):
        # The first scroll of an episode often names no point; the screen's middle is where it
        # is meant, and where an X server puts a pointer that nothing has moved.
        middle = space.screen[0] // 2, space.screen[1] // 2
        x, y = _point(arguments, "coordinate", space, pointer or middle)
        clicks = int(_number(arguments, "pixels", 0.0) or 0.0)
        if clicks == 0:
            raise ActionError(f"{name} needs pixels, a number of wheel clicks other than 0")
        amount = min(abs(clicks), MAX_CLICKS)
        if name == "scroll":
            return Scroll(x=x, y=y, direction="up" if clicks > 0 else "down", amount=amount)
        return Scroll(x=x, y=y, direction="right" if clicks > 0 else "left", amount=amount)
    if name == "left_click_drag":
        start, end = pointer, _point(arguments, "coordinate", space, None)
        if "coordinate2" in arguments:  # newer agents give both ends in one call
            start, end = end, _point(arguments, "coordinate2", space, None)
        if start is None:
            raise ActionError("left_click_drag starts at the pointer: use mouse_move first")
        return Drag(x=start[0], y=start[1], to_x=end[0], to_y=end[1])
    if isinstance(name, str) and name in _AT_POINT:
        x, y = _point(arguments, "coordinate", space, None if name == "mouse_move" else pointer)
        return _AT_POINT[name](x=x, y=y)
    return None


def _point(
    arguments: Mapping[str, Any], field: str, space: Space, default: tuple[int, int] | None
) -> tuple[int, int]:
    value = arguments.get(field)
    if value is None and default is not None:
        return default
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in value)
    ):
        raise ActionError(f"{field} must be [x, y], two numbers, got {_show(value)}")
    if not all(0 <= v <= top for v, top in zip(value, space.highest, strict=True)):
        raise ActionError(
            f"{field} {_show(value)} is off the screen: x runs from 0 to {space.highest[0]}, "
            f"y from 0 to {space.highest[1]}"
        )
    return space.to_pixel(value[0], 0), space.to_pixel(value[1], 1)


def _write_point(x: int, y: int, space: Space) -> list[int]:
    if not (0 <= x < space.screen[0] and 0 <= y < space.screen[1]):
        raise ActionError(f"({x}, {y}) lies outside the {space.screen[0]}x{space.screen[1]} screen")
    return [space.from_pixel(x, 0), space.from_pixel(y, 1)]


def _text(arguments: Mapping[str, Any]) -> str:
    value = arguments.get("text")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ActionError(f"{arguments['action']} needs text, a string, got {_show(value)}")
    return value


def _number(arguments: Mapping[str, Any], field: str, default: float | None) -> float | None:
    value = arguments.get(field, default)
    if value is None:
        return default
    try:
        number = float(value) if not isinstance(value, bool | list | dict) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ActionError(f"{field} must be a number, got {_show(value)}")
    return number


def _status(value: object) -> Done | Fail:
    match value.strip().lower() if isinstance(value, str) else value:
        case "success":
            return Done()
        case "failure":
            return Fail()
    raise ActionError(f"status must be success or failure, got {_show(value)}")


def _modifiers(text: object) -> list[str]:
    """The modifiers that ``text`` names, or none if it says anything else."""
    names = [name.strip() for name in text.split("+")] if isinstance(text, str) else []
    try:
        return names if all(canonical_key(name) in MODIFIERS for name in names) else []
    except ActionError:
        return []


def _chord(keys: object) -> str:
    if isinstance(keys, str):
        keys = [keys]
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise ActionError(f"keys must be a list of key names, got {_show(keys)}")
    names = [_key_name(key) for key in keys]
    if not all(names):
        raise ActionError(f"keys holds an empty name: {_show(keys)}")
    # Only a plus sign at the end of a chord can be told from one that joins it.
    return "+".join(["plus" if name == "+" else name for name in names[:-1]] + names[-1:])


def _key_name(key: str) -> str:
    """A key's name without the list syntax that models leave around it, as in ``keys=['ctrl``."""
    if len(key) == 1:
        return key
    key = key.strip().removeprefix("keys=")
    if len(key) > 1:
        key = key.removeprefix("[").removesuffix("]")
    if len(key) > 1:
        key = key.strip("'\"") or key
    return key.strip()


def _split_chord(key: str) -> list[str]:
    if key == "+":
        return ["+"]
    if key.endswith("++"):
        return [*key[:-2].split("+"), "+"]
    return key.split("+")


def _show(value: object) -> str:
    """A value for an error message: short, and printable whatever it holds."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 60
    return short.repr(value)
