"""Replies of the Qwen harnesses and the actions they stand for, on a 1280x720 screen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

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
    TripleClick,
    Type,
    Wait,
)
from legato.errors import ActionError
from legato.rl.harness import make_harness
from tests.rl.harness.talk import generation, screenshot

SCREEN = (1280, 720)
QWENS = ["qwen3_5", "qwen3_vl", "qwen2_5_vl"]

# One point of the screen in each harness's coordinates: (640, 360) and (320, 540) in pixels.
MIDDLE: dict[str, list[float]] = {
    "qwen3_5": [500, 500],
    "qwen3_vl": [500, 500],
    "qwen2_5_vl": [644, 364],
}
BELOW: dict[str, list[float]] = {
    "qwen3_5": [250, 750],
    "qwen3_vl": [250, 750],
    "qwen2_5_vl": [322, 546],
}
CORNER: dict[str, list[float]] = {
    "qwen3_5": [999, 999],
    "qwen3_vl": [999, 999],
    "qwen2_5_vl": [1287, 727],
}
OUTSIDE: dict[str, list[float]] = {
    "qwen3_5": [1000, 500],
    "qwen3_vl": [1000, 500],
    "qwen2_5_vl": [1288, 364],
}
POINTS = {"MIDDLE": MIDDLE, "BELOW": BELOW, "CORNER": CORNER, "OUTSIDE": OUTSIDE}


def replies(name: str, *texts: str) -> list[AnyAction]:
    """The actions of the last of some replies of one conversation."""
    conversation = make_harness(name, tokenizer=None).start("x", SCREEN)
    actions: list[AnyAction] = []
    for text in texts:
        conversation.observe(screenshot())
        actions = conversation.reply(generation(text))
    return actions


def json_call(arguments: Mapping[str, Any]) -> str:
    body = json.dumps({"name": "computer_use", "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def xml_call(arguments: Mapping[str, Any]) -> str:
    lines = ["<tool_call>", "<function=computer_use>"]
    for key, value in arguments.items():
        lines += [
            f"<parameter={key}>",
            value if isinstance(value, str) else json.dumps(value),
            "</parameter>",
        ]
    return "\n".join([*lines, "</function>", "</tool_call>"])


def call(name: str, arguments: Mapping[str, Any]) -> str:
    meant = {
        key: POINTS[value][name] if isinstance(value, str) and value in POINTS else value
        for key, value in arguments.items()
    }
    return xml_call(meant) if name == "qwen3_5" else json_call(meant)


AT = {"x": 640, "y": 360}

READABLE: list[tuple[Mapping[str, Any], AnyAction]] = [
    ({"action": "left_click", "coordinate": "MIDDLE"}, Click(**AT)),
    ({"action": "left_click", "coordinate": "BELOW"}, Click(x=320, y=540)),
    ({"action": "left_click", "coordinate": "CORNER"}, Click(x=1279, y=719)),
    ({"action": "left_click", "coordinate": [0, 0]}, Click(x=0, y=0)),
    ({"action": "left_click", "coordinate": [0.5, 0.2]}, Click(x=0, y=0)),
    ({"action": "left_click", "coordinate": "MIDDLE", "text": "Save"}, Click(**AT)),
    ({"action": "left_click", "coordinate": "MIDDLE", "unknown": 1}, Click(**AT)),
    ({"action": "right_click", "coordinate": "MIDDLE"}, RightClick(**AT)),
    ({"action": "middle_click", "coordinate": "MIDDLE"}, MiddleClick(**AT)),
    ({"action": "double_click", "coordinate": "MIDDLE"}, DoubleClick(**AT)),
    ({"action": "triple_click", "coordinate": "MIDDLE"}, TripleClick(**AT)),
    ({"action": "mouse_move", "coordinate": "BELOW"}, Move(x=320, y=540)),
    ({"action": "scroll", "pixels": 5}, Scroll(**AT, direction="up", amount=5)),
    ({"action": "scroll", "pixels": -5}, Scroll(**AT, direction="down", amount=5)),
    ({"action": "scroll", "pixels": "-5"}, Scroll(**AT, direction="down", amount=5)),
    ({"action": "scroll", "pixels": -5.7}, Scroll(**AT, direction="down", amount=5)),
    ({"action": "scroll", "pixels": 1e6}, Scroll(**AT, direction="up", amount=100)),
    (
        {"action": "scroll", "coordinate": "BELOW", "pixels": -3},
        Scroll(x=320, y=540, direction="down", amount=3),
    ),
    ({"action": "hscroll", "pixels": 2}, Scroll(**AT, direction="right", amount=2)),
    ({"action": "hscroll", "pixels": -2}, Scroll(**AT, direction="left", amount=2)),
    (
        {"action": "left_click_drag", "coordinate": "MIDDLE", "coordinate2": "BELOW"},
        Drag(**AT, to_x=320, to_y=540),
    ),
    ({"action": "type", "text": "hello world"}, Type(text="hello world")),
    ({"action": "type", "text": "  two  spaces  "}, Type(text="  two  spaces  ")),
    ({"action": "type", "text": "line\nline\n"}, Type(text="line\nline\n")),
    (
        {"action": "type", "text": 'Ümläut 日本 🙂 it\'s "q" \\n'},
        Type(text='Ümläut 日本 🙂 it\'s "q" \\n'),
    ),
    ({"action": "type", "text": "[1, 2]"}, Type(text="[1, 2]")),
    ({"action": "type", "text": ""}, Type(text="")),
    ({"action": "type", "text": 42}, Type(text="42")),
    ({"action": "type", "text": "<|im_end|>"}, Type(text="<|im_end|>")),
    ({"action": "key", "keys": ["enter"]}, Key(key="enter")),
    ({"action": "key", "keys": ["ctrl", "s"]}, Key(key="ctrl+s")),
    ({"action": "key", "keys": ["ctrl", "shift", "t"]}, Key(key="ctrl+shift+t")),
    ({"action": "key", "keys": ["ctrl", "+"]}, Key(key="ctrl++")),
    ({"action": "key", "keys": ["+", "ctrl"]}, Key(key="plus+ctrl")),
    ({"action": "key", "keys": ["+"]}, Key(key="+")),
    ({"action": "key", "keys": ["]"]}, Key(key="]")),
    ({"action": "key", "keys": [" ctrl ", "c"]}, Key(key="ctrl+c")),
    ({"action": "key", "keys": ["ctrl+c"]}, Key(key="ctrl+c")),
    ({"action": "key", "keys": "enter"}, Key(key="enter")),
    ({"action": "key", "keys": "ctrl+c"}, Key(key="ctrl+c")),
    ({"action": "key", "keys": ["keys=['ctrl'", "'c']"]}, Key(key="ctrl+c")),
    ({"action": "key", "keys": '["ctrl"'}, Key(key="ctrl")),
    ({"action": "key", "keys": ["['alt'", "'F4']"]}, Key(key="alt+F4")),
    ({"action": "wait", "time": 2}, Wait(seconds=2)),
    ({"action": "wait", "time": 0.5}, Wait(seconds=0.5)),
    ({"action": "wait", "time": "3"}, Wait(seconds=3)),
    ({"action": "wait"}, Wait()),
    ({"action": "terminate", "status": "success"}, Done()),
    ({"action": "terminate", "status": "failure"}, Fail()),
    ({"action": "terminate", "status": "Success"}, Done()),
    ({"action": "terminate"}, Done()),
    ({"action": "answer", "text": "It is 42."}, Answer(text="It is 42.")),
]


@pytest.mark.parametrize("name", QWENS)
@pytest.mark.parametrize(("arguments", "action"), READABLE, ids=lambda v: str(v)[:60])
def test_one_call_is_one_action(name: str, arguments: Mapping[str, Any], action: AnyAction) -> None:
    assert replies(name, f"Action: do it.\n{call(name, arguments)}") == [action]


# What is wrong, and a word the policy must be told.
UNREADABLE: list[tuple[Mapping[str, Any], str]] = [
    ({"action": "left_click"}, "coordinate"),  # nothing has moved the pointer yet
    ({"action": "left_click", "coordinate": "OUTSIDE"}, "off the screen"),
    ({"action": "left_click", "coordinate": [-1, 5]}, "off the screen"),
    ({"action": "left_click", "coordinate": [5, -0.1]}, "off the screen"),
    ({"action": "left_click", "coordinate": [5, 10**40]}, "off the screen"),
    ({"action": "left_click", "coordinate": ["5", "6"]}, "two numbers"),
    ({"action": "left_click", "coordinate": "5, 6"}, "two numbers"),
    ({"action": "left_click", "coordinate": [5]}, "two numbers"),
    ({"action": "left_click", "coordinate": [5, 6, 7, 8]}, "two numbers"),
    ({"action": "left_click", "coordinate": []}, "two numbers"),
    ({"action": "left_click", "coordinate": [True, False]}, "two numbers"),
    ({"action": "left_click", "coordinate": [None, 5]}, "two numbers"),
    ({"action": "left_click", "coordinate": [[5], 5]}, "two numbers"),
    ({"action": "left_click", "coordinate": {"x": 5, "y": 6}}, "two numbers"),
    ({"action": "left_click", "coordinate": 5}, "two numbers"),
    ({"action": "mouse_move"}, "coordinate"),
    ({"action": "left_click_drag"}, "coordinate"),
    ({"action": "left_click_drag", "coordinate": "MIDDLE"}, "mouse_move first"),
    ({"action": "left_click_drag", "coordinate": "MIDDLE", "coordinate2": "x"}, "coordinate2"),
    ({"action": "scroll"}, "pixels"),
    ({"action": "scroll", "pixels": 0}, "pixels"),
    ({"action": "scroll", "pixels": 0.4}, "pixels"),
    ({"action": "scroll", "pixels": "down"}, "pixels"),
    ({"action": "scroll", "pixels": [3]}, "pixels"),
    ({"action": "scroll", "pixels": "nan"}, "pixels"),
    ({"action": "scroll", "pixels": 3, "coordinate": "OUTSIDE"}, "off the screen"),
    ({"action": "type"}, "text"),
    ({"action": "type", "text": "x" * 10_001}, "text"),
    ({"action": "key"}, "keys"),
    ({"action": "key", "keys": []}, "keys"),
    ({"action": "key", "keys": [""]}, "empty name"),
    ({"action": "key", "keys": ["ctrl", 5]}, "keys"),
    ({"action": "key", "keys": ["x" * 101]}, "key: "),
    ({"action": "wait", "time": -1}, "seconds"),
    ({"action": "wait", "time": 1e9}, "seconds"),
    ({"action": "wait", "time": "soon"}, "time"),
    ({"action": "wait", "time": "inf"}, "time"),
    ({"action": "terminate", "status": "maybe"}, "success or failure"),
    ({"action": "answer"}, "text"),
    ({"action": "click", "coordinate": "MIDDLE"}, "unknown action.*left_click"),
    ({"action": "LEFT_CLICK", "coordinate": "MIDDLE"}, "unknown action"),
    ({"action": ""}, "unknown action"),
    ({"coordinate": "MIDDLE"}, "unknown action"),
    ({}, "unknown action"),
]


@pytest.mark.parametrize("name", QWENS)
@pytest.mark.parametrize(("arguments", "told"), UNREADABLE, ids=lambda v: str(v)[:60])
def test_a_call_that_makes_no_sense_says_why(
    name: str, arguments: Mapping[str, Any], told: str
) -> None:
    with pytest.raises(ActionError, match=told) as caught:
        replies(name, call(name, arguments))
    assert len(str(caught.value)) < 500


JSON_CLICK = '{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [0, 0]}}'
JSON_DONE = '{"name": "computer_use", "arguments": {"action": "terminate", "status": "success"}}'
CLICK, DONE = Click(x=0, y=0), Done()

JSON_REPLIES: list[tuple[str, list[AnyAction] | str]] = [
    (f"Action: click.\n<tool_call>\n{JSON_CLICK}\n</tool_call>", [CLICK]),
    (f"<tool_call>{JSON_CLICK}</tool_call>", [CLICK]),
    (f"<tool_call>\n\n  {JSON_CLICK}\n", [CLICK]),
    (JSON_CLICK, [CLICK]),
    (f"I will click.\n  {JSON_CLICK}  \nThat is all.", [CLICK]),
    (f"<tool_call>{JSON_CLICK}</tool_call>\n<tool_call>{JSON_DONE}</tool_call>", [CLICK, DONE]),
    (f"{JSON_CLICK}\n{JSON_DONE}", [CLICK, DONE]),
    (f"<tool_call>{JSON_CLICK}</tool_call> {{not json}}", [CLICK]),
    (f"⚗\n{JSON_CLICK}\n⚗", [CLICK]),
    (f"📐\n{JSON_CLICK}\n</tool_call>", [CLICK]),
    (f"<tool_call>{JSON_CLICK}</tool_call><tool_call>{{</tool_call>", [CLICK]),
    (f"<think>\n{JSON_DONE}\n</think>\n{JSON_CLICK}", [CLICK]),
    ("", "no <tool_call>"),
    ("   \n\t ", "no <tool_call>"),
    ("I would click on Save.", "no <tool_call>"),
    ("<tool_call></tool_call>", "no <tool_call>"),
    ("<tool_call>", "no <tool_call>"),
    ("</tool_call>", "no <tool_call>"),
    ("click 37 42", "no <tool_call>"),
    (f"<tool_call>\n{JSON_CLICK[:-1]}\n</tool_call>", "not valid JSON"),
    (f"<tool_call>\n{JSON_CLICK[:30]}", "not valid JSON"),
    (f"<tool_call>{{</tool_call><tool_call>{JSON_CLICK}</tool_call>", "not valid JSON"),
    (f"<tool_call>\n{JSON_CLICK}\n{JSON_DONE}\n</tool_call>", "not valid JSON"),
    ("<tool_call>{'name': 'computer_use'}</tool_call>", "not valid JSON"),
    ("<tool_call>" + "[" * 100_000 + "</tool_call>", "not valid JSON"),
    ("<tool_call>" + "9" * 5_000 + "</tool_call>", "not valid JSON"),
    ("<tool_call>[]</tool_call>", '"name"'),
    ("<tool_call>null</tool_call>", '"name"'),
    ("<tool_call>5</tool_call>", '"name"'),
    ('<tool_call>"x"</tool_call>', '"name"'),
    ('<tool_call>{"arguments": {"action": "wait"}}</tool_call>', '"name"'),
    ('<tool_call>{"name": "computer_use"}</tool_call>', "arguments"),
    ('<tool_call>{"name": "computer_use", "arguments": []}</tool_call>', "arguments"),
    ('<tool_call>{"name": "computer_use", "arguments": "wait"}</tool_call>', "arguments"),
    ('<tool_call>{"name": "computer_use", "arguments": null}</tool_call>', "arguments"),
    ('<tool_call>{"name": "browser", "arguments": {"action": "wait"}}</tool_call>', "only one"),
    ('<tool_call>{"name": 5, "arguments": {"action": "wait"}}</tool_call>', "only one"),
    (json_call({"action": ["left_click"], "coordinate": [0, 0]}), "unknown action"),
    (json_call({"action": None}), "unknown action"),
    (json_call({"action": "left_click", "coordinate": [float("nan"), 5]}), "off the screen"),
    (json_call({"action": "left_click", "coordinate": [float("inf"), 5]}), "off the screen"),
    (json_call({"action": "wait", "time": True}), "time"),
    (json_call({"action": "type", "text": None}), "text"),
    (json_call({"action": "type", "text": ["a"]}), "text"),
    (json_call({"action": "type", "text": True}), "text"),
    (json_call({"action": "type", "text": "\ud800"}), "text"),
    (json_call({"action": "key", "keys": {"a": 1}}), "keys"),
    (json_call({"action": "terminate", "status": 1}), "success or failure"),
    (json_call({"action": "scroll", "pixels": 10**400}), "pixels"),
    ("<function=computer_use><parameter=action>wait</parameter></function>", "no <tool_call>"),
]

XML_WAIT = "<function=computer_use>\n<parameter=action>\nwait\n</parameter>\n</function>"
WAIT = Wait()

XML_REPLIES: list[tuple[str, list[AnyAction] | str]] = [
    (f"Action: wait.\n<tool_call>\n{XML_WAIT}\n</tool_call>", [WAIT]),
    (f"<tool_call>{XML_WAIT}</tool_call>".replace("\n", ""), [WAIT]),
    (f"<tool_call>\n{XML_WAIT}", [WAIT]),
    (XML_WAIT, [WAIT]),
    (f"<tool_call>{XML_WAIT}{XML_WAIT}</tool_call>", [WAIT, WAIT]),
    (f"<tool_call>{XML_WAIT}</tool_call>\n<tool_call>{XML_WAIT}</tool_call>", [WAIT, WAIT]),
    (f"<tool_call>{XML_WAIT}</tool_call><tool_call><function=", [WAIT]),
    (XML_WAIT.replace("=computer_use", "= computer_use "), [WAIT]),
    (
        "<function=computer_use><parameter=action>left_click</parameter>"
        "<parameter=coordinate>[0, 0]</parameter></function>",
        [CLICK],
    ),
    (
        "<function=computer_use><parameter=action>type</parameter>"
        "<parameter=text>\n\n a <b> </i> \n\n</parameter></function>",
        [Type(text="\n a <b> </i> \n")],
    ),
    (
        "<function=computer_use><parameter=action>key</parameter>"
        "<parameter=keys>5</parameter></function>",
        [Key(key="5")],
    ),
    (
        xml_call({"action": "left_click", "coordinate": [0, 0], "text": "ctrl"}),
        [KeyDown(key="ctrl"), CLICK, KeyUp(key="ctrl")],
    ),
    (
        xml_call({"action": "left_click", "coordinate": [0, 0], "text": "ctrl + Shift"}),
        [
            *(KeyDown(key="ctrl"), KeyDown(key="Shift")),
            CLICK,
            *(KeyUp(key="Shift"), KeyUp(key="ctrl")),
        ],
    ),
    (
        xml_call({"action": "scroll", "pixels": -1, "text": "ctrl"}),
        [
            KeyDown(key="ctrl"),
            Scroll(**AT, direction="down", amount=1),
            KeyUp(key="ctrl"),
        ],
    ),
    (xml_call({"action": "left_click", "coordinate": [0, 0], "text": "ctrl+x"}), [CLICK]),
    (xml_call({"action": "left_click", "coordinate": [0, 0], "text": ""}), [CLICK]),
    ("", "no <tool_call>"),
    ("I would click on Save.", "no <tool_call>"),
    ("<tool_call></tool_call>", "<function=computer_use>"),
    (f"<tool_call>\n{JSON_CLICK}\n</tool_call>", "<function=computer_use>"),
    ("<tool_call><function=computer_use>", "</function>"),
    (f"<tool_call>{XML_WAIT[:-11]}</tool_call>", "</function>"),
    ("<function=browser><parameter=action>wait</parameter></function>", "only one"),
    ("<function=></function>", "only one"),
    ("<function=computer_use</function>", "unknown action"),
    ("<function=computer_use></function>", "unknown action"),
    ("<function=computer_use><parameter=action>wait</function>", "</parameter>"),
    ("<function=computer_use><parameter=action</parameter></function>", "</parameter>"),
    (f"<function=computer_use></function>{XML_WAIT}", "unknown action"),
    (xml_call({"action": "left_click", "coordinate": "[0, 0"}), "two numbers"),
    (xml_call({"action": "left_click", "coordinate": "[" * 100_000}), "two numbers"),
    (xml_call({"action": "left_click", "coordinate": "(0, 0)"}), "two numbers"),
    (xml_call({"action": "left_click", "coordinate": "0 0"}), "two numbers"),
    (xml_call({"action": "scroll", "pixels": ""}), "pixels"),
    (xml_call({"action": "scroll", "pixels": "1e999"}), "pixels"),
    (xml_call({"action": "key", "keys": "[]"}), "keys"),
]


def check(name: str, reply: str, expected: Sequence[AnyAction] | str) -> None:
    if isinstance(expected, str):
        with pytest.raises(ActionError, match=expected) as caught:
            replies(name, reply)
        assert len(str(caught.value)) < 500
    else:
        assert replies(name, reply) == expected


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen2_5_vl"])
@pytest.mark.parametrize(("reply", "expected"), JSON_REPLIES, ids=lambda v: repr(v)[:60])
def test_json_replies(name: str, reply: str, expected: list[AnyAction] | str) -> None:
    check(name, reply, expected)


@pytest.mark.parametrize(("reply", "expected"), XML_REPLIES, ids=lambda v: repr(v)[:60])
def test_xml_replies(reply: str, expected: list[AnyAction] | str) -> None:
    check("qwen3_5", reply, expected)


@pytest.mark.parametrize("name", QWENS)
def test_the_pointer_stays_where_actions_left_it(name: str) -> None:
    move = call(name, {"action": "mouse_move", "coordinate": "MIDDLE"})
    wait = call(name, {"action": "wait"})
    click = call(name, {"action": "left_click"})
    scroll = call(name, {"action": "scroll", "pixels": -1})
    drag = call(name, {"action": "left_click_drag", "coordinate": "BELOW"})
    dragged = Drag(**AT, to_x=320, to_y=540)
    assert replies(name, move, wait, click) == [Click(**AT)]
    assert replies(name, move, drag) == [dragged]
    assert replies(name, move, drag, scroll) == [Scroll(x=320, y=540, direction="down", amount=1)]
    assert replies(name, f"{move}\n{drag}\n{click}") == [Move(**AT), dragged, Click(x=320, y=540)]


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen2_5_vl"])
def test_text_on_a_click_holds_nothing_in_the_older_families(name: str) -> None:
    reply = call(name, {"action": "left_click", "coordinate": "MIDDLE", "text": "ctrl"})
    assert replies(name, reply) == [Click(**AT)]


@pytest.mark.parametrize("screen", [(1280, 720), (1920, 1080), (1000, 700), (800, 600)])
def test_every_grid_point_lies_on_the_screen(screen: tuple[int, int]) -> None:
    conversation = make_harness("qwen3_vl", tokenizer=None).start("x", screen)
    last = (0, 0)
    for value in range(1000):
        conversation.observe(screenshot())
        (action,) = conversation.reply(
            generation(json_call({"action": "left_click", "coordinate": [value, value]}))
        )
        assert isinstance(action, Click)
        assert last <= (action.x, action.y) < screen
        last = (action.x, action.y)
    assert last == (screen[0] - 1, screen[1] - 1)
