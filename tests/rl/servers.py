"""A scripted model server on the loopback: a real sampler over made-up logits, and faults.

It speaks vLLM's token endpoint and OpenAI chat over real sockets, so that a client is tested as
it will be used. One :class:`Behaviour` says how it serves; :attr:`ModelServer.faults` says what
goes wrong with the next requests.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import TracebackType
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from legato.rl.tokens import HFTokenizer

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
WRITTEN = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
FLOOR = -9999.0


def byte_level() -> tokenizers.Tokenizer:
    """A tokenizer with one id per byte, chat specials, and the tags a model writes itself."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in WRITTEN])
    return tokenizer


@dataclass
class Behaviour:
    """How the server serves while nothing goes wrong."""

    key: str | None = None
    token_endpoint: bool = True
    raw_logprobs: bool = False
    """Logprobs of the model, whatever is asked for (vLLM's default ``raw_logprobs``)."""
    hidden_top_k: int = 0
    """Applied against an explicit ``top_k`` of "off"."""
    hidden_top_p: float = 1.0
    ignore_bias: bool = False
    ignore_truncation: bool = False
    """Logprobs before top_k and top_p, as SGLang gives them."""
    noise: float = 0.0
    """Standard deviation added to the logits anew in each call."""
    peak: float = 0.0
    """Logit added to one token: a model that is sure of itself."""
    steep: float = 1.0
    """Factor of all logits: a model that is sure of everything."""
    refuse: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()
    """Fields that are swallowed silently."""
    image_tokens: int = 6
    reply: str | None = None
    """Reply with this text instead of sampling."""
    delay: float = 0.0
    max_len: int = 4096
    cached: bool = True
    """Report cached tokens."""
    reasoning: str | None = None
    choice_prompt_ids: bool = False
    """Put prompt ids in the choice, as SGLang does."""


@dataclass(frozen=True)
class Status:
    code: int
    body: bytes = b'{"error": {"message": "scripted"}}'
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Raw:
    """A 200 with these very bytes."""

    body: bytes


@dataclass(frozen=True)
class Hang:
    """No answer until the client goes away."""


@dataclass(frozen=True)
class Drop:
    """The connection is closed instead of an answer."""


Patch = Callable[[dict[str, Any]], Any]
"""Spoils a good answer: edits it in place, or returns another."""
Fault = Status | Raw | Hang | Drop | Patch


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any] = field(default_factory=dict)


class ModelServer:
    """Serves from a thread of its own between ``__enter__`` and ``__exit__``."""

    def __init__(self, behaviour: Behaviour | None = None, **changes: Any) -> None:
        self.behaviour = replace(behaviour or Behaviour(), **changes)
        self.tokenizer = HFTokenizer(byte_level())
        self.faults: deque[Fault] = deque()
        self.always: Fault | None = None
        """The fault of every request once :attr:`faults` are used up."""
        self.requests: list[Request] = []
        """Generation requests, in order."""
        self.inflight = 0
        self.most_inflight = 0
        self.gone = 0
        """Requests whose client left before the answer."""
        self.connections = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._seen: set[tuple[int, ...]] = set()
        self._rng = np.random.default_rng(0)
        self._calls = 0

    def __enter__(self) -> ModelServer:
        self._thread.start()
        serving = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**26)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def _close(self) -> None:
        self._server.close()
        mine = asyncio.current_task()
        others = [t for t in asyncio.all_tasks() if t is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    # --- http ----------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        start, *lines = head.split("\r\n")
        method, path, _ = start.split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (x.partition(":") for x in lines if x)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        if method == "GET":
            await self._send(writer, *self._look(path, headers))
            return True
        request = Request(path, headers, json.loads(raw))
        self.requests.append(request)
        self.inflight += 1
        self.most_inflight = max(self.most_inflight, self.inflight)
        left = asyncio.create_task(reader.read(1))
        answering = asyncio.create_task(self._answer(request))
        try:
            await asyncio.wait({left, answering}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                self.gone += 1
                return False
            answer = answering.result()
            if answer is None:
                return False
            # before the bytes leave: a client may send its next request the moment they arrive
            self.inflight -= 1
            await self._send(writer, *answer)
        finally:
            if not answering.done() or answering.result() is None:
                self.inflight -= 1
            for task in (left, answering):
                task.cancel()
            await asyncio.gather(left, answering, return_exceptions=True)
        return True

    async def _send(
        self, writer: asyncio.StreamWriter, code: int, body: bytes, headers: Any = ()
    ) -> None:
        lines = [f"HTTP/1.1 {code} {HTTPStatus(code).phrase}", f"Content-Length: {len(body)}"]
        lines += [f"{k}: {v}" for k, v in headers]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    def _look(self, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        if not self._allowed(headers):
            return _error(401, "invalid api key")
        if path == "/v1/models":
            return 200, json.dumps({"data": [{"id": "scripted"}]}).encode()
        if path == "/metrics":
            text = (
                f'vllm:num_requests_running{{model_name="scripted"}} {self.inflight}\n'
                f'vllm:request_success_total{{finished_reason="abort"}} {self.gone}\n'
            )
            return 200, text.encode()
        return _error(404, "Not Found")

    def _allowed(self, headers: dict[str, str]) -> bool:
        key = self.behaviour.key
        return key is None or headers.get("authorization") == f"Bearer {key}"

    # --- answering -----------------------------------------------------------------------------

    async def _answer(self, request: Request) -> tuple[int, bytes, Any] | None:
        fault = self.faults.popleft() if self.faults else self.always
        if isinstance(fault, Hang):
            await asyncio.Event().wait()
        if isinstance(fault, Drop):
            return None
        if isinstance(fault, Status):
            return fault.code, fault.body, fault.headers
        if isinstance(fault, Raw):
            return 200, fault.body, ()
        if self.behaviour.delay:
            await asyncio.sleep(self.behaviour.delay)
        status, body = self._generate(request)
        if status == 200 and fault is not None:
            data = json.loads(body)
            spoiled = fault(data)
            body = json.dumps(data if spoiled is None else spoiled).encode()
        return status, body, ()

    def _generate(self, request: Request) -> tuple[int, bytes]:
        b, body = self.behaviour, request.body
        if not self._allowed(request.headers):
            return _error(401, "invalid api key")
        chat = request.path == "/v1/chat/completions"
        if not chat and not (request.path == "/inference/v1/generate" and b.token_endpoint):
            return _error(404, "Not Found")
        fields = body if chat else body["sampling_params"]
        for name in fields:
            if name in b.refuse:
                return _error(400, f"Unrecognized request argument supplied: {name}")
        fields = {k: v for k, v in fields.items() if k not in b.ignore}
        if body["model"] != "scripted":
            return _error(404, f"The model `{body['model']}` does not exist.")
        prompt = self._chat_ids(body["messages"]) if chat else list(body["token_ids"])
        pad = self.tokenizer.special("<|image_pad|>")
        expanded: list[int] = []
        spans = []
        for token_id in prompt:
            if token_id == pad:
                spans.append({"offset": len(expanded), "length": b.image_tokens})
                expanded += [pad] * b.image_tokens
            else:
                expanded.append(token_id)
        if len(expanded) + 1 > b.max_len:
            return _error(400, f"This model's maximum context length is {b.max_len} tokens.")
        ids, content, finish = self._sample(tuple(prompt), fields, chat)
        cached = len(expanded) if tuple(prompt) in self._seen else 0
        self._seen.add(tuple(prompt))
        usage: dict[str, Any] = {"prompt_tokens": len(expanded), "completion_tokens": len(ids)}
        if b.cached:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        answer: dict[str, Any] = {"choices": [choice], "usage": usage}
        with_ids = body.get("return_token_ids") and "return_token_ids" not in b.ignore
        if not chat or with_ids:
            choice["token_ids"] = ids
        if with_ids:
            (choice if b.choice_prompt_ids else answer)["prompt_token_ids"] = expanded
        if not chat:
            answer["mm_placeholders"] = {"image": spans} if spans else None
        if not chat or fields.get("logprobs"):
            choice["logprobs"] = {"content": content}
        if chat:
            message = {"role": "assistant", "content": self.tokenizer.decode(ids)}
            if b.reasoning is not None:
                message["reasoning_content"] = b.reasoning
            choice["message"] = message
        return 200, json.dumps(answer).encode()

    def _chat_ids(self, messages: list[dict[str, Any]]) -> list[int]:
        special = {t: self.tokenizer.special(t) or 0 for t in SPECIAL}
        ids: list[int] = []
        for message in messages:
            ids += [special["<|im_start|>"], *self.tokenizer.encode(message["role"] + "\n")]
            content = message["content"]
            for part in [{"text": content}] if isinstance(content, str) else content:
                if "text" in part:
                    ids += self.tokenizer.encode(part["text"])
                else:
                    assert part["image_url"]["url"].startswith("data:image/png;base64,")
                    ids += [special[f"<|{t}|>"] for t in _IMAGE]
            ids += [special["<|im_end|>"], *self.tokenizer.encode("\n")]
        return [*ids, special["<|im_start|>"], *self.tokenizer.encode("assistant\n")]

    # --- the model -----------------------------------------------------------------------------

    def _sample(
        self, prompt: tuple[int, ...], fields: dict[str, Any], chat: bool
    ) -> tuple[list[int], list[dict[str, Any]], str]:
        b = self.behaviour
        end = self.tokenizer.special("<|im_end|>") or 0
        wanted = None if b.reply is None else [*self.tokenizer.encode(b.reply), end]
        top = fields.get("top_logprobs", 0) if chat else fields["logprobs"]
        by_id = fields.get("return_tokens_as_token_ids", not chat)
        longest = fields.get("max_tokens") or fields["max_completion_tokens"]
        ids: list[int] = []
        content = []
        while len(ids) < longest:
            logits = self._logits((*prompt, *ids))
            sampled_from, reported = self._distributions(logits, fields)
            if wanted is None:
                token = int(self._rng.choice(len(logits), p=np.exp(sampled_from)))
            else:
                token = wanted[len(ids)]
            best = np.argsort(-reported)[:top]
            content.append(
                {
                    "token": self._name(token, by_id),
                    "logprob": max(float(reported[token]), FLOOR),
                    "top_logprobs": [
                        {"token": self._name(int(i), by_id), "logprob": max(float(lp), FLOOR)}
                        for i, lp in zip(best, reported[best], strict=True)
                    ],
                }
            )
            ids.append(token)
            if token == end:
                return ids, content, "stop"
        return ids, content, "length"

    def _name(self, token: int, by_id: bool) -> str:
        if by_id:
            return f"token_id:{token}"
        text = self.tokenizer.decode([token], skip_special=False)
        # half a character has no text of its own
        return f"bytes:{token}" if "\ufffd" in text else text

    def _logits(self, context: tuple[int, ...]) -> np.ndarray:
        seed = np.random.default_rng(abs(hash(context)) % 2**32)
        logits = seed.normal(0.0, 1.5, len(self.tokenizer))
        logits[int(seed.integers(200))] += self.behaviour.peak
        if self.behaviour.noise:
            self._calls += 1
            logits += np.random.default_rng(self._calls).normal(
                0.0, self.behaviour.noise, len(logits)
            )
        return logits * self.behaviour.steep

    def _distributions(
        self, logits: np.ndarray, fields: dict[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities sampled from, and those reported."""
        b = self.behaviour
        raw = _log_softmax(logits)
        biased = logits.copy()
        for token, bias in (fields.get("logit_bias") or {}).items():
            if not b.ignore_bias:
                biased[int(token)] += bias
        scaled = _log_softmax(biased / (fields["temperature"] or 1e-3))
        top_k = fields.get("top_k", 0)
        final = _truncate(
            scaled,
            top_k if top_k and top_k > 0 else b.hidden_top_k,
            min(fields.get("top_p", 1.0), b.hidden_top_p),
        )
        reported = raw if b.raw_logprobs else scaled if b.ignore_truncation else final
        return final, reported


_IMAGE = ("vision_start", "image_pad", "vision_end")


def _error(code: int, message: str) -> tuple[int, bytes]:
    return code, json.dumps({"error": {"message": message}}).encode()


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def _truncate(logprobs: np.ndarray, top_k: int, top_p: float) -> np.ndarray:
    order = np.argsort(-logprobs)
    kept = order[: top_k or len(order)]
    inside = _log_softmax(logprobs[kept])
    before = np.concatenate([[0.0], np.cumsum(np.exp(inside))[:-1]])
    kept = kept[before < top_p] if top_p < 1 else kept
    out = np.full_like(logprobs, -np.inf)
    out[kept] = _log_softmax(logprobs[kept])
    return out
