"""The client against a real vLLM server with a tiny Qwen3-VL."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import numpy as np
import pytest

from legato.desktop.contract import Screenshot
from legato.errors import ContextLimit, PolicyFailure
from legato.rl.harness.chatml import ChatML
from legato.rl.images import ImageSpec
from legato.rl.policy import HttpPolicy, PolicyConfig
from legato.rl.policy.http import Reply
from legato.rl.tokens import HFTokenizer, load_tokenizer
from legato.rl.types import Generation, ImagePart, Message, Prompt, Sampling, Text
from tests.conftest import Vllm

pytestmark = pytest.mark.vllm

T = TypeVar("T")


def shot(seed: int) -> Screenshot:
    rgb = np.random.default_rng(seed).integers(0, 255, (72, 128, 3), dtype=np.uint8)
    return Screenshot(np.kron(rgb, np.ones((10, 10, 1), np.uint8)), taken_at=0.0).seal()


@pytest.fixture(scope="module")
def tokenizer(vllm: Vllm) -> HFTokenizer:
    return load_tokenizer(str(vllm.checkpoint))


def make(tokenizer: HFTokenizer, *images: Screenshot, text: str = "click save") -> Prompt:
    message = Message("user", (*(ImagePart(i) for i in images), Text(text)))
    chatml = ChatML(tokenizer)
    return Prompt((message,), (*chatml.message(message), *chatml.opening("")))


def use(
    vllm: Vllm, tokenizer: HFTokenizer, work: Callable[[HttpPolicy], Awaitable[T]], **changes: Any
) -> T:
    async def run() -> T:
        config = PolicyConfig(vllm.url, vllm.model, **{"step_timeout": 60.0} | changes)
        policy = HttpPolicy(config, tokenizer)
        try:
            return await work(policy)
        finally:
            await policy.aclose()

    return asyncio.run(run())


def banned(tokenizer: HFTokenizer) -> tuple[int, ...]:
    found = [tokenizer.special(t) for t in ("<|image_pad|>", "<|video_pad|>")]
    return tuple(i for i in found if i is not None)


@pytest.mark.parametrize("api", ["tokens", "chat"])
@pytest.mark.parametrize("images", [0, 1, 3])
def test_reply_is_whole(vllm: Vllm, tokenizer: HFTokenizer, api: str, images: int) -> None:
    prompt = make(tokenizer, *(shot(i) for i in range(images)))
    sampling = Sampling(temperature=0.9, max_tokens=24, banned_ids=banned(tokenizer))
    reply = use(vllm, tokenizer, lambda p: p.generate(prompt, sampling), api=api)
    per_image = ImageSpec.load(str(vllm.checkpoint)).tokens(1280, 720)
    assert reply.image_tokens == (per_image,) * images
    assert reply.token_ids is not None
    assert reply.logprobs is not None
    assert len(reply.token_ids) == len(reply.logprobs)
    assert not set(reply.token_ids) & set(sampling.banned_ids)
    assert reply.prompt_ids == prompt.token_ids
    assert prompt.token_ids is not None
    assert reply.prompt_tokens == len(prompt.token_ids) + images * (per_image - 1)
    text = tokenizer.decode(reply.token_ids)
    # bytes that are no UTF-8 are replaced one by one or together, as each side likes
    assert reply.text.replace("\ufffd", "") == text.replace("\ufffd", "")


def test_both_endpoints_sample_the_same(vllm: Vllm, tokenizer: HFTokenizer) -> None:
    prompt = make(tokenizer, shot(4))
    sampling = Sampling(temperature=0.7, max_tokens=12, banned_ids=banned(tokenizer), seed=5)
    by_tokens = use(vllm, tokenizer, lambda p: p.generate(prompt, sampling), api="tokens")
    by_chat = use(vllm, tokenizer, lambda p: p.generate(prompt, sampling), api="chat")
    assert by_tokens.token_ids == by_chat.token_ids
    assert by_tokens.logprobs == pytest.approx(by_chat.logprobs, abs=1e-4)


def test_prefix_stays_exact_and_cached_over_turns(vllm: Vllm, tokenizer: HFTokenizer) -> None:
    """Sampled ids enter the next prompt untouched; the server runs exactly those."""
    chatml = ChatML(tokenizer)
    sampling = Sampling(max_tokens=16, banned_ids=banned(tokenizer))

    async def work(policy: HttpPolicy) -> list[Generation]:
        replies: list[Generation] = []
        prompt = make(tokenizer, shot(20))
        for turn in range(1, 5):
            reply = await policy.generate(prompt, sampling)
            replies.append(reply)
            message = Message("user", (ImagePart(shot(20 + turn)), Text("next")))
            assert prompt.token_ids is not None
            assert reply.token_ids is not None
            done = (*prompt.token_ids, *reply.token_ids)
            more = [*chatml.closing(reply.token_ids), *chatml.message(message)]
            assistant = Message("assistant", (Text(reply.text),))
            prompt = Prompt(
                (*prompt.messages, assistant, message),
                (*done, *more, *chatml.opening("")),
                len(done),
            )
        return replies

    replies = use(vllm, tokenizer, work, api="tokens")
    for before, after in itertools.pairwise(replies):
        assert after.prompt_ids is not None
        whole = (*(before.prompt_ids or ()), *(before.token_ids or ()))
        assert after.prompt_ids[: len(whole)] == whole
    assert all(r.cached_tokens is not None for r in replies)
    assert (replies[-1].cached_tokens or 0) > (replies[-1].prompt_tokens or 0) / 2


def test_bans_hold_and_enter_the_logprobs(vllm: Vllm, tokenizer: HFTokenizer) -> None:
    """With all but two ids banned, the two share the whole probability."""
    allowed = (65, 66)
    ids = tuple(i for i in range(len(tokenizer)) if i not in allowed)
    sampling = Sampling(temperature=0.7, max_tokens=40, banned_ids=ids)
    prompt = make(tokenizer)

    async def work(policy: HttpPolicy) -> tuple[Generation, dict[str, float]]:
        first = await policy.ask(prompt, sampling, top=5)
        return await policy.generate(prompt, sampling), dict(first.answer.top)

    for api in ("tokens", "chat"):
        reply, top = use(vllm, tokenizer, work, api=api)
        assert reply.token_ids
        assert set(reply.token_ids) <= set(allowed)
        mass = sum(np.exp(top[f"token_id:{i}"]) for i in allowed)
        assert mass == pytest.approx(1.0, abs=1e-5)


def test_finish_reasons(vllm: Vllm, tokenizer: HFTokenizer) -> None:
    prompt = make(tokenizer)
    end = tokenizer.special("<|im_end|>")
    other = tuple(i for i in range(len(tokenizer)) if i != end)
    for api in ("tokens", "chat"):
        cut = use(
            vllm,
            tokenizer,
            lambda p: p.generate(prompt, Sampling(max_tokens=2, banned_ids=(end or 0,))),
            api=api,
        )
        assert (cut.finish_reason, len(cut.token_ids or ())) == ("length", 2)
        ended = use(
            vllm, tokenizer, lambda p: p.generate(prompt, Sampling(banned_ids=other)), api=api
        )
        assert (ended.finish_reason, ended.token_ids, ended.text) == ("stop", (end,), "")


@pytest.mark.parametrize("api", ["tokens", "chat"])
def test_context_limit(vllm: Vllm, tokenizer: HFTokenizer, api: str) -> None:
    prompt = make(tokenizer, text="word " * 5000)
    with pytest.raises(ContextLimit):
        use(vllm, tokenizer, lambda p: p.generate(prompt, Sampling(max_tokens=8)), api=api)


def test_unknown_model(vllm: Vllm, tokenizer: HFTokenizer) -> None:
    async def work(policy: HttpPolicy) -> Generation:
        return await policy.generate(make(tokenizer), Sampling())

    with pytest.raises(PolicyFailure, match="nobody") as caught:
        asyncio.run(_with(HttpPolicy(PolicyConfig(vllm.url, "nobody"), tokenizer), work))
    assert not caught.value.transient


async def _with(policy: HttpPolicy, work: Callable[[HttpPolicy], Awaitable[T]]) -> T:
    try:
        return await work(policy)
    finally:
        await policy.aclose()


async def metric(policy: HttpPolicy, name: str) -> float:
    text = (await policy.get(f"{policy.config.root}/metrics")).body.decode()
    return sum(float(value) for value in re.findall(rf"^vllm:{name}\{{.*\}} (\S+)", text, re.M))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - the server has no signal for it
            await asyncio.sleep(0.05)


LONG = Sampling(max_tokens=3900)
CALLS = 3


async def nothing_runs(policy: HttpPolicy) -> bool:
    return await metric(policy, "num_requests_running") == 0


def ask_at_length(policy: HttpPolicy, prompt: Prompt) -> list[asyncio.Task[Reply]]:
    """Calls that a server takes long to answer."""
    asked = (policy.ask(prompt, LONG, ignore_eos=True) for _ in range(CALLS))
    return [asyncio.create_task(call) for call in asked]


@pytest.mark.parametrize("api", ["tokens", "chat"])
def test_a_call_that_is_cancelled_is_aborted(vllm: Vllm, tokenizer: HFTokenizer, api: str) -> None:
    async def work(policy: HttpPolicy) -> None:
        async def all_run() -> bool:
            return await metric(policy, "num_requests_running") == CALLS

        before = await metric(policy, "generation_tokens_total")
        calls = ask_at_length(policy, make(tokenizer))
        await until(all_run)
        for call in calls:
            call.cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        await until(lambda: nothing_runs(policy))
        generated = await metric(policy, "generation_tokens_total") - before
        assert generated < 2 * LONG.max_tokens

    use(vllm, tokenizer, work, api=api)


@pytest.mark.parametrize("api", ["tokens", "chat"])
def test_a_call_that_runs_out_of_time_is_aborted(
    vllm: Vllm, tokenizer: HFTokenizer, api: str
) -> None:
    prompt = make(tokenizer)
    assert prompt.token_ids is not None

    async def work(policy: HttpPolicy) -> bool:
        """Whether the server had begun with all calls when their time was up."""
        asked = await metric(policy, "prompt_tokens_total")
        before = await metric(policy, "generation_tokens_total")
        ends = await asyncio.gather(*ask_at_length(policy, prompt), return_exceptions=True)
        assert all(isinstance(end, PolicyFailure) for end in ends)
        await until(lambda: nothing_runs(policy))
        generated = await metric(policy, "generation_tokens_total") - before
        assert generated < 2 * LONG.max_tokens
        asked = await metric(policy, "prompt_tokens_total") - asked
        return asked == CALLS * len(prompt.token_ids)

    # A server so busy that it did not begin in time takes all the longer to answer.
    for timeout in (2.0, 6.0, 18.0):
        if use(vllm, tokenizer, work, api=api, step_timeout=timeout, retries=0):
            return
    pytest.fail("the server did not begin with three calls in time")


def test_max_inflight_counted_at_the_server(vllm: Vllm, tokenizer: HFTokenizer) -> None:
    async def work(policy: HttpPolicy) -> float:
        most = 0.0
        calls = asyncio.gather(
            *(
                policy.ask(make(tokenizer, text=str(i)), Sampling(max_tokens=64), ignore_eos=True)
                for i in range(16)
            )
        )
        while not calls.done():
            most = max(most, await metric(policy, "num_requests_running"))
            await asyncio.sleep(0.01)
        await calls
        return most

    assert use(vllm, tokenizer, work, max_inflight=3) == 3
