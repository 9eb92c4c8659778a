"""What a model server can and cannot do, in plain words, before anything is trained on it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from rich.table import Table
from rich.text import Text as RichText

from legato.desktop.contract import Screenshot
from legato.errors import ConfigError, PolicyFailure
from legato.rl.distribution import (
    TOP,
    Finding,
    Top,
    check_bans,
    check_temperature,
    check_truncation,
)
from legato.rl.harness.chatml import ChatML
from legato.rl.images import ImageSpec
from legato.rl.policy import HttpPolicy, PolicyConfig, tokenizer_for
from legato.rl.tokens import HFTokenizer
from legato.rl.types import Generation, ImagePart, Message, Prompt, Sampling, Text

Mark = Literal["ok", "note", "wrong"]

SCREENS = ((1280, 720), (1920, 1080))
"""Screenshot sizes, (width, height) in pixels, whose placeholders are counted."""

OPENINGS = (
    "Say one word, any word at all.",
    "Pick a number between 1 and 1000.",
    "Write the first line of a story nobody has told yet.",
)
"""Prompts with many good first tokens: a distribution shows where there is a choice."""

ABORT_DEADLINE = 10.0
"""Seconds a server gets to start, and then to drop, the request that is given up."""


@dataclass(frozen=True, slots=True)
class Line:
    subject: str
    mark: Mark
    text: str


@dataclass(slots=True)
class ProbeReport:
    """What was found, in order. Print :meth:`lines`, or the report itself with rich."""

    url: str
    model: str
    found: list[Line] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether training on this server's rollouts would be right."""
        return all(line.mark != "wrong" for line in self.found)

    def lines(self) -> list[str]:
        """Plain text, one finding a line, the conclusion last."""
        words = {"ok": "ok", "note": "note", "wrong": "WRONG"}
        width = max((len(line.subject) for line in self.found), default=0)
        body = [f"{words[x.mark]:<5}  {x.subject:<{width}}  {x.text}" for x in self.found]
        return [f"{self.model} at {self.url}", *body, self._conclusion()]

    def __rich__(self) -> Table:
        colours = {"ok": "green", "note": "yellow", "wrong": "red"}
        table = Table(title=f"{self.model} at {self.url}", show_header=False, box=None)
        for line in self.found:
            style = colours[line.mark]
            table.add_row(RichText(line.mark, style), line.subject, RichText(line.text))
        table.add_row("", "", RichText(self._conclusion(), "bold"))
        return table

    def _conclusion(self) -> str:
        wrong = [line.subject for line in self.found if line.mark == "wrong"]
        if wrong:
            return f"Training on this server would be wrong: {', '.join(wrong)}."
        return "This server is fit for training."

    def add(self, subject: str, mark: Mark, text: str) -> None:
        self.found.append(Line(subject, mark, text))


async def probe(config: PolicyConfig, sampling: Sampling) -> ProbeReport:
    """Ask the server what it can do, with the sampling that rollouts will use.

    Takes some thirty short requests. A server that fails is a finding, never an exception;
    :class:`~legato.errors.ConfigError` is raised for a tokenizer that cannot be loaded.
    """
    report = ProbeReport(config.url, config.model)
    tokenizer = tokenizer_for(config)
    policy = HttpPolicy(config, tokenizer)
    try:
        await _Probe(policy, tokenizer, sampling, report).run()
    except PolicyFailure as error:
        report.add("server", "wrong", str(error))
    finally:
        await policy.aclose()
    for note in policy.notes:
        report.add("server", "note", note)
    return report


class _Probe:
    def __init__(
        self,
        policy: HttpPolicy,
        tokenizer: HFTokenizer | None,
        sampling: Sampling,
        report: ProbeReport,
    ) -> None:
        self.policy = policy
        self.config = policy.config
        self.tokenizer = tokenizer
        self.sampling = sampling
        self.report = report
        self.chatml: ChatML | None = None
        if tokenizer is not None:
            try:
                self.chatml = ChatML(tokenizer)
            except ConfigError:
                report.add("tokenizer", "note", "not of the Qwen family: using chat only")

    async def run(self) -> None:
        await self.model()
        reply = await self.reply()
        await self.cache()
        await self.images()
        if reply.logprobs is not None:
            await self.distribution()
        await self.abort()
        await self.version()

    # --- one finding each ----------------------------------------------------------------------

    async def model(self) -> None:
        response = await self.policy.get(f"{self.config.url}/models")
        if response.status_code in (401, 403):
            word = "was refused" if self.config.secret else "is missing"
            raise PolicyFailure(f"LEGATO_POLICY_KEY {word} (HTTP {response.status_code})")
        self.report.add("server", "ok", "reachable, and the key is accepted")
        try:
            served = [str(entry["id"]) for entry in response.json()["data"]]
        except (ValueError, LookupError, TypeError):
            self.report.add("model", "note", "the server does not list its models")
            return
        if self.config.model in served:
            self.report.add("model", "ok", f"{self.config.model} is served")
        else:
            self.report.add("model", "wrong", f"not served; there is {', '.join(served)}")

    async def reply(self) -> Generation:
        # a banned end would keep short replies from ending
        reply = await self.policy.generate(self.prompt(OPENINGS[0]), self.short(16))
        api = self.policy.api if self.chatml else "chat"
        self.report.add(
            "endpoint",
            "ok" if api == "tokens" else "note",
            "token endpoint: prompts go in as exact ids"
            if api == "tokens"
            else "chat: the server renders prompts; multi-turn prefixes may drift "
            "(vLLM: --enable-scale-out, and a tokenizer on this side)",
        )
        if reply.logprobs is None:
            self.report.add("logprobs", "wrong", "none: nothing can be trained on")
        else:
            self.report.add("logprobs", "ok", "one for each sampled token")
        if reply.token_ids is not None:
            self.report.add("token ids", "ok", "those that were sampled are returned")
        elif self.tokenizer is not None:
            self.report.add(
                "token ids", "note", "none: replies must be tokenised again, which is not exact"
            )
        else:
            self.report.add(
                "token ids", "wrong", "none, and no tokenizer on this side: give --tokenizer"
            )
        return reply

    async def cache(self) -> None:
        prompt = self.prompt(" ".join(OPENINGS) * 8)
        await self.policy.generate(prompt, self.short(1))
        again = await self.policy.generate(prompt, self.short(1))
        if again.cached_tokens is None:
            text = (
                "not reported (vLLM: --enable-prompt-tokens-details, SGLang: --enable-cache-report)"
            )
            self.report.add("prefix cache", "note", text)
        elif again.cached_tokens == 0:
            text = "nothing is reused when a prompt is repeated: long rollouts will be slow"
            self.report.add("prefix cache", "note", text)
        else:
            text = f"{again.cached_tokens} of {again.prompt_tokens} tokens of a repeated prompt"
            self.report.add("prefix cache", "ok", text)

    async def images(self) -> None:
        try:
            counts = [await self.image_tokens(size) for size in SCREENS]
        except PolicyFailure as error:
            self.report.add("images", "wrong", str(error))
            return
        self.report.add("images", "ok", "screenshots are taken")
        if None in counts:
            text = "the server does not show where images are in a prompt"
            self.report.add("image tokens", "note", text)
            return
        shown = ", ".join(f"{w}x{h}: {n}" for (w, h), n in zip(SCREENS, counts, strict=True))
        try:
            spec = ImageSpec.load(self.config.tokenizer or self.config.model)
        except ConfigError:
            text = f"{shown}; no image processor config on this side to check them with"
            self.report.add("image tokens", "note", text)
            return
        wanted = [spec.tokens(*size) for size in SCREENS]
        if counts == wanted:
            self.report.add("image tokens", "ok", f"{shown}, as the checkpoint's processor says")
        else:
            text = f"{shown}, but the checkpoint's processor says {wanted}: rows would not fit"
            self.report.add("image tokens", "wrong", text)

    async def image_tokens(self, size: tuple[int, int]) -> int | None:
        """Placeholders of one screenshot; ``None`` if the server does not tell."""
        width, height = size
        pixels = np.zeros((height, width, 3), np.uint8)
        pixels[height // 3 :, width // 4 :] = (40, 120, 200)
        prompt = self.prompt("What is on the screen?", Screenshot(pixels, taken_at=0.0))
        reply = await self.policy.generate(prompt, self.short(1))
        return reply.image_tokens[0] if reply.image_tokens else None

    async def distribution(self) -> None:
        if self.sampling.temperature <= 0:
            text = "temperature 0 always picks one token: there is nothing to learn from"
            self.report.add("temperature", "wrong", text)
            return
        prompts = [self.prompt(text) for text in OPENINGS]
        for prompt in prompts:
            await self.query(prompt, self.sampling)  # from now on its prefix is cached
        asked = self.sampling.temperature
        found = [await check_temperature(self.query, prompts, self.sampling, asked)]
        if asked == 1 and found[0].verdict == "wrong":
            # they are right at 1, unless bans or truncation say otherwise below
            text = f"right at temperature 1 only: {found[0].reason}"
            found = [Finding("temperature", "unknown", text)]
        found.append(await check_bans(self.query, prompts, self.sampling, self.token_id))
        if self.sampling.top_k or self.sampling.top_p < 1:
            found.append(await check_truncation(self.query, prompts, self.sampling))
        marks: dict[str, Mark] = {"right": "ok", "wrong": "wrong", "unknown": "note"}
        for finding in found:
            self.report.add(finding.test, marks[finding.verdict], finding.reason)

    async def abort(self) -> None:
        """Give up a long request and watch the server's own count of running ones."""
        idle = await self.running()
        if idle is None:
            self.report.add("abort", "note", "cannot be seen: the server has no vLLM /metrics")
            return
        prompt = self.prompt(OPENINGS[2])
        call = asyncio.create_task(
            self.policy.ask(prompt, self.short(2048), ignore_eos=True, min_tokens=2048)
        )
        started = await self.until(lambda running: running > idle, call)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        if not started:
            self.report.add("abort", "note", "the request ended before it could be given up")
        elif await self.until(lambda running: running <= idle):
            self.report.add("abort", "ok", "a request that is given up stops at the server")
        else:
            text = f"a request that was given up still ran {ABORT_DEADLINE:g} s later"
            self.report.add("abort", "note", text)

    async def until(
        self, condition: Callable[[float], bool], call: asyncio.Task[object] | None = None
    ) -> bool:
        """Poll the server's count, which has no signal, until it fits or the deadline passes."""
        try:
            async with asyncio.timeout(ABORT_DEADLINE):
                while not condition(await self.running() or 0.0):
                    if call is not None and call.done():
                        return False
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return False
        return True

    async def running(self) -> float | None:
        """Requests running at the server, by its metrics; ``None`` if it has none."""
        response = await self.policy.get(f"{self.config.root}/metrics")
        text = response.body.decode("utf-8", "replace")
        counts = re.findall(
            r"^(?:vllm|sglang):num_(?:requests_)?running(?:_reqs)?\{.*\} (\S+)", text, re.M
        )
        try:
            return sum(float(count) for count in counts) if counts else None
        except ValueError:
            return None

    async def version(self) -> None:
        for path in ("/weight_info", "/get_weight_version"):
            response = await self.policy.get(self.config.root + path)
            if response.status_code == 200:
                told = response.body.decode("utf-8", "replace").strip()[:80]
                text = f"the server says {told}; steps are labelled {self.config.version!r}"
                self.report.add("version", "ok", text)
                return
        text = f"the server does not tell: steps are labelled {self.config.version!r} (--version)"
        self.report.add("version", "note", text)

    # --- asking --------------------------------------------------------------------------------

    def prompt(self, text: str, *images: Screenshot) -> Prompt:
        message = Message("user", (*(ImagePart(image) for image in images), Text(text)))
        if self.chatml is None:
            return Prompt((message,), None)
        return Prompt((message,), (*self.chatml.message(message), *self.chatml.opening("")))

    def short(self, max_tokens: int) -> Sampling:
        return replace(self.sampling, max_tokens=max_tokens)

    async def query(self, prompt: Prompt, sampling: Sampling) -> Top:
        reply = await self.policy.ask(prompt, replace(sampling, max_tokens=1), top=TOP)
        return reply.answer.top

    def token_id(self, name: str) -> int | None:
        """Id of a token as the server names it: by number, or by its text."""
        if name.startswith("token_id:"):
            return int(name.removeprefix("token_id:"))
        if self.tokenizer is None:
            return None
        special = self.tokenizer.special(name)
        if special is not None:
            return special
        ids = self.tokenizer.encode(name)
        return ids[0] if len(ids) == 1 else None
