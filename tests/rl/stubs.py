"""Stand-ins for the model server in tests of the driver itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from legato.rl.types import Generation, Prompt, Sampling


class StubPolicy:
    """Answers in-process. ``reply`` maps a prompt to the reply's text or to an error to raise."""

    version = "0"

    def __init__(
        self, reply: Callable[[Prompt], str | Exception] = lambda _: "wait", latency: float = 0.0
    ) -> None:
        self.reply = reply
        self.latency = latency
        self.calls = 0
        self.running = 0
        self.most_running = 0
        self.cancelled = 0

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        self.calls += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.latency)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        reply = self.reply(prompt)
        if isinstance(reply, Exception):
            raise reply
        ids = tuple(reply.encode())
        return Generation(
            text=reply,
            token_ids=ids,
            logprobs=(-0.5,) * len(ids),
            prompt_ids=prompt.token_ids,
            image_tokens=None,
            version=self.version,
            finish_reason="stop",
            seconds=self.latency,
        )

    async def aclose(self) -> None:
        return
