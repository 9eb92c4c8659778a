"""The client against a scripted server, over real sockets: what a good answer becomes."""

from __future__ import annotations

import asyncio
import base64
import math
from dataclasses import replace

import pytest

from legato.rl.policy import request
from legato.rl.policy.http import split_reasoning
from legato.rl.types import Generation, Sampling
from tests.rl.policy.asking import SAMPLING, ask, policy, prompt, shot, until
from tests.rl.servers import (
    Behaviour,
    ModelServer,
)


@pytest.mark.parametrize("api", ["tokens", "chat"])
@pytest.mark.parametrize("images", [0, 1, 3])
def test_reply_is_whole(server: ModelServer, api: str, images: int) -> None:
    shots = [shot(i) for i in range(images)]
    reply, p = ask(server, *shots, api=api)
    sent = prompt(server, *shots)
    assert p.api == api
    assert reply.prompt_ids == sent.token_ids
    assert reply.image_tokens == (server.behaviour.image_tokens,) * images
    assert reply.token_ids is not None
    assert reply.logprobs is not None
    assert len(reply.token_ids) == len(reply.logprobs) > 0
    assert all(lp <= 0 and math.isfinite(lp) for lp in reply.logprobs)
    assert reply.text == server.tokenizer.decode(reply.token_ids)
    assert reply.completion_tokens == len(reply.token_ids)
    assert reply.prompt_tokens == len(sent.token_ids or ()) + images * (
        server.behaviour.image_tokens - 1
    )
    assert reply.attempts == 1
    assert reply.seconds > 0
    assert reply.tokens is None
    assert p.notes == []


def test_stop_and_length_are_told_apart(server: ModelServer) -> None:
    server.behaviour.reply = "done"
    end = server.tokenizer.special("<|im_end|>")
    reply, _ = ask(server)
    assert (reply.finish_reason, reply.text) == ("stop", "done")
    assert reply.token_ids is not None
    assert reply.token_ids[-1] == end
    reply, _ = ask(server, sampling=replace(SAMPLING, max_tokens=2))
    assert (reply.finish_reason, reply.text) == ("length", "do")


def test_empty_reply_is_a_reply(server: ModelServer) -> None:
    server.behaviour.reply = ""
    for api in ("tokens", "chat"):
        reply, _ = ask(server, api=api)
        assert reply.text == ""
        assert reply.finish_reason == "stop"
        assert reply.token_ids == (server.tokenizer.special("<|im_end|>"),)


def test_cached_tokens(server: ModelServer) -> None:
    first, _ = ask(server)
    second, _ = ask(server)
    assert first.cached_tokens == 0
    assert second.cached_tokens == second.prompt_tokens
    server.behaviour.cached = False
    assert ask(server)[0].cached_tokens is None


@pytest.mark.parametrize("api", ["tokens", "chat"])
def test_sampling_is_spelled_out(server: ModelServer, api: str) -> None:
    sampling = Sampling(
        temperature=0.7, top_p=0.9, top_k=0, max_tokens=5, banned_ids=(7, 9), seed=11
    )
    ask(server, sampling=sampling, api=api)
    body = server.requests[-1].body
    fields = body if api == "chat" else body["sampling_params"]
    expected = {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "max_tokens": 5,
        "logit_bias": {"7": -100.0, "9": -100.0},
        "seed": 11,
    }
    assert {k: fields[k] for k in expected} == expected


def test_one_placeholder_per_image_and_the_images_in_order(server: ModelServer) -> None:
    shots = [shot(1), shot(2)]
    ask(server, *shots)
    body = server.requests[-1].body
    pad = server.tokenizer.special("<|image_pad|>")
    assert body["token_ids"].count(pad) == 2
    sent = [base64.b64decode(p["url"].split(",")[1]) for p in body["content_parts"]]
    assert sent == [s.png for s in shots]


def test_a_screenshot_is_encoded_once(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    image = shot(5)
    encoded: list[int] = []
    real = request.base64.b64encode
    monkeypatch.setattr(request.base64, "b64encode", lambda b: encoded.append(len(b)) or real(b))
    ask(server, image)
    ask(server, image, api="chat")
    assert encoded == [len(image.png)]


def test_reasoning_of_the_server_and_of_the_text(server: ModelServer) -> None:
    server.behaviour.reply = "hmm</think>\n\nclick"
    reply, _ = ask(server, sampling=replace(SAMPLING, max_tokens=64))
    assert (reply.reasoning, reply.text) == ("hmm", "click")
    server.behaviour.reasoning = "I think"
    server.behaviour.reply = "click"
    reply, _ = ask(server, api="chat")
    assert (reply.reasoning, reply.text) == ("I think", "click")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", (None, "plain")),
        ("<think>a</think>b", ("a", "b")),
        ("a\n</think>\n\nb", ("a", "b")),
        ("<think>\n\n</think>\n\nb", (None, "b")),
        ("cut off in thought", (None, "cut off in thought")),
        ("", (None, "")),
    ],
)
def test_split_reasoning(text: str, expected: tuple[str | None, str]) -> None:
    assert split_reasoning(text) == expected


def test_version_changes_under_a_call(server: ModelServer) -> None:
    server.behaviour.delay = 0.2

    async def run() -> tuple[Generation, Generation]:
        p = policy(server, version="41")
        call = asyncio.create_task(p.generate(prompt(server), SAMPLING))
        await until(lambda: server.inflight == 1)
        p.set_version("42")
        first, second = await call, await p.generate(prompt(server), SAMPLING)
        await p.aclose()
        return first, second

    first, second = asyncio.run(run())
    assert (first.version, first.version_last) == ("41", "42")
    assert (second.version, second.version_last) == ("42", None)


def test_behaviour_is_complete() -> None:
    """The scripted server's own sampler agrees with the logprobs it reports."""
    with ModelServer(Behaviour()) as server:
        reply, _ = ask(server, sampling=Sampling(temperature=1.0, top_k=1, max_tokens=3))
    assert reply.logprobs == (0.0, 0.0, 0.0)
