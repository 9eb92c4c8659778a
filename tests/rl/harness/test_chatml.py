"""Prompts are the checkpoint's own chat template, id for id, and text cannot forge structure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.errors import ConfigError
from legato.rl.harness import make_harness
from legato.rl.harness.chatml import SPECIALS, ChatML
from legato.rl.harness.computer_use import tool
from legato.rl.harness.qwen import GRID_NOTE, ROLE
from legato.rl.tokens import HFTokenizer, load_tokenizer
from legato.rl.types import Message, Prompt, Text
from tests.conftest import CheckpointFactory
from tests.rl.harness.talk import SCREEN, add_reply, generation, sampled, screenshot
from tests.rl.harness.transformers_oracle import Oracle

# (harness, checkpoint family, options, template arguments)
TEMPLATES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("qwen3_vl", "qwen3_vl", {}, {}),
    ("qwen2_5_vl", "qwen2_5_vl", {}, {}),
    ("compact", "qwen3_vl", {}, {}),
    ("compact", "qwen2_5_vl", {}, {}),
    ("qwen3_5", "qwen3_5", {"thinking": False}, {"enable_thinking": False}),
    ("qwen3_5", "qwen3_5", {"thinking": True}, {"enable_thinking": True}),
]
INSTRUCTIONS = [
    "Save the file as notes.txt",
    "  Zwei Zeilen\nund Ümläute, 日本語, 🙂 \n\n",
    "<tool_call> and <think> are words too",
    "",
]


@pytest.mark.parametrize(("name", "family", "options", "template"), TEMPLATES)
@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_first_prompt_equals_the_chat_template(
    name: str,
    family: str,
    options: dict[str, Any],
    template: dict[str, Any],
    instruction: str,
    tiny_checkpoint: CheckpointFactory,
    oracle: Oracle,
) -> None:
    checkpoint = tiny_checkpoint(family)
    harness = make_harness(name, tokenizer=load_tokenizer(str(checkpoint)), **options)
    conversation = harness.start(instruction, SCREEN)
    conversation.observe(screenshot())
    prompt = conversation.prompt()
    assert prompt.token_ids is not None
    assert list(prompt.token_ids) == oracle.template_ids(
        checkpoint, prompt.messages, add_generation_prompt=True, **template
    )
    assert prompt.prefix_len == 0


@pytest.mark.parametrize(("name", "family", "options", "template"), TEMPLATES)
def test_later_prompts_equal_the_chat_template(
    name: str,
    family: str,
    options: dict[str, Any],
    template: dict[str, Any],
    tiny_checkpoint: CheckpointFactory,
    oracle: Oracle,
) -> None:
    """Replies are written as the template would write them: it is append-only for such."""
    checkpoint = tiny_checkpoint(family)
    tokenizer = load_tokenizer(str(checkpoint))
    harness = make_harness(name, tokenizer=tokenizer, **options)
    conversation = harness.start("Do it", SCREEN)
    thought = "Let me\nlook.\n</think>\n\n" if options.get("thinking") else ""
    for step, note in enumerate([None, "(9, 9) is off the screen", None, "no\nsuch key"]):
        conversation.observe(screenshot(step), note)
        prompt = conversation.prompt()
        assert list(prompt.token_ids or ()) == oracle.template_ids(
            checkpoint, prompt.messages, add_generation_prompt=True, **template
        )
        add_reply(conversation, sampled(tokenizer, f"{thought}Action: step {step}."))


def test_system_prompt_is_what_the_template_writes_for_the_tool(
    tiny_checkpoint: CheckpointFactory, oracle: Oracle
) -> None:
    """With the tool handed to the template, as a chat server would do it."""
    for name, family in [("qwen3_5", "qwen3_5"), ("qwen3_vl", "qwen3_vl")]:
        checkpoint = tiny_checkpoint(family)
        harness = make_harness(name, tokenizer=load_tokenizer(str(checkpoint)))
        conversation = harness.start("Do it", SCREEN)
        conversation.observe(screenshot())
        prompt = conversation.prompt()
        role = Message("system", (Text(ROLE),))
        assert list(prompt.token_ids or ()) == oracle.template_ids(
            checkpoint,
            [role, *prompt.messages[1:]],
            add_generation_prompt=True,
            enable_thinking=False,
            tools=[tool(GRID_NOTE)],
        )


forgeries = st.lists(
    st.one_of(
        st.sampled_from([*SPECIALS, "<|video_pad|>", "<|endoftext|>", "<|im_", "end|>", "user\n"]),
        st.text(max_size=8),
    ),
    max_size=8,
).map("".join)


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_vl", "qwen2_5_vl", "compact"])
def test_text_cannot_forge_structure(name: str, tokenizer: HFTokenizer) -> None:
    harness = make_harness(name, tokenizer=tokenizer)
    specials = {
        token: tokenizer.special(token) for token in (*SPECIALS, "<|video_pad|>", "<|endoftext|>")
    }

    def structure(instruction: str, note: str | None) -> list[int]:
        conversation = harness.start(instruction, SCREEN)
        conversation.observe(screenshot())
        add_reply(conversation, sampled(tokenizer, "click 1 2"))
        conversation.observe(screenshot(), note)
        ids = conversation.prompt().token_ids
        assert ids is not None
        return [number for number in ids if number in specials.values()]

    plain = structure("x", "y")

    @settings(max_examples=60, deadline=None)
    @given(forgeries, forgeries)
    def check(instruction: str, note: str) -> None:
        assert structure(instruction, note) == plain

    check()


def test_lone_surrogates_from_json_do_not_stop_a_rollout(tokenizer: HFTokenizer) -> None:
    conversation = make_harness("qwen3_vl", tokenizer=tokenizer).start("a \ud800 b", SCREEN)
    conversation.observe(screenshot(), "c \udfff d")
    prompt = conversation.prompt()
    assert all(
        part.text.encode("utf-8")
        for message in prompt.messages
        for part in message.parts
        if isinstance(part, Text)
    )


def test_one_placeholder_per_image(tokenizer: HFTokenizer) -> None:
    conversation = make_harness("qwen3_vl", tokenizer=tokenizer).start("x", SCREEN)
    pad = tokenizer.special("<|image_pad|>")
    for step in range(3):
        conversation.observe(screenshot(step))
        prompt = conversation.prompt()
        assert prompt.token_ids is not None
        assert prompt.token_ids.count(pad) == len(prompt.images) == step + 1  # type: ignore[arg-type]
        add_reply(conversation, sampled(tokenizer, "hm"))


def test_without_a_tokenizer_there_are_messages_only() -> None:
    conversation = make_harness("qwen3_vl", tokenizer=None).start("x", SCREEN)
    conversation.observe(screenshot())
    first: Prompt = conversation.prompt()
    assert first.token_ids is None
    assert [m.role for m in first.messages] == ["system", "user"]
    add_reply(conversation, generation("hm"))
    conversation.observe(screenshot())
    second = conversation.prompt()
    assert second.token_ids is None
    assert [m.role for m in second.messages] == ["system", "user", "assistant", "user"]


def test_a_tokenizer_of_another_model_is_refused() -> None:
    class Foreign:
        def encode(self, text: str) -> list[int]:
            return list(text.encode())

        def decode(self, ids: object, *, skip_special: bool = True) -> str:
            return ""

        def special(self, token: str) -> int | None:
            return 1 if token == "<|im_end|>" else None

    with pytest.raises(ConfigError, match=r"<\|im_start\|>.*chat format"):
        ChatML(Foreign())
