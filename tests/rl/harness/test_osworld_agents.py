"""OSWorld's own Qwen agents: one reply means one thing in theirs and in our harnesses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.actions import AnyAction, Wait
from legato.desktop.osworld.environment import build
from legato.errors import ActionError, ConfigError
from legato.rl.harness import make_harness
from legato.rl.harness.osworld import AgentConversation, OSWorldAgents
from legato.rl.types import Conversation
from tests.conftest import REPO
from tests.rl.harness.talk import generation, screenshot

SCREEN = (1288, 728)
"""A multiple of Qwen2.5-VL's patches, so that both see the same pixels."""
AGENTS = ("qwen3_vl", "qwen2_5_vl")


def call(**arguments: Any) -> str:
    body = json.dumps({"name": "computer_use", "arguments": arguments}, ensure_ascii=False)
    return f"Action: go on\n<tool_call>\n{body}\n</tool_call>"


def bare(text: str) -> str:
    return f"Action: go on\n<tool_call>\n{text}\n</tool_call>"


def points() -> list[str]:
    names = ("left_click", "right_click", "middle_click", "double_click", "mouse_move")
    places = ([0, 0], [500, 500], [333, 666], [998, 700], [12.5, 700.25])
    return [call(action=name, coordinate=place) for name in names for place in places]


SAME: list[str] = [
    *points(),
    *(call(action="type", text=text) for text in ("hello", "a b  c", "x+y=2", "<b>", "a, b; (c)")),
    *(call(action="type", text=text) for text in ("", "0", "UPPER lower", "#%&@!", "1 < 2 > 0")),
    *(call(action="key", keys=keys) for keys in (["enter"], ["ctrl", "s"], ["ctrl", "shift", "t"])),
    *(call(action="key", keys=keys) for keys in (["alt", "f4"], ["esc"], ["a"], ["pagedown"])),
    *(call(action="key", keys=keys) for keys in (["keys=[ctrl]"], ["tab]"], ["win"], [" up "])),
    call(action="wait", time=2),
    call(action="terminate", status="success"),
    # one call on one line, tags missing, prose around, blank lines, several calls
    json.dumps(
        {"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [5, 9]}}
    ),
    "I look.\n\n" + call(action="left_click", coordinate=[100, 200]) + "\n\nThat was it.",
    call(action="left_click", coordinate=[1, 2]).removesuffix("\n</tool_call>"),
    call(action="left_click", coordinate=[1, 2]) + "\n" + call(action="type", text="two"),
    call(action="mouse_move", coordinate=[9, 9]) + "\n" + call(action="key", keys=["ctrl", "a"]),
    bare('{"name": "computer_use",\n "arguments":\n {"action": "key", "keys": ["ctrl", "z"]}}'),
    call(action="left_click", coordinate=[7, 8], text="ignored", pixels=3),
    # nothing that can be performed: theirs does nothing (or falls over), ours says why
    "",
    "   \n ",
    "I am done thinking.",
    "Action: click the button",
    bare(""),
    bare("{"),
    bare("not json"),
    bare('{"name": "computer_use"'),
    bare('{"name": "computer_use"}'),
    bare('{"name": "computer_use", "arguments": {}}'),
    bare('{"name": "browser", "arguments": {"action": "left_click", "coordinate": [1, 2]}}'),
    bare('["computer_use"]'),
    bare('"computer_use"'),
    call(action="dance"),
    call(action="left_click", coordinate=[1]),
    call(action="left_click", coordinate=[1, 2, 3]),
    call(action="left_click", coordinate="here"),
    call(action="left_click", coordinate=None),
    call(action="double_click", coordinate=[None, 4]),
    call(action="mouse_move", coordinate={"x": 1}),
    call(action="left_click_drag", coordinate=[1, 2]),
    "<tool_call></tool_call>",
    "<think>hm</think>",
]
"""Each read as the first reply of a conversation."""

AFTER_A_MOVE: list[str] = [
    *(call(action=name) for name in ("left_click", "right_click", "middle_click", "double_click")),
    call(action="left_click_drag", coordinate=[300, 400]),
    call(action="scroll", pixels=5),
    call(action="scroll", pixels=-12),
]
"""Each read after the pointer was put somewhere, for calls that go by where it is."""

LOST_BY_OSWORLD: list[tuple[str, str | None]] = [
    (call(action="terminate", status="failure"), "fail"),
    (call(action="triple_click", coordinate=[5, 5]), "triple_click"),
    (call(action="hscroll", coordinate=[5, 5], pixels=3), "scroll"),
    (call(action="answer", text="42"), "answer"),
    (call(action="type", text="it's"), "type"),
    (call(action="key", keys=["keys=['ctrl", "c']"]), "key"),
    (call(action="key", keys=["['tab']"]), "key"),
    (call(action="type", text="two\nlines"), "type"),
    (call(action="type", text="C:\\new"), "type"),
    (call(action="scroll", coordinate=[5, 5], pixels=3), "scroll"),
    (call(action="left_click", coordinate=[5000, 5000]), None),
    (call(action="mouse_move"), None),
    (call(action="key", keys=[]), None),
    (call(action="scroll"), None),
]
"""Replies that theirs take for something the model did not say; ours does it, or says why not."""


@pytest.fixture(scope="module", params=AGENTS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    environment = build(REPO / ".cache" / "osworld")
    theirs = OSWorldAgents(
        tokenizer=None,
        image_max=20,
        agent=request.param,
        osworld_path=str(tmp_path_factory.mktemp("checkout")),
        environment=str(environment.path),
    )
    yield theirs, make_harness(request.param, tokenizer=None)
    theirs.close()


def read(conversation: Conversation, text: str) -> list[AnyAction]:
    """The actions of a reply, none where it holds none; a wait counts by its kind."""
    conversation.observe(screenshot(screen=SCREEN))
    conversation.prompt()
    try:
        actions = conversation.reply(generation(text))
    except ActionError:
        return []
    return [Wait(seconds=2) if isinstance(action, Wait) else action for action in actions]


def both(pair: Any, *replies: str) -> tuple[list[AnyAction], list[AnyAction]]:
    results = []
    for harness in pair:
        conversation = harness.start("Do it.", SCREEN)
        results.append([read(conversation, reply) for reply in replies][-1])
    return results[0], results[1]


def test_at_least_sixty_replies_are_compared() -> None:
    assert len(set(SAME)) + len(AFTER_A_MOVE) >= 60


def test_the_same_actions_from_the_same_replies(pair: Any) -> None:
    differing = {reply: got for reply in SAME if (got := both(pair, reply)) and got[0] != got[1]}
    assert differing == {}


def test_the_same_actions_where_the_pointer_is(pair: Any) -> None:
    move = call(action="mouse_move", coordinate=[200, 100])
    for reply in AFTER_A_MOVE:
        theirs, ours = both(pair, move, reply)
        assert theirs
        assert ours == theirs, reply


def test_where_they_differ_ours_does_what_was_said(pair: Any) -> None:
    for reply, kind in LOST_BY_OSWORLD:
        theirs, ours = both(pair, reply)
        assert ours != theirs or theirs == [], reply
        assert [action.action_type for action in ours][-1:] == ([kind] if kind else []), reply


def test_the_prompt_is_the_agents_and_shows_each_screenshot_once(pair: Any) -> None:
    conversation = pair[0].start("Open the file.", SCREEN)
    assert isinstance(conversation, AgentConversation)
    shown: list[Sequence[str]] = []
    for shade in range(7):
        conversation.observe(screenshot(shade, SCREEN))
        prompt = conversation.prompt()
        assert prompt is conversation.prompt()
        shown.append([image.sha256 for image in prompt.images])
        conversation.reply(generation(call(action="left_click", coordinate=[shade, 5])))
    assert [len(images) for images in shown] == [1, 2, 3, 4, 5, 5, 5]
    assert shown[-1][:-1] == shown[-2][1:]
    text = "".join(getattr(p, "text", "") for m in prompt.messages for p in m.parts)
    assert "Open the file." in text
    assert "Step 1: " in text


def test_a_checkout_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a checkout"):
        make_harness("osworld", tokenizer=None)
    with pytest.raises(ConfigError, match="there is no OSWorld checkout"):
        make_harness("osworld", tokenizer=None, osworld_path=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"not set up at .*: run .*osworld-setup --path"):
        make_harness(
            "osworld", tokenizer=None, osworld_path=str(tmp_path), environment=str(tmp_path / "no")
        )
