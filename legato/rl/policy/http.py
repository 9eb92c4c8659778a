"""A policy behind a model server: vLLM's token endpoint, or OpenAI-style chat."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from legato.errors import ConfigError, PolicyFailure
from legato.rl.policy.answer import Answer, collapse, find_spans, read_answer
from legato.rl.policy.config import PolicyConfig
from legato.rl.policy.refusal import (
    Busy,
    error_message,
    failure,
    refused_field,
    scrub,
)
from legato.rl.policy.request import chat_body, sampling_fields, tokens_body
from legato.rl.policy.transport import Response, Transport
from legato.rl.types import Generation, Prompt, Sampling, Tokenizer

log = logging.getLogger("legato.policy")

# seconds before the first repetition; doubled with each further one
BACKOFF = 0.5
MAX_BACKOFF = 8.0
# what an unknown path gets from vLLM, SGLang, gateways and providers
NO_ENDPOINT = frozenset({401, 403, 404, 405, 410, 501})
IMAGE_TOKEN = "<|image_pad|>"


class HttpPolicy:
    """A :class:`~legato.rl.types.Policy` over HTTP, for any number of concurrent rollouts.

    Belongs to one event loop. ``tokenizer`` decodes the replies of the token endpoint; without
    one, only chat can be used. What the server turned out not to do is in :attr:`notes`, one
    sentence each, and logged once.

    Cancelling a call closes its connection, upon which vLLM and SGLang abort the request.
    """

    def __init__(self, config: PolicyConfig, tokenizer: Tokenizer | None = None) -> None:
        if config.api == "tokens" and tokenizer is None:
            raise ConfigError(
                "the token endpoint needs a tokenizer on this side: give --tokenizer "
                "(a checkpoint directory or hub id), or --api chat"
            )
        self.config = config
        self.notes: list[str] = []
        self.version = config.version
        self._tokenizer = tokenizer
        self._tokens = config.api != "chat" and tokenizer is not None
        self._tokens_worked = config.api == "tokens"
        self._dropped: set[str] = set()
        self._slots: asyncio.Semaphore | nullcontext[None] = (
            nullcontext() if config.max_inflight is None else asyncio.Semaphore(config.max_inflight)
        )
        self._transport = Transport(config)

    def set_version(self, version: str) -> None:
        """Name the weights the server has from now on; calls under way report both names."""
        self.version = version

    @property
    def api(self) -> Literal["tokens", "chat"]:
        """The endpoint that the next prompt with token ids goes to."""
        return "tokens" if self._tokens else "chat"

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        """Sample one reply.

        Raises :class:`~legato.errors.ContextLimit` when the prompt has outgrown the model, else
        :class:`~legato.errors.PolicyFailure` once the retries are spent.
        """
        started = time.monotonic()
        reply = await self.ask(prompt, sampling)
        answer, prompt_ids, image_tokens = reply.answer, reply.prompt_ids, reply.image_tokens
        text, reasoning = answer.text, answer.reasoning
        if text is None and not reasoning and answer.token_ids is not None and self._tokenizer:
            text = self._tokenizer.decode(answer.token_ids)
        text = text or ""
        if not reasoning:
            reasoning, text = split_reasoning(text)
        version_last = self.version
        return Generation(
            text=text,
            reasoning=reasoning,
            token_ids=answer.token_ids,
            logprobs=answer.logprobs,
            tokens=answer.tokens,
            prompt_ids=prompt_ids,
            image_tokens=image_tokens,
            version=reply.version,
            version_last=version_last if version_last != reply.version else None,
            finish_reason=answer.finish_reason,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            cached_tokens=answer.cached_tokens,
            seconds=time.monotonic() - started,
            attempts=reply.attempts,
        )

    async def ask(
        self, prompt: Prompt, sampling: Sampling, *, top: int = 0, **fields: Any
    ) -> Reply:
        """:meth:`generate` without decoding: also ``top`` alternatives to the first token.

        ``fields`` are sent beside the sampling fields, for servers that know them.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(prompt, sampling, top, fields, attempt)
            except PolicyFailure as error:
                if not error.transient or attempt > self.config.retries:
                    raise
                pause = min(BACKOFF * 2 ** (attempt - 1), MAX_BACKOFF) * random.uniform(0.5, 1.5)
                if isinstance(error, Busy) and error.after is not None:
                    pause = error.after
                log.info("model call failed, trying again in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)

    async def get(self, url: str) -> Response:
        """A look at the server, with the key; raises ``PolicyFailure`` if it does not answer."""
        return await self._transport.get(url)

    async def aclose(self) -> None:
        await self._transport.aclose()

    # --- one attempt ---------------------------------------------------------------------------

    async def _attempt(
        self, prompt: Prompt, sampling: Sampling, top: int, extra: dict[str, Any], attempt: int
    ) -> Reply:
        if self._tokens and prompt.token_ids is not None:
            reply = await self._by_tokens(prompt, sampling, top, extra, attempt)
            if reply is not None:
                return reply
        elif self.config.api == "tokens":
            raise ConfigError("the token endpoint needs prompts with token ids: use --api chat")
        return await self._by_chat(prompt, sampling, top, extra, attempt)

    async def _by_tokens(
        self, prompt: Prompt, sampling: Sampling, top: int, extra: dict[str, Any], attempt: int
    ) -> Reply | None:
        """The reply of the token endpoint; ``None`` if the server has none and chat may do."""
        url = f"{self.config.root}/inference/v1/generate"
        fields = sampling_fields(sampling) | {"logprobs": top} | extra
        body = tokens_body(prompt, self.config.model, fields)
        response, version = await self._send(url, body)
        status = response.status_code
        if status in NO_ENDPOINT and not self._tokens_worked:
            self._tokens = False
            if status not in (401, 403):  # chat then says what is wrong with the key
                self._note(
                    "the server has no token endpoint (vLLM: --enable-scale-out): chat it is"
                )
            return None
        if status == 404 and b"does not exist" not in response.body:
            raise PolicyFailure(
                f"{url} does not exist: start vLLM with --enable-scale-out, or use --api chat",
                transient=False,
            )
        if status != 200:
            raise self._failure(response)
        answer = self._read(response, want_logprobs=True, banned=sampling.banned_ids)
        if answer.token_ids is None:
            raise PolicyFailure("the token endpoint answered without token ids", transient=False)
        if answer.prompt_ids is None:
            if self._tokens_worked:
                raise PolicyFailure(
                    "the token endpoint does not return the prompt it ran: update vLLM, or use "
                    "--api chat",
                    transient=False,
                )
            self._tokens = False
            self._note("the token endpoint does not return the prompt it ran: chat it is")
            return None
        self._tokens_worked = True
        spans = answer.spans
        if spans is None or len(spans) != len(prompt.images):
            spans = self._find_spans(answer.prompt_ids, len(prompt.images))
        if spans is None:
            raise PolicyFailure(
                f"the server's prompt does not hold the {len(prompt.images)} images that were sent",
                transient=False,
            )
        prompt_ids, image_tokens = collapse(answer.prompt_ids, spans)
        if prompt_ids != prompt.token_ids:
            raise PolicyFailure(
                f"the server ran another prompt than was sent: {_difference(prompt, prompt_ids)}",
                transient=False,
            )
        return Reply(answer, prompt_ids, image_tokens, version, attempt)

    async def _by_chat(
        self, prompt: Prompt, sampling: Sampling, top: int, extra: dict[str, Any], attempt: int
    ) -> Reply:
        url = f"{self.config.url}/chat/completions"
        wanted = sampling_fields(sampling) | {"logprobs": True, "return_token_ids": True} | extra
        if prompt.template:
            wanted["chat_template_kwargs"] = dict(prompt.template)
        if top:
            wanted |= {"top_logprobs": top, "return_tokens_as_token_ids": True}
        while True:
            fields = {k: v for k, v in wanted.items() if k not in self._dropped}
            if "max_tokens" in self._dropped:
                fields["max_completion_tokens"] = sampling.max_tokens
            body = chat_body(prompt, self.config.model, fields)
            response, version = await self._send(url, body)
            status = response.status_code
            if status == 200:
                break
            message = error_message(response.body)
            name = refused_field(message, fields) if status in (400, 422) else None
            if name is None:
                raise self._failure(response)
            self._drop(name)
        want_logprobs = "logprobs" in fields
        answer = self._read(response, want_logprobs=want_logprobs, banned=sampling.banned_ids)
        prompt_ids = image_tokens = None
        if answer.prompt_ids is not None:
            spans = self._find_spans(answer.prompt_ids, len(prompt.images))
            if spans is None:
                self._note("the images cannot be told apart in the prompt ids the server returns")
            else:
                prompt_ids, image_tokens = collapse(answer.prompt_ids, spans)
                if prompt.token_ids not in (None, prompt_ids):
                    self._note("the server's chat template renders prompts in its own way")
        return Reply(answer, prompt_ids, image_tokens, version, attempt)

    async def _send(self, url: str, body: bytes) -> tuple[Response, str]:
        """The response, and the policy version at the moment the request left the queue."""
        async with self._slots:
            version = self.version
            return await self._transport.post(url, body), version

    # --- reading -------------------------------------------------------------------------------

    def _read(self, response: Response, *, want_logprobs: bool, banned: tuple[int, ...]) -> Answer:
        try:
            data = response.json()
        except ValueError:
            start = self._scrub(error_message(response.body, 80))
            raise PolicyFailure(f"the model server's answer is not JSON: {start!r}") from None
        try:
            return read_answer(data, want_logprobs=want_logprobs, banned=banned)
        except PolicyFailure as error:
            raise PolicyFailure(self._scrub(str(error)), transient=error.transient) from None

    def _find_spans(self, ids: tuple[int, ...], images: int) -> tuple[tuple[int, int], ...] | None:
        placeholder = self._tokenizer.special(IMAGE_TOKEN) if self._tokenizer else None
        return find_spans(ids, images, placeholder)

    def _failure(self, response: Response) -> PolicyFailure:
        message = self._scrub(error_message(response.body))
        error = failure(response.status_code, message, self.config)
        return Busy(str(error), response.retry_after) if error.transient else error

    def _drop(self, name: str) -> None:
        self._dropped.add(name)
        if name == "logprobs":
            self._dropped.add("top_logprobs")
            consequence = "steps will have no logprobs"
        elif name == "return_token_ids":
            consequence = "steps will have token strings instead of token ids"
        elif name == "max_tokens":
            consequence = "sent as max_completion_tokens instead"
        elif name == "logit_bias":
            consequence = "banned ids are not banned"
        else:
            consequence = "the server decides it"
        self._note(f"the server refuses {name}: {consequence}")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            log.warning("%s: %s", self.config.url, text)

    def _scrub(self, text: str) -> str:
        return scrub(text, self.config.secret)


@dataclass(frozen=True, slots=True)
class Reply:
    """A checked answer and the prompt it belongs to."""

    answer: Answer
    prompt_ids: tuple[int, ...] | None
    """The prompt as the server ran it, one placeholder per image."""
    image_tokens: tuple[int, ...] | None
    version: str
    """Policy version when the request was sent."""
    attempts: int


def split_reasoning(text: str) -> tuple[str | None, str]:
    """Reasoning and reply of a text that holds both, as a server's own parser would split it.

    Chat templates of thinking models open ``<think>`` in the prompt, so only its end is certain
    to be in the reply.
    """
    reasoning, end, reply = text.rpartition("</think>")
    if not end:
        return None, text
    return reasoning.replace("<think>", "", 1).strip() or None, reply.lstrip("\n")


def _difference(prompt: Prompt, ran: tuple[int, ...]) -> str:
    sent = prompt.token_ids or ()
    at = next((i for i, (a, b) in enumerate(zip(sent, ran, strict=False)) if a != b), None)
    if at is None:
        return f"{len(sent)} tokens sent, {len(ran)} ran"
    return f"token {at} was {sent[at]}, ran {ran[at]}"
