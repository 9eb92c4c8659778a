"""A policy inside the training processes: TRL's colocated vLLM, asked by the driver.

The driver's rollouts ask from an event loop; vLLM's ``LLM`` answers batches, on the main thread,
and in several processes all of them take part. So the processes serve in *rounds*: the main one
collects what was asked since the last, every engine answers its share, and the main one hands the
answers out::

    main      round() round() ... finish()        while its rollouts run
    others    follow() --------------------|      the same rounds, until the main one finishes

A call that is cancelled before its round is dropped; within one it is answered in vain.
"""

from __future__ import annotations

import asyncio
import io
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from PIL import Image

from legato.errors import ContextLimit, PolicyFailure
from legato.rl.policy.answer import collapse, find_spans
from legato.rl.policy.http import split_reasoning
from legato.rl.policy.request import BAN
from legato.rl.types import Generation, Prompt, Sampling, Tokenizer
from legato_trl.ranks import broadcast, gather, rank, world_size


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it travels between processes."""

    ids: tuple[int, ...]
    """One placeholder per image."""
    pngs: tuple[bytes, ...]
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Said:
    """The engine's answer; ``prompt_ids`` have images expanded."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]
    cached_tokens: int | None


Engine = Callable[[Sequence[Asked]], list["Said | Exception"]]
"""Answers a batch, in order."""


@dataclass(slots=True)
class _Waiting:
    asked: Asked
    future: asyncio.Future[Said]
    loop: asyncio.AbstractEventLoop
    version: str


class ColocatedPolicy:
    """A :class:`~legato.rl.types.Policy` on the driver's loop; served by :meth:`round`."""

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, image_token_id: int, *, parallel: int = 1
    ) -> None:
        """``parallel`` neighbouring processes share one engine and must be asked the same."""
        self._engine = engine
        self._tokenizer = tokenizer
        self._image = image_token_id
        self._parallel = parallel
        self._queue: queue.SimpleQueue[_Waiting] = queue.SimpleQueue()
        self.version = "0"

    def set_version(self, version: str) -> None:
        self.version = version

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        if prompt.token_ids is None:
            raise PolicyFailure("a colocated vLLM needs prompts with token ids", transient=False)
        started = time.monotonic()
        loop = asyncio.get_running_loop()
        pngs = tuple(image.png for image in prompt.images)
        waiting = _Waiting(
            Asked(prompt.token_ids, pngs, sampling), loop.create_future(), loop, self.version
        )
        self._queue.put(waiting)
        said = await waiting.future
        spans = find_spans(said.prompt_ids, len(prompt.images), self._image)
        if spans is None:
            raise PolicyFailure("the engine's prompt does not hold its images", transient=False)
        prompt_ids, image_tokens = collapse(said.prompt_ids, spans)
        reasoning, text = split_reasoning(self._tokenizer.decode(said.token_ids))
        return Generation(
            text=text,
            reasoning=reasoning,
            token_ids=said.token_ids,
            logprobs=said.logprobs,
            prompt_ids=prompt_ids,
            image_tokens=image_tokens,
            version=waiting.version,
            finish_reason=said.finish_reason,
            prompt_tokens=len(said.prompt_ids),
            completion_tokens=len(said.token_ids),
            cached_tokens=said.cached_tokens,
            seconds=time.monotonic() - started,
        )

    async def aclose(self) -> None:
        return

    # --- on the main threads ---------------------------------------------------------------------

    def round(self) -> None:
        """Answer what is waiting, with the help of all processes; nothing if nothing is."""
        waiting: list[_Waiting] = []
        while not self._queue.empty():
            one = self._queue.get()
            if not one.future.cancelled():
                waiting.append(one)
        if not waiting:
            return
        broadcast([one.asked for one in waiting])
        for one, said in zip(waiting, self._answer([w.asked for w in waiting]), strict=True):
            one.loop.call_soon_threadsafe(_settle, one.future, said)

    def finish(self) -> None:
        """Let the other processes go on, too."""
        broadcast(None)

    def follow(self) -> None:
        """Take part in the main process's rounds until it finishes."""
        while (asked := broadcast(None)) is not None:
            self._answer(asked)

    def _answer(self, asked: Sequence[Asked]) -> list[Said | Exception]:
        """All answers in order, on every process; an engine gets every n-th request."""
        engines = max(1, world_size() // self._parallel)
        mine = rank() // self._parallel
        answers = self._ask(asked[mine::engines])
        leads = rank() % self._parallel == 0
        placed = gather([(mine, answers)] if leads else [])
        merged: list[Said | Exception] = [PolicyFailure("no engine answered")] * len(asked)
        for engine, theirs in placed:
            merged[engine::engines] = theirs
        return merged

    def _ask(self, asked: Sequence[Asked]) -> list[Said | Exception]:
        if not asked:
            return []
        try:
            return self._engine(asked)
        except Exception as e:  # raised here it would leave the other processes waiting
            failure = PolicyFailure(f"vLLM: {type(e).__name__}: {e}", transient=False)
            return [failure] * len(asked)


def vllm_engine(llm: Any) -> Engine:
    """The engine of a vLLM ``LLM`` object."""
    from vllm import SamplingParams

    def engine(asked: Sequence[Asked]) -> list[Said | Exception]:
        prompts = [
            {
                "prompt_token_ids": list(one.ids),
                "multi_modal_data": {"image": [_picture(png) for png in one.pngs]},
            }
            for one in asked
        ]
        chosen = [
            SamplingParams(
                temperature=one.sampling.temperature,
                top_p=one.sampling.top_p,
                top_k=one.sampling.top_k if one.sampling.top_k > 0 else -1,
                max_tokens=one.sampling.max_tokens,
                logit_bias=dict.fromkeys(one.sampling.banned_ids, BAN) or None,
                seed=one.sampling.seed,
                logprobs=0,
            )
            for one in asked
        ]
        limit = int(llm.llm_engine.model_config.max_model_len)
        try:
            outputs = llm.generate(prompts, chosen, use_tqdm=False)
        except ValueError as e:  # how vLLM refuses a prompt, and with it the batch
            if len(asked) == 1:
                return [ContextLimit(str(e)) if "longer than" in str(e) else PolicyFailure(str(e))]
            return [answer for one in asked for answer in engine([one])]
        return [_said(output, limit) for output in outputs]

    return engine


def _said(output: Any, limit: int) -> Said | Exception:
    (reply,) = output.outputs
    if len(output.prompt_token_ids) >= limit:
        return ContextLimit(f"the prompt fills the model's context of {limit} tokens")
    if reply.logprobs is None or reply.finish_reason not in ("stop", "length"):
        return PolicyFailure(f"vLLM ended a reply with {reply.finish_reason!r}")
    logprobs = [
        step[token].logprob for step, token in zip(reply.logprobs, reply.token_ids, strict=True)
    ]
    return Said(
        prompt_ids=tuple(output.prompt_token_ids),
        token_ids=tuple(reply.token_ids),
        logprobs=tuple(min(0.0, logprob) for logprob in logprobs),
        finish_reason=reply.finish_reason,
        cached_tokens=output.num_cached_tokens,
    )


def _picture(png: bytes) -> Image.Image:
    with Image.open(io.BytesIO(png)) as image:
        return image.convert("RGB")


def _settle(future: asyncio.Future[Said], said: Said | Exception) -> None:
    if future.done():
        return
    if isinstance(said, Exception):
        future.set_exception(said)
    else:
        future.set_result(said)
