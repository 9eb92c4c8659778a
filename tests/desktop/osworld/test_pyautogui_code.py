"""Actions become pyautogui code that means the same, and what it cannot do is refused."""

from __future__ import annotations

from typing import Any

import pytest

from legato.desktop.actions import AnyAction, parse_action
from legato.desktop.osworld.pyautogui_code import read_code, write_code
from legato.errors import ActionError

AT = {"x": 30, "y": 40}


def action(action_type: str, **fields: Any) -> AnyAction:
    return parse_action({"action_type": action_type, **fields})


@pytest.mark.parametrize(
    "done",
    [
        *(action(name, **AT) for name in ("click", "double_click", "triple_click", "move")),
        *(action(name, **AT) for name in ("right_click", "middle_click")),
        *(
            action("scroll", **AT, direction=direction, amount=7)
            for direction in ("up", "down", "left", "right")
        ),
        action("type", text='it\'s "quoted" \\ {x} \t\n\\N{LESS-THAN SIGN}'),
        action("key", key="ctrl+shift+t"),
        action("key", key="ctrl++"),
        action("key", key="f5"),
        action("key_down", key="shift"),
        action("key_up", key="alt"),
        action("done"),
        action("fail"),
    ],
)
def test_read_back_it_is_the_same(done: AnyAction) -> None:
    assert read_code(write_code(done)) == [done]


@pytest.mark.parametrize(
    ("done", "code"),
    [
        (
            action("type", text="a<b"),
            "pyautogui.write('a'); pyautogui.hotkey('shift', ','); pyautogui.write('b')",
        ),
        (action("key", key="<"), "pyautogui.hotkey('shift', ',')"),
        (action("key", key="Return"), "pyautogui.press('enter')"),
        (action("mouse_down", **AT), "pyautogui.mouseDown(x=30, y=40, button='left')"),
        (action("mouse_up", button="right"), "pyautogui.mouseUp(button='right')"),
        (action("answer", text="42"), "DONE"),
        (action("wait", seconds=5), "WAIT"),
        (action("screenshot"), "WAIT"),
    ],
)
def test_the_code(done: AnyAction, code: str) -> None:
    assert write_code(done) == code


def test_a_drag_holds_the_button_along_its_path() -> None:
    code = write_code(action("drag", **AT, to_x=50, to_y=60, path=[[45, 55]]))
    calls = [call.partition("(")[0] for call in code.split("; ")]
    names = ["moveTo", "mouseDown", "moveTo", "moveTo", "mouseUp"]
    assert calls == [f"pyautogui.{name}" for name in names]


@pytest.mark.parametrize(
    "refused", [action("type", text="é"), action("type", text="a\x07"), action("key", key="Eacute")]
)
def test_what_pyautogui_leaves_out_is_refused(refused: AnyAction) -> None:
    with pytest.raises(ActionError, match="OSWorld's desktops"):
        write_code(refused)


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "pyautogui.click()",
        "pyautogui.dragTo(1, 2)",
        "pyautogui.sleep(1)",
        "x = 1",
        "pyautogui.click(f())",
        "pyautogui.typewrite('it's')",
        "\0",
        "open('/etc/passwd')",
    ],
)
def test_code_that_is_no_known_call_is_refused(code: str) -> None:
    with pytest.raises(ActionError):
        read_code(code)
