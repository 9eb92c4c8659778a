"""Actions as the pyautogui code that OSWorld runs in its guests, and back.

Names are those of PyAutoGUI 0.9.54 (https://pyautogui.readthedocs.io) and, for the three words that
are no code (``WAIT``, ``DONE``, ``FAIL``), of OSWorld's ``DesktopEnv.step``.
"""

from __future__ import annotations

import ast
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
    MouseDown,
    MouseUp,
    Move,
    RightClick,
    Scroll,
    TakeScreenshot,
    TripleClick,
    Type,
    Wait,
)
from legato.desktop.keys import parse_chord
from legato.errors import ActionError

DRAG_S = 0.5
"""Seconds a drag takes, as OSWorld's agents have it."""
DEFAULT_WAIT_S = 2.0
"""What ``WAIT`` waits: the pause of ``DesktopEnv.step``."""

_KEYS = {
    "Return": "enter",
    "Escape": "esc",
    "BackSpace": "backspace",
    "Tab": "tab",
    "Delete": "delete",
    "Insert": "insert",
    "Home": "home",
    "End": "end",
    "Page_Up": "pageup",
    "Page_Down": "pagedown",
    "Left": "left",
    "Right": "right",
    "Up": "up",
    "Down": "down",
    "Print": "printscreen",
    "Pause": "pause",
    "Scroll_Lock": "scrolllock",
    "Num_Lock": "numlock",
    "Caps_Lock": "capslock",
    "Menu": "apps",
    "Shift_L": "shift",
    "Shift_R": "shiftright",
    "Control_L": "ctrl",
    "Control_R": "ctrlright",
    "Alt_L": "alt",
    "Alt_R": "altright",
    "Super_L": "win",
    "Super_R": "winright",
    "KP_Multiply": "multiply",
    "KP_Add": "add",
    "KP_Subtract": "subtract",
    "KP_Decimal": "decimal",
    "KP_Divide": "divide",
    **{f"KP_{i}": f"num{i}" for i in range(10)},
    **{f"F{i}": f"f{i}" for i in range(1, 25)},
    "XF86AudioLowerVolume": "volumedown",
    "XF86AudioMute": "volumemute",
    "XF86AudioRaiseVolume": "volumeup",
    "XF86AudioPlay": "playpause",
    "XF86AudioStop": "stop",
    "XF86AudioPrev": "prevtrack",
    "XF86AudioNext": "nexttrack",
}
"""Canonical key names to pyautogui's; printable ASCII characters are their own names in both."""

_AT_POINT: dict[type[Any], str] = {
    Click: "click",
    DoubleClick: "doubleClick",
    TripleClick: "tripleClick",
    RightClick: "rightClick",
    MiddleClick: "middleClick",
    Move: "moveTo",
}
_KIND: dict[str, Any] = {name: kind for kind, name in _AT_POINT.items()}


def write_code(action: AnyAction) -> str:
    """The code that performs an action in an OSWorld guest.

    Raises :class:`~legato.errors.ActionError` for what pyautogui cannot do: it leaves out, without
    a word, characters outside ASCII and keys it does not know.
    """
    if name := _AT_POINT.get(type(action)):
        (x, y) = action.points()[0]
        return f"pyautogui.{name}({x}, {y})"
    match action:
        case Drag():
            return _write_drag(action)
        case MouseDown() | MouseUp():
            name = "mouseDown" if isinstance(action, MouseDown) else "mouseUp"
            at = "".join(
                f"{axis}={v}, " for axis, v in zip("xy", (action.x, action.y), strict=True)
            )
            return f"pyautogui.{name}({at if action.x is not None else ''}button={action.button!r})"
        case Scroll():
            wheel = "scroll" if action.direction in ("up", "down") else "hscroll"
            clicks = action.amount if action.direction in ("up", "right") else -action.amount
            return f"pyautogui.{wheel}({clicks}, x={action.x}, y={action.y})"
        case Type():
            return _write_text(action.text)
        case Key():
            names = _key_names(action.key)
            call = "press" if len(names) == 1 else "hotkey"
            return f"pyautogui.{call}({', '.join(map(repr, names))})"
        case KeyDown() | KeyUp():
            name = "keyDown" if isinstance(action, KeyDown) else "keyUp"
            return "; ".join(f"pyautogui.{name}({key!r})" for key in _key_names(action.key))
        case Done() | Answer():
            return "DONE"
        case Fail():
            return "FAIL"
        case Wait() | TakeScreenshot():
            return "WAIT"
    raise ActionError(f"OSWorld's desktops cannot perform {action.action_type!r}")


def _write_drag(action: Drag) -> str:
    points = [*action.path, (action.to_x, action.to_y)]
    moves = [f"pyautogui.moveTo({x}, {y}, duration={DRAG_S / len(points):g})" for x, y in points]
    return "; ".join(
        [
            f"pyautogui.moveTo({action.x}, {action.y})",
            "pyautogui.mouseDown()",
            *moves,
            "pyautogui.mouseUp()",
        ]
    )


def _write_text(text: str) -> str:
    """By ``write``, which is ``typewrite`` under a name that OSWorld does not rewrite.

    Its rewriting of ``<`` (which pyautogui types as ``>``) takes the code apart by a regular
    expression that quotes and backslashes in the text break. The same is done here instead.
    """
    text = text.replace("\r\n", "\n")
    if odd := next((c for c in text if not (" " <= c <= "~" or c in "\n\t")), None):
        raise ActionError(f"OSWorld's desktops can type ASCII only, not {odd!r}")
    parts = []
    for number, part in enumerate(text.split("<")):
        if number:
            parts.append("pyautogui.hotkey('shift', ',')")
        if part:
            parts.append(f"pyautogui.write({part!r})")
    return "; ".join(parts) or "pass"


def _key_names(chord: str) -> list[str]:
    names = []
    for key in parse_chord(chord):
        name = _KEYS.get(key, key if len(key) == 1 and " " <= key <= "~" else None)
        if name is None:
            raise ActionError(f"OSWorld's desktops have no key {key!r}")
        names.append(name)
    # On its own it would come out as the character above it: the same fault as in a text.
    return ["shift", ","] if names == ["<"] else names


def read_code(code: str, pointer: tuple[int, int] | None = None) -> list[AnyAction]:
    """The actions that a piece of an agent's code stands for.

    Known are the calls that OSWorld's Qwen agents write, joined by ``;`` or lines. ``pointer`` is
    where earlier actions left the pointer, for calls that name no place. Raises
    :class:`~legato.errors.ActionError` for any other code.
    """
    words: dict[str, AnyAction] = {
        "WAIT": Wait(seconds=DEFAULT_WAIT_S),
        "DONE": Done(),
        "FAIL": Fail(),
    }
    if word := words.get(code.strip()):
        return [word]
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError) as e:
        raise ActionError(f"the agent's code cannot be read: {e}") from None
    actions: list[AnyAction] = []
    for statement in tree.body:
        try:
            actions += _read_call(statement, pointer)
        except (TypeError, ValueError, IndexError) as e:
            raise ActionError(f"the agent's code cannot be read: {e}") from None
        pointer = next((a.points()[-1] for a in reversed(actions) if a.points()), pointer)
    return actions


def _read_call(statement: ast.stmt, pointer: tuple[int, int] | None) -> list[AnyAction]:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        raise ActionError(
            f"the agent's code does more than call pyautogui: {ast.unparse(statement)}"
        )
    name = call.func.attr
    values = [ast.literal_eval(argument) for argument in call.args]
    named = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    if kind := _KIND.get(name):
        x, y = _place(values, named, pointer)
        action: AnyAction = kind(x=x, y=y)
        return [action]
    match name:
        case "dragTo":
            x, y = _place(values, named, None)
            if pointer is None:
                raise ActionError("a drag starts at the pointer, and nothing has moved it yet")
            return [Drag(x=pointer[0], y=pointer[1], to_x=x, to_y=y)]
        case "typewrite" | "write":
            return [Type(text=values[0])]
        case "press":
            return [Key(key=_chord([values[0]]))]
        case "hotkey":
            return [Key(key=_chord(values))]
        case "keyDown" | "keyUp":
            return [(KeyDown if name == "keyDown" else KeyUp)(key=_chord(values[:1]))]
        case "scroll" | "hscroll":
            clicks = int(values[0])
            x, y = _place(values[1:], named, pointer)
            if not clicks:
                return []
            amount = min(abs(clicks), 100)
            if name == "scroll":
                return [Scroll(x=x, y=y, direction="up" if clicks > 0 else "down", amount=amount)]
            return [Scroll(x=x, y=y, direction="right" if clicks > 0 else "left", amount=amount)]
    raise ActionError(f"the agent's code calls {name!r}, which is not understood")


def _place(
    values: list[Any], named: dict[str | None, Any], pointer: tuple[int, int] | None
) -> tuple[int, int]:
    x, y = (named.get("x"), named.get("y")) if "x" in named else (values[:2] or [None, None])
    if x is None or y is None:
        if pointer is None:
            raise ActionError("the agent's code names no place, and nothing has moved the pointer")
        return pointer
    return int(x), int(y)


def _chord(keys: list[Any]) -> str:
    names = [str(key) for key in keys]
    return "+".join(["plus" if name == "+" else name for name in names[:-1]] + names[-1:])
