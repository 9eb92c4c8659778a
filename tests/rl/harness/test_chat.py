"""The prompt only grows, except where the oldest screenshots leave."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.desktop.actions import Click, Done
from legato.errors import ActionError, ConfigError
from legato.rl.harness import make_harness
from legato.rl.harness.chat import OMITTED
from legato.rl.tokens import HFTokenizer
from legato.rl.types import Generation, ImagePart, Message, Prompt, Text
from tests.rl.harness.talk import NAMES, SCREEN, add_reply, generation, sampled, screenshot


@dataclass(frozen=True, slots=True)
class Turn:
    shade: int
    note: str | None
    ids: tuple[int, ...]


@st.composite
def turns(draw: st.DrawFn, vocabulary: int, end: int) -> Turn:
    """Any ids at all, as a random policy samples them; most replies end their turn."""
    body = draw(st.lists(st.integers(0, vocabulary - 1), max_size=12))
    ending = draw(st.sampled_from([(end,), ()]))
    note = draw(st.none() | st.text(max_size=20))
    return Turn(draw(st.integers(0, 255)), note, (*body, *ending))


def text_of(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


@pytest.mark.parametrize("name", NAMES)
def test_next_prompt_is_last_prompt_and_exactly_the_sampled_ids(
    name: str, tokenizer: HFTokenizer
) -> None:
    end = tokenizer.special("<|im_end|>")
    assert end is not None

    @settings(max_examples=50, deadline=None)
    @given(
        st.lists(turns(len(tokenizer), end), min_size=1, max_size=9),
        st.integers(1, 5),
        st.text(max_size=30),
    )
    def check(walk: list[Turn], image_max: int, instruction: str) -> None:
        harness = make_harness(name, tokenizer=tokenizer, image_max=image_max)
        conversation = harness.start(instruction, SCREEN)
        so_far: tuple[int, ...] = ()
        shown = 0
        for turn in walk:
            conversation.observe(screenshot(turn.shade), turn.note)
            prompt = conversation.prompt()
            ids = prompt.token_ids
            assert ids is not None
            shown += 1
            if shown > image_max:
                shown -= (image_max + 1) // 2
                assert prompt.prefix_len == 0
            else:
                assert prompt.prefix_len == len(so_far)
                assert ids[: len(so_far)] == so_far
            assert len(prompt.images) == shown
            assert prompt == conversation.prompt()
            reply = generation(tokenizer.decode(turn.ids), turn.ids)
            add_reply(conversation, reply)
            so_far = (*ids, *turn.ids)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_prefix_keeps_every_reply_id(name: str, tokenizer: HFTokenizer) -> None:
    harness = make_harness(name, tokenizer=tokenizer, image_max=4)
    conversation = harness.start("Do it", SCREEN)
    replies = [(300 + step, 301 + step, 302 + step) for step in range(6)]
    prompts: list[Prompt] = []
    for step, ids in enumerate(replies):
        conversation.observe(screenshot(step))
        prompts.append(conversation.prompt())
        add_reply(conversation, generation(f"reply {step}", ids))
    assert [len(p.images) for p in prompts] == [1, 2, 3, 4, 3, 4]
    assert [p.prefix_len == 0 for p in prompts] == [True, False, False, False, True, False]
    broken = prompts[4]
    assert broken.token_ids is not None
    windows = [broken.token_ids[at : at + 3] for at in range(len(broken.token_ids))]
    assert [window for window in windows if window in replies] == replies[:4]
    users = [m for m in broken.messages if m.role == "user"]
    assert [bool(m.images) for m in users] == [False, False, True, True, True]
    assert [OMITTED in text_of(m) for m in users] == [True, True, False, False, False]
    assert "Do it" in text_of(users[0])
    assert [text_of(m) for m in broken.messages if m.role == "assistant"] == [
        f"reply {step}" for step in range(4)
    ]


def test_the_oldest_half_leaves_at_once_so_that_the_prefix_breaks_rarely(
    tokenizer: HFTokenizer,
) -> None:
    conversation = make_harness("compact", tokenizer=tokenizer).start("x", SCREEN)
    shown, broken = [], []
    for step in range(45):
        conversation.observe(screenshot(step))
        prompt = conversation.prompt()
        shown.append(len(prompt.images))
        broken.append(prompt.prefix_len == 0)
        add_reply(conversation, sampled(tokenizer, "wait"))
    assert max(shown) == 20
    assert [step for step, gone in enumerate(broken) if gone] == [0, 20, 30, 40]
    assert shown[19:22] == [20, 11, 12]


def test_images_are_those_observed_in_order(tokenizer: HFTokenizer) -> None:
    conversation = make_harness("qwen3_vl", tokenizer=tokenizer, image_max=2).start("x", SCREEN)
    for shade in (10, 20, 30):
        conversation.observe(screenshot(shade))
        images = conversation.prompt().images
        add_reply(conversation, sampled(tokenizer, "hm"))
    assert [int(image.rgb[0, 0, 0]) for image in images] == [20, 30]


def test_a_screenshot_that_was_never_replied_to_is_replaced(tokenizer: HFTokenizer) -> None:
    conversation = make_harness("qwen3_vl", tokenizer=tokenizer).start("x", SCREEN)
    conversation.observe(screenshot(1))
    first = conversation.prompt()
    conversation.observe(screenshot(2))
    second = conversation.prompt()
    assert first.token_ids == second.token_ids
    assert [int(image.rgb[0, 0, 0]) for image in second.images] == [2]


def test_a_prompt_needs_a_screenshot(tokenizer: HFTokenizer) -> None:
    conversation = make_harness("qwen3_vl", tokenizer=tokenizer).start("x", SCREEN)
    with pytest.raises(RuntimeError, match="observe"):
        conversation.prompt()
    conversation.observe(screenshot())
    add_reply(conversation, sampled(tokenizer, "hm"))
    with pytest.raises(RuntimeError, match="observe"):
        conversation.prompt()


def test_a_reply_whose_ids_are_unknown_breaks_the_prefix(tokenizer: HFTokenizer) -> None:
    conversation = make_harness("compact", tokenizer=tokenizer).start("x", SCREEN)
    conversation.observe(screenshot())
    first = conversation.prompt().token_ids
    conversation.reply(generation("click 1 2"))
    conversation.observe(screenshot())
    second = conversation.prompt()
    assert second.prefix_len == 0
    assert first is not None
    assert second.token_ids is not None
    assert second.token_ids[: len(first)] == first
    assert "click 1 2" in tokenizer.decode(second.token_ids)


def test_the_end_of_a_cut_off_reply_belongs_to_the_next_prompt(tokenizer: HFTokenizer) -> None:
    end = tokenizer.special("<|im_end|>")
    newline = tokenizer.encode("\n")
    for ids in [(300, 301), (300, end), (), (300, tokenizer.special("<|endoftext|>"))]:
        conversation = make_harness("compact", tokenizer=tokenizer).start("x", SCREEN)
        conversation.observe(screenshot())
        before = conversation.prompt().token_ids
        add_reply(conversation, generation("hm", ids))  # type: ignore[arg-type]
        conversation.observe(screenshot())
        after = conversation.prompt()
        assert before is not None
        assert after.token_ids is not None
        assert after.prefix_len == len(before) + len(ids)
        added = list(after.token_ids[after.prefix_len :])
        ended = bool(ids) and ids[-1] == end
        assert added[: 1 + len(newline)] == ([*newline, added[1]] if ended else [end, *newline])


@pytest.mark.parametrize("name", NAMES)
def test_notes_reach_the_next_turn(name: str, tokenizer: HFTokenizer) -> None:
    conversation = make_harness(name, tokenizer=tokenizer).start("x", SCREEN)
    conversation.observe(screenshot())
    add_reply(conversation, sampled(tokenizer, "hm"))
    conversation.observe(screenshot(), "no such key: hyper")
    assert "no such key: hyper" in text_of(conversation.prompt().messages[-1])


def test_calls_after_an_unreadable_one_are_reported_with_the_next_screenshot(
    tokenizer: HFTokenizer,
) -> None:
    conversation = make_harness("compact", tokenizer=tokenizer).start("x", (100, 100))
    conversation.observe(screenshot())
    assert conversation.reply(sampled(tokenizer, "click 5 5\nclick\ndone")) == [Click(x=5, y=5)]
    conversation.observe(screenshot(), "and more")
    told = text_of(conversation.prompt().messages[-1])
    assert "left out" in told
    assert "and more" in told
    conversation.reply(sampled(tokenizer, "done"))
    conversation.observe(screenshot())
    assert "Note" not in text_of(conversation.prompt().messages[-1])


def test_a_cut_off_reply_is_told_why(tokenizer: HFTokenizer) -> None:
    conversation = make_harness("qwen3_vl", tokenizer=tokenizer).start("x", SCREEN)
    conversation.observe(screenshot())
    with pytest.raises(ActionError, match="token limit"):
        conversation.reply(sampled(tokenizer, '<tool_call>\n{"na', finish_reason="length"))


def test_messages_show_images_as_the_model_sees_them(tokenizer: HFTokenizer) -> None:
    compact = make_harness("compact", tokenizer=tokenizer, width=32, height=16)
    conversation = compact.start("x", (1280, 720))
    conversation.observe(screenshot(7, (1280, 720)))
    (image,) = conversation.prompt().images
    assert (image.width, image.height) == (32, 16)
    assert compact.view(image) is image
    seen = [p for m in conversation.prompt().messages for p in m.parts if isinstance(p, ImagePart)]
    assert [part.image for part in seen] == [image]


@pytest.mark.parametrize(
    ("screen", "seen"),
    [((1280, 720), (1288, 728)), ((1920, 1080), (1932, 1092)), ((64, 48), (56, 56))],
)
def test_qwen2_5_vl_resizes_to_what_the_processor_leaves_alone(
    screen: tuple[int, int], seen: tuple[int, int]
) -> None:
    harness = make_harness("qwen2_5_vl", tokenizer=None)
    view = harness.view(screenshot(0, screen))
    assert (view.width, view.height) == seen
    assert harness.view(view) is view


def test_qwen3_scales_down_only_past_its_limit() -> None:
    frame = screenshot(0, (640, 320))
    assert make_harness("qwen3_vl", tokenizer=None).view(frame) is frame
    assert make_harness("qwen3_5", tokenizer=None, max_pixels=640 * 320).view(frame) is frame
    small = make_harness("qwen3_5", tokenizer=None, max_pixels=320 * 160).view(frame)
    assert (small.width, small.height) == (320, 160)


def test_a_screen_that_cannot_be_shown_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="4000x10"):
        make_harness("qwen2_5_vl", tokenizer=None).start("x", (4000, 10))


CALL = "<function=computer_use><parameter=action>terminate</parameter></function>"


def reply_to(harness_options: dict[str, bool], reply: Generation) -> list[object]:
    conversation = make_harness("qwen3_5", tokenizer=None, **harness_options).start("x", SCREEN)
    conversation.observe(screenshot())
    return list(conversation.reply(reply))


@pytest.mark.parametrize(
    "reply",
    [
        generation(f"I could end it: {CALL}\n</think>\n\n{CALL}", [1]),
        generation(f"<think>\nhm\n</think>\n\n{CALL}", [1]),
        generation(CALL, [1], reasoning="hm"),
        generation(CALL, [1], reasoning=""),
        generation(CALL),
    ],
)
def test_reasoning_is_not_read_for_actions(reply: Generation) -> None:
    assert reply_to({"thinking": True}, reply) == [Done()]


@pytest.mark.parametrize(
    "reply",
    [
        generation(f"I could end it: {CALL}", [1], finish_reason="length"),
        generation(f"<think>I could end it: {CALL}"),
    ],
)
def test_reasoning_that_never_ends_holds_no_action(reply: Generation) -> None:
    with pytest.raises(ActionError, match="</think>"):
        reply_to({"thinking": True}, reply)


def test_reasoning_reported_apart_stays_in_the_history(tokenizer: HFTokenizer) -> None:
    harness = make_harness("qwen3_5", tokenizer=tokenizer, thinking=True)
    conversation = harness.start("x", SCREEN)
    conversation.observe(screenshot())
    conversation.reply(generation(CALL, reasoning="because"))
    conversation.observe(screenshot())
    prompt = conversation.prompt()
    told = f"<think>\nbecause\n</think>\n\n{CALL}"
    assert text_of(prompt.messages[2]) == told
    assert prompt.token_ids is not None
    assert tokenizer.decode(prompt.token_ids).count(told) == 1
