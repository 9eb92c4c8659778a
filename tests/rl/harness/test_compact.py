"""One-line replies, on a 1000x500 screen: a cell of the 100 grid is 10x5 pixels."""

from __future__ import annotations

import pytest

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
)
from legato.errors import ActionError
from legato.rl.harness import make_harness
from tests.rl.harness.talk import generation, screenshot

AT = {"x": 375, "y": 212}


def replies(text: str, **options: int) -> list[AnyAction]:
    conversation = make_harness("compact", tokenizer=None, **options).start("x", (1000, 500))
    conversation.observe(screenshot())
    return conversation.reply(generation(text))


@pytest.mark.parametrize(
    ("reply", "actions"),
    [
        ("click 37 42", [Click(**AT)]),
        ("click B 37 42", [Click(**AT)]),
        ("click Save as 37 42", [Click(**AT)]),
        ("click 7 37 42", [Click(**AT)]),
        ("  click  37   42  ", [Click(**AT)]),
        ("click 37 42\n", [Click(**AT)]),
        ("click 37 42\r\n", [Click(**AT)]),
        ("click 0 0", [Click(x=5, y=2)]),
        ("click 99 99", [Click(x=995, y=497)]),
        ("click 007 0", [Click(x=75, y=2)]),
        ("double_click 37 42", [DoubleClick(**AT)]),
        ("triple_click 37 42", [TripleClick(**AT)]),
        ("right_click C 37 42", [RightClick(**AT)]),
        ("middle_click 37 42", [MiddleClick(**AT)]),
        ("move 37 42", [Move(**AT)]),
        ("drag 37 42 0 99", [Drag(**AT, to_x=5, to_y=497)]),
        ("drag file 37 42 0 99", [Drag(**AT, to_x=5, to_y=497)]),
        ("scroll 37 42 down 5", [Scroll(**AT, direction="down", amount=5)]),
        ("scroll 37 42 up", [Scroll(**AT, direction="up", amount=3)]),
        ("scroll list 37 42 left 1", [Scroll(**AT, direction="left", amount=1)]),
        ("type hello world", [Type(text="hello world")]),
        ("type  two  spaces ", [Type(text=" two  spaces ")]),
        (r"type a\nb\tc\\n\x", [Type(text="a\nb\tc\\n\\x")]),
        ("type click 37 42", [Type(text="click 37 42")]),
        ("key ctrl+s", [Key(key="ctrl+s")]),
        ("key  Return ", [Key(key="Return")]),
        ("key_down shift\nkey_up shift", [KeyDown(key="shift"), KeyUp(key="shift")]),
        ("wait", [Wait()]),
        ("wait 0.5", [Wait(seconds=0.5)]),
        ("done", [Done()]),
        ("fail", [Fail()]),
        ("screenshot", [TakeScreenshot()]),
        ("answer forty two", [Answer(text="forty two")]),
        ("click 37 42\n\ntype a\ndone", [Click(**AT), Type(text="a"), Done()]),
        ("click 37 42\nclick", [Click(**AT)]),
    ],
)
def test_readable(reply: str, actions: list[AnyAction]) -> None:
    assert replies(reply) == actions


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("", "empty"),
        (" \n\t\n", "empty"),
        ("click", "whole numbers"),
        ("click B", "whole numbers"),
        ("click 37", "whole numbers"),
        ("click 37 B", "whole numbers"),
        ("click 3.5 4", "whole numbers"),
        ("click -1 4", "whole numbers"),
        ("click 37,42", "whole numbers"),
        ("click ٣ ٤", "whole numbers"),
        ("click 100 4", "0 to 99"),
        ("click 4 999999", "0 to 99"),
        ("click 1 9999999999", "whole numbers"),
        ("drag 1 2 3", "whole numbers"),
        ("scroll 1 2", "up, down"),
        ("scroll 1 2 sideways 3", "up, down"),
        ("scroll down 3", "whole numbers"),
        ("scroll", "up, down"),
        ("scroll 1 2 down 0", "amount"),
        ("scroll 1 2 down 999", "amount"),
        ("type", "not complete"),
        ("key", "not complete"),
        ("key " + "x" * 101, "key"),
        ("type " + "x" * 10_001, "text"),
        ("wait long", "seconds"),
        ("wait 61", "seconds"),
        ("wait nan", "seconds"),
        ("wait 1 2", "too much"),
        ("done now", "too much"),
        ("answer", "not complete"),
        ("Click 1 2", "must begin with"),
        ("click(1, 2)", "must begin with"),
        ("I would click 1 2", "must begin with"),
        ("mouse_down 1 2", "must begin with"),
        ("\x00", "must begin with"),
        ("nonsense\nclick 37 42", "must begin with"),
    ],
)
def test_unreadable(reply: str, told: str) -> None:
    with pytest.raises(ActionError, match=told) as caught:
        replies(reply)
    assert len(str(caught.value)) < 500


def test_the_finer_grid() -> None:
    assert replies("click 375 999", grid=1000) == [Click(x=375, y=499)]
    with pytest.raises(ActionError, match="0 to 999"):
        replies("click 1000 0", grid=1000)
