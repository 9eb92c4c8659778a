"""Writing an action and reading it back; and that nothing a policy writes is ever a crash."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.desktop.actions import (
    Answer,
    AnyAction,
    Click,
    Done,
    DoubleClick,
    Drag,
    Fail,
    Key,
    MiddleClick,
    MouseDown,
    Move,
    RightClick,
    Scroll,
    TripleClick,
    Type,
    Wait,
    action_json,
    check_on_screen,
)
from legato.errors import ActionError
from legato.rl.harness import make_harness
from legato.rl.tokens import HFTokenizer
from tests.rl.harness.talk import NAMES, generation, screenshot

screens = st.tuples(st.integers(100, 3000), st.integers(100, 3000))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
keys = st.lists(
    st.sampled_from(["ctrl", "shift", "alt", "Return", "F5", "a", "-", "[", "]", "'", '"', "é"]),
    min_size=1,
    max_size=3,
).map("+".join) | st.sampled_from(["+", "ctrl++", "ctrl+shift++"])


@st.composite
def actions(draw: st.DrawFn, screen: tuple[int, int]) -> AnyAction:
    x, y, to_x, to_y = (draw(st.integers(0, screen[i % 2] - 1)) for i in range(4))
    kind = draw(st.sampled_from([Click, DoubleClick, TripleClick, RightClick, MiddleClick, Move]))
    direction = draw(st.sampled_from(["up", "down", "left", "right"]))
    return draw(
        st.sampled_from(
            [
                kind(x=x, y=y),
                Drag(x=x, y=y, to_x=to_x, to_y=to_y),
                Scroll(x=x, y=y, direction=direction, amount=draw(st.integers(1, 100))),
                Type(text=draw(texts)),
                Key(key=draw(keys)),
                Wait(seconds=draw(st.floats(0, 60))),
                Answer(text=draw(texts)),
                Done(),
                Fail(),
            ]
        )
    )


def options_of(name: str) -> list[dict[str, object]]:
    return {
        "compact": [{"grid": 100}, {"grid": 1000}],
        "qwen3_5": [{"thinking": False}, {"thinking": True}],
    }.get(name, [{}])


def cell(name: str, options: dict[str, object], side: int) -> float:
    """How far apart two neighbouring coordinates of the grammar lie, in pixels."""
    grid = options.get("grid", 100) if name == "compact" else 999
    assert isinstance(grid, int)
    return 1.0 if name == "qwen2_5_vl" else max(1.0, side / grid)


@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name in NAMES for options in options_of(name)]
)
def test_what_is_written_reads_back(name: str, options: dict[str, object]) -> None:
    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        screen = data.draw(screens)
        action = data.draw(actions(screen))
        harness = make_harness(name, tokenizer=None, **options)
        conversation = harness.start("x", screen)
        conversation.observe(screenshot())
        read = conversation.reply(generation(harness.render_reply(action, screen)))
        if isinstance(action, Drag) and name != "compact":
            start, *read = read
            assert isinstance(start, Move)
        (back,) = read
        check_on_screen(back, *screen)
        written, found = action_json(action), action_json(back)
        for field, side in [("x", 0), ("y", 1), ("to_x", 0), ("to_y", 1)]:
            if field in written:
                off = abs(written.pop(field) - found.pop(field))
                assert off <= cell(name, options, screen[side])
        assert found == written

    check()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "action",
    [
        MouseDown(x=1, y=1),
        Drag(x=1, y=1, to_x=5, to_y=5, path=((2, 2),)),
        Click(x=64, y=1),
        Click(x=-1, y=1),
        Drag(x=1, y=1, to_x=5, to_y=48),
    ],
)
def test_what_has_no_words_is_refused(name: str, action: AnyAction) -> None:
    with pytest.raises(ActionError):
        make_harness(name, tokenizer=None).render_reply(action, (64, 48))


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_vl", "qwen2_5_vl"])
@pytest.mark.parametrize("tag", ["</tool_call>", "</parameter>", "<function=x>", "</think>"])
def test_a_text_that_would_end_the_call_is_refused(name: str, tag: str) -> None:
    with pytest.raises(ActionError, match="tag"):
        make_harness(name, tokenizer=None).render_reply(Type(text=f"a {tag} b"), (64, 48))


def test_written_replies_survive_the_tokenizer(tokenizer: HFTokenizer) -> None:
    """As supervised rows they are ids; decoded, they are still the action."""
    for name in NAMES:
        harness = make_harness(name, tokenizer=tokenizer)
        reply = harness.render_reply(Type(text="a <|im_end|> b"), (64, 48))
        conversation = harness.start("x", (64, 48))
        conversation.observe(screenshot())
        decoded = tokenizer.decode(tokenizer.encode(reply))
        assert conversation.reply(generation(decoded)) == [Type(text="a <|im_end|> b")]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
action_names = st.sampled_from(
    [
        "key",
        "type",
        "mouse_move",
        "left_click",
        "left_click_drag",
        "right_click",
        "middle_click",
        "double_click",
        "triple_click",
        "scroll",
        "hscroll",
        "wait",
        "terminate",
        "answer",
    ]
)
argument_sets = st.fixed_dictionaries(
    {"action": action_names | json_values},
    optional={
        "coordinate": st.lists(st.integers(-10, 1300) | st.floats(), max_size=3) | json_values,
        "coordinate2": json_values,
        "keys": st.lists(st.text(max_size=12), max_size=3) | json_values,
        "text": json_values,
        "pixels": st.integers() | json_values,
        "time": st.floats() | json_values,
        "status": st.sampled_from(["success", "failure"]) | json_values,
    },
)


def as_json(arguments: object) -> str:
    call = json.dumps({"name": "computer_use", "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


def as_xml(arguments: dict[str, object]) -> str:
    pieces = "".join(
        f"<parameter={name}>\n{value if isinstance(value, str) else json.dumps(value)}\n"
        "</parameter>\n"
        for name, value in arguments.items()
    )
    return f"<tool_call>\n<function=computer_use>\n{pieces}</function>\n</tool_call>"


fragments = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<function=computer_use>", "</function>", "<function="),
        *("<parameter=action>", "<parameter=coordinate>", "</parameter>", "<think>", "</think>"),
        *('{"name": "computer_use", "arguments": ', '{"action": "wait"}', "}", "[", "]", '"', "\\"),
        *("left_click", "wait", "type ", "click ", "scroll ", "37 ", "42 ", "down", "key ", "\n"),
    ]
)
garbage = st.lists(fragments | st.text(max_size=6), max_size=14).map("".join)
fuzz = garbage | st.lists(argument_sets.map(as_json) | argument_sets.map(as_xml) | garbage).map(
    "\n".join
)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_a_policy_writes_is_a_crash(name: str) -> None:
    harness = make_harness(name, tokenizer=None)
    screen = (640, 480)

    @settings(max_examples=400, deadline=None)
    @given(st.lists(fuzz, min_size=1, max_size=3), st.sampled_from(["stop", "length"]))
    def check(walk: list[str], finish_reason: str) -> None:
        conversation = harness.start("x", screen)
        for text in walk:
            conversation.observe(screenshot())
            try:
                read = conversation.reply(
                    generation(text, finish_reason=finish_reason)  # type: ignore[arg-type]
                )
            except ActionError as error:
                told = str(error)
                assert 0 < len(told) < 1000
                told.encode("utf-8")
                continue
            assert read
            for action in read:
                check_on_screen(action, *screen)

    check()
