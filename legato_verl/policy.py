"""verl's model servers as the driver's policy: tokens and screenshots in, tokens out."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from typing import Any

import ray
from ray.exceptions import RayError

from legato.errors import ContextLimit, PolicyFailure
from legato.rl.policy.http import split_reasoning
from legato.rl.samples import Vision
from legato.rl.types import Generation, Prompt, Sampling, Tokenizer
from legato_verl.settings import Lengths

RETRIES = 1
"""How often a failed call is repeated."""
END_OF_TURN = "<|im_end|>"


class VerlPolicy:
    """A :class:`~legato.rl.types.Policy` over an ``LLMServerClient`` of any trainer mode.

    A prompt that is too long ends its rollout as ``truncated``
    (:class:`~legato.errors.ContextLimit`): one that begins a row may hold
    ``data.max_prompt_length`` tokens, and the whole row ``data.max_response_length`` more.
    """

    def __init__(
        self,
        client: Any,
        tokenizer: Tokenizer,
        vision: Vision,
        lengths: Lengths,
        *,
        step_timeout: float,
        max_inflight: int | None = None,
    ) -> None:
        self._client = abortable(client)
        self._tokenizer = tokenizer
        self._vision = vision
        self._lengths = lengths
        self._step_timeout = step_timeout
        self._slots: asyncio.Semaphore | nullcontext[None] = (
            nullcontext() if max_inflight is None else asyncio.Semaphore(max_inflight)
        )
        self._end = tokenizer.special(END_OF_TURN)

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        if prompt.token_ids is None:
            raise PolicyFailure("verl's servers need prompts with token ids", transient=False)
        started = time.monotonic()
        counts = tuple(self._vision.spec.tokens(i.width, i.height) for i in prompt.images)
        length = len(prompt.token_ids) + sum(counts) - len(counts)
        room = self._room(prompt, length)
        asked = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k if sampling.top_k > 0 else -1,
            "repetition_penalty": 1.0,
            "max_tokens": min(sampling.max_tokens, room),
            "logprobs": True,
        }
        if sampling.seed is not None:
            asked["seed"] = sampling.seed
        async with self._slots:
            attempt, output = await self._ask(prompt, asked)
        token_ids = tuple(int(i) for i in output.token_ids)
        if not token_ids or output.stop_reason in ("aborted", "abort"):
            raise PolicyFailure(f"the model server ended a reply with {output.stop_reason!r}")
        if output.log_probs is None or len(output.log_probs) != len(token_ids):
            raise PolicyFailure("the model server gave no logprob per token", transient=False)
        first, last = _versions(output.extra_fields)
        reasoning, text = split_reasoning(self._tokenizer.decode(token_ids))
        # verl's server says "completed" for both ends
        cut = len(token_ids) >= asked["max_tokens"] and token_ids[-1] != self._end
        return Generation(
            text=text,
            reasoning=reasoning,
            token_ids=token_ids,
            logprobs=tuple(min(0.0, float(lp)) for lp in output.log_probs),
            prompt_ids=prompt.token_ids,
            image_tokens=counts,
            version=first,
            version_last=last if last != first else None,
            finish_reason="length" if cut else "stop",
            prompt_tokens=length,
            completion_tokens=len(token_ids),
            cached_tokens=output.extra_fields.get("num_cached_tokens"),
            seconds=time.monotonic() - started,
            attempts=attempt,
        )

    async def aclose(self) -> None:
        return

    def _room(self, prompt: Prompt, length: int) -> int:
        """Tokens left for a reply, at least one."""
        lengths = self._lengths
        if not prompt.prefix_len and length > lengths.prompt:
            raise ContextLimit(
                f"a prompt of {length} tokens exceeds data.max_prompt_length={lengths.prompt}"
            )
        if length >= lengths.whole:
            raise ContextLimit(
                f"{length} tokens fill the row: data.max_prompt_length + max_response_length, or "
                f"rollout.max_model_len, is {lengths.whole}"
            )
        return lengths.whole - length

    async def _ask(self, prompt: Prompt, asked: dict[str, Any]) -> tuple[int, Any]:
        assert prompt.token_ids is not None
        # The driver names its tasks after their rollouts: turns of one go to the same server,
        # which has their prefix cached.
        task = asyncio.current_task()
        assert task is not None
        images = [image.pil() for image in prompt.images]
        attempt = 0
        while True:
            attempt += 1
            try:
                async with asyncio.timeout(self._step_timeout):
                    return attempt, await self._client.generate(
                        request_id=task.get_name(),
                        prompt_ids=list(prompt.token_ids),
                        sampling_params=dict(asked),
                        image_data=images or None,
                    )
            except TimeoutError:
                failure = PolicyFailure(
                    f"the model server did not answer within {self._step_timeout:g} s "
                    "(legato.step_timeout)"
                )
            except RayError as e:
                said = f"{type(e).__name__}: {e}".strip().splitlines()
                failure = PolicyFailure(f"the model server failed: {said[0]}; {said[-1]}")
            if attempt > RETRIES:
                raise failure


def abortable(client: Any) -> Any:
    """Make a cancelled ``client.generate`` stop in the engine, too. Idempotent.

    Cancelling whoever awaits a Ray call leaves the call running; ``ray.cancel`` raises in the
    server's coroutine, upon which vLLM aborts the request and frees its cache.
    """
    if getattr(client, "_abortable", False):
        return client
    acquire = client._acquire_server

    async def acquire_abortable(request_id: str, **extra: Any) -> tuple[str, Any]:
        server_id, handle = await acquire(request_id, **extra)
        return server_id, _Abortable(handle)

    client._acquire_server = acquire_abortable
    client._abortable = True
    return client


class _Abortable:
    """A server handle of which only ``generate.remote`` is used."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.generate = self

    async def remote(self, **request: Any) -> Any:
        ref = self._handle.generate.remote(**request)
        try:
            return await ref
        except asyncio.CancelledError:
            ray.cancel(ref)
            raise


def _versions(fields: dict[str, Any]) -> tuple[str, str]:
    """Steps of the weights that sampled the first and the last token."""
    present = fields.get("global_steps") or 0
    first = fields.get("min_global_steps")
    last = fields.get("max_global_steps")
    return str(present if first is None else first), str(present if last is None else last)
