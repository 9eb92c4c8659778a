"""Building blocks of the harness tests: screenshots, replies, tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np

from legato.desktop.contract import Screenshot
from legato.errors import ActionError
from legato.rl.tokens import HFTokenizer
from legato.rl.types import Conversation, Generation

SCREEN = (64, 48)
NAMES = ["qwen3_5", "qwen3_vl", "qwen2_5_vl", "compact"]


def screenshot(shade: int = 0, screen: tuple[int, int] = SCREEN) -> Screenshot:
    pixels = np.full((screen[1], screen[0], 3), shade % 256, np.uint8)
    return Screenshot(pixels, taken_at=0.0)


def generation(
    text: str,
    token_ids: Sequence[int] | None = None,
    *,
    finish_reason: Literal["stop", "length", "abort"] = "stop",
    reasoning: str | None = None,
) -> Generation:
    return Generation(
        text=text,
        token_ids=None if token_ids is None else tuple(token_ids),
        logprobs=None,
        prompt_ids=None,
        image_tokens=None,
        version="0",
        finish_reason=finish_reason,
        reasoning=reasoning,
    )


def sampled(tokenizer: HFTokenizer, text: str, **fields: Any) -> Generation:
    """A reply that ended its turn by itself."""
    end = tokenizer.special("<|im_end|>")
    assert end is not None
    return generation(text, [*tokenizer.encode(text), end], **fields)


def add_reply(conversation: Conversation, reply: Generation) -> None:
    """Add a reply whatever it says; a refused one stays in the history all the same."""
    with suppress(ActionError):
        conversation.reply(reply)
