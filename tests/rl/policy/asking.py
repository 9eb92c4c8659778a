"""How tests put a question to the scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from legato.desktop.contract import Screenshot
from legato.rl.policy import HttpPolicy, PolicyConfig
from legato.rl.types import Generation, ImagePart, Message, Prompt, Sampling, Text
from tests.rl.servers import (
    ModelServer,
)

KEY = "sk-do-not-tell-5b1c"
SAMPLING = Sampling(temperature=0.8, max_tokens=8, seed=3)


def shot(seed: int = 0) -> Screenshot:
    rgb = np.random.default_rng(seed).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    return Screenshot(rgb, taken_at=0.0).seal()


def prompt(server: ModelServer, *images: Screenshot, text: str = "click save") -> Prompt:
    parts = (*(ImagePart(i) for i in images), Text(text))
    messages = (Message("system", (Text("You act."),)), Message("user", parts))
    wire = [
        {"role": "system", "content": "You act."},
        {"role": "user", "content": [*({"image_url": _URL} for _ in images), {"text": text}]},
    ]
    return Prompt(messages, tuple(server._chat_ids(wire)))


_URL = {"url": "data:image/png;base64,"}


def policy(server: ModelServer, *, tokenizer: bool = True, **changes: Any) -> HttpPolicy:
    config = PolicyConfig(server.url, "scripted", **{"step_timeout": 30.0, "retries": 0} | changes)
    return HttpPolicy(config, server.tokenizer if tokenizer else None)


def ask(
    server: ModelServer,
    *images: Screenshot,
    sampling: Sampling = SAMPLING,
    text: str = "click save",
    **changes: Any,
) -> tuple[Generation, HttpPolicy]:
    async def run() -> tuple[Generation, HttpPolicy]:
        p = policy(server, **changes)
        try:
            return await p.generate(prompt(server, *images, text=text), sampling), p
        finally:
            await p.aclose()

    return asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for the server, which runs in another thread."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def choice(answer: dict[str, Any]) -> dict[str, Any]:
    """The one choice of an answer, to be spoiled."""
    found: dict[str, Any] = answer["choices"][0]
    return found


def entry(answer: dict[str, Any]) -> dict[str, Any]:
    """What an answer tells of its first token, to be spoiled."""
    found: dict[str, Any] = choice(answer)["logprobs"]["content"][0]
    return found
