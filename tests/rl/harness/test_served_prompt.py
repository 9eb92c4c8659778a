"""A real server that renders our messages arrives at the prompt ids we sent."""

from __future__ import annotations

import base64
from itertools import groupby
from typing import Any

import httpx
import numpy as np
import pytest

from legato.desktop.contract import Screenshot
from legato.rl.harness import make_harness
from legato.rl.images import ImageSpec
from legato.rl.tokens import load_tokenizer
from legato.rl.types import ImagePart, Message
from tests.conftest import Vllm
from tests.rl.harness.talk import add_reply, sampled


def as_chat(message: Message) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ImagePart):
            url = "data:image/png;base64," + base64.b64encode(part.image.png).decode()
            parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            parts.append({"type": "text", "text": part.text})
    return {"role": message.role, "content": parts}


@pytest.mark.vllm
@pytest.mark.parametrize("name", ["qwen3_vl", "compact"])
def test_the_server_renders_the_same_ids(name: str, vllm: Vllm) -> None:
    tokenizer = load_tokenizer(str(vllm.checkpoint))
    spec = ImageSpec.load(str(vllm.checkpoint))
    harness = make_harness(name, tokenizer=tokenizer)
    conversation = harness.start("Press the red button", (320, 180))
    pad = tokenizer.special("<|image_pad|>")
    for step in range(3):
        pixels = np.random.default_rng(step).integers(0, 256, (180, 320, 3), np.uint8)
        conversation.observe(Screenshot(pixels, 0.0))
        prompt = conversation.prompt()
        answer = httpx.post(
            f"{vllm.url}/chat/completions",
            json={
                "model": vllm.model,
                "messages": [as_chat(message) for message in prompt.messages],
                "max_tokens": 1,
                "return_token_ids": True,
            },
            timeout=60.0,
        )
        served = answer.raise_for_status().json()["prompt_token_ids"]
        runs = [(number, len(list(run))) for number, run in groupby(served)]
        widened = [count for number, count in runs if number == pad]
        assert widened == [spec.tokens(image.width, image.height) for image in prompt.images]
        once = [number for number, count in runs for _ in range(1 if number == pad else count)]
        assert tuple(once) == prompt.token_ids
        add_reply(conversation, sampled(tokenizer, f"click {step} {step}"))
