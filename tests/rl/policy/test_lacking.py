"""What servers lack or change, and what the client makes of it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from legato.desktop.contract import Screenshot
from legato.errors import ConfigError, PolicyFailure
from legato.rl.harness import make_harness
from legato.rl.policy import HttpPolicy, PolicyConfig
from legato.rl.types import Generation, Sampling
from tests.rl.policy.asking import SAMPLING, ask, policy, prompt, shot
from tests.rl.servers import (
    Fault,
    ModelServer,
    Status,
)


def test_falls_back_to_chat_and_says_so(server: ModelServer) -> None:
    server.behaviour.token_endpoint = False
    reply, p = ask(server, shot())
    assert reply.token_ids is not None
    assert p.api == "chat"
    assert len(p.notes) == 1
    assert "--enable-scale-out" in p.notes[0]


def test_token_endpoint_asked_for_but_missing(server: ModelServer) -> None:
    server.behaviour.token_endpoint = False
    with pytest.raises(PolicyFailure, match="--enable-scale-out"):
        ask(server, api="tokens")


def test_tokens_need_a_tokenizer(server: ModelServer) -> None:
    with pytest.raises(ConfigError, match="--tokenizer"):
        ask(server, api="tokens", tokenizer=False)


@pytest.mark.parametrize(
    "field",
    ["return_token_ids", "top_k", "seed", "logit_bias", "min_p", "repetition_penalty"],
)
def test_refused_field_is_dropped_and_noted_once(
    server: ModelServer, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.behaviour.refuse = frozenset({field})
    sampling = replace(SAMPLING, banned_ids=(1,))

    async def run() -> list[Generation]:
        p = policy(server, api="chat")
        replies = [await p.generate(prompt(server), sampling) for _ in range(3)]
        await p.aclose()
        assert len(p.notes) == 1
        assert field in p.notes[0]
        return replies

    with caplog.at_level(logging.WARNING, "legato.policy"):
        replies = asyncio.run(run())
    assert len([r for r in caplog.records if field in r.message]) == 1
    assert all(r.logprobs for r in replies)
    assert len(server.requests) == 4
    assert field not in server.requests[-1].body
    if field == "return_token_ids":
        assert all(r.token_ids is None and r.prompt_ids is None for r in replies)
        assert all(len(r.tokens or ()) == len(r.logprobs or ()) for r in replies)


def test_several_refused_fields(server: ModelServer) -> None:
    server.behaviour.refuse = frozenset({"return_token_ids", "top_k", "min_p", "seed"})
    reply, p = ask(server, api="chat")
    assert reply.logprobs
    assert len(p.notes) == 4


def test_refused_logprobs_leave_none(server: ModelServer) -> None:
    server.behaviour.refuse = frozenset({"logprobs"})
    reply, p = ask(server, api="chat")
    assert reply.logprobs is None
    assert reply.token_ids
    assert any("no logprobs" in n for n in p.notes)


def test_max_tokens_under_its_new_name(server: ModelServer) -> None:
    message = b"Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    server.faults.append(Status(400, message))
    reply, _ = ask(server, api="chat")
    assert reply.logprobs
    assert server.requests[-1].body["max_completion_tokens"] == SAMPLING.max_tokens
    assert "max_tokens" not in server.requests[-1].body


def test_a_bad_value_is_not_taken_for_an_unknown_field(server: ModelServer) -> None:
    server.always = Status(
        400, b'{"error": {"message": "token_id(s) [9] in logit_bias are out of vocab"}}'
    )
    with pytest.raises(PolicyFailure, match="out of vocab"):
        ask(server, api="chat", sampling=replace(SAMPLING, banned_ids=(9,)), retries=3)
    assert len(server.requests) == 1


def test_silently_ignored_fields(server: ModelServer) -> None:
    server.behaviour.ignore = frozenset({"return_token_ids"})
    reply, _ = ask(server, api="chat")
    assert reply.token_ids is None
    assert len(reply.tokens or ()) == len(reply.logprobs or ()) > 0


def test_prompt_ids_of_sglang(server: ModelServer) -> None:
    server.behaviour.choice_prompt_ids = True
    image = shot()
    reply, _ = ask(server, image, api="chat", tokenizer=False)
    assert reply.prompt_ids == prompt(server, image).token_ids


def test_banned_ids_that_come_back_are_a_failure(server: ModelServer) -> None:
    server.behaviour.reply = "abc"
    server.behaviour.ignore_bias = True
    banned = tuple(server.tokenizer.encode("b"))
    for api in ("tokens", "chat"):
        with pytest.raises(PolicyFailure, match="banned") as caught:
            ask(server, api=api, sampling=replace(SAMPLING, banned_ids=banned))
        assert not caught.value.transient


def test_a_prompt_that_was_changed_is_named(server: ModelServer) -> None:
    def change(answer: dict[str, Any]) -> None:
        answer["prompt_token_ids"][3] += 1

    server.always = change
    with pytest.raises(PolicyFailure, match="token 3 was"):
        ask(server, shot())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda a: a["mm_placeholders"]["image"][0].update(offset=0),
        lambda a: a["mm_placeholders"]["image"][0].update(length=10**6),
        lambda a: a["mm_placeholders"]["image"][0].update(length="x"),
        lambda a: a["mm_placeholders"]["image"].append(a["mm_placeholders"]["image"][0]),
        lambda a: a["prompt_token_ids"].pop(),
    ],
)
def test_placeholders_that_do_not_fit(server: ModelServer, spoil: Fault) -> None:
    server.always = spoil
    image = shot()
    try:
        reply, _ = ask(server, image)
    except PolicyFailure:
        return
    # a superfluous claim may be outvoted by the prompt itself, but never believed
    assert reply.prompt_ids == prompt(server, image).token_ids


@pytest.mark.parametrize("refuse", [frozenset(), frozenset({"chat_template_kwargs"})])
def test_a_harness_tells_the_servers_template_what_to_render(refuse: frozenset[str]) -> None:
    conversation = make_harness("qwen3_5", tokenizer=None, thinking=True).start("go", (320, 240))
    conversation.observe(Screenshot(np.zeros((240, 320, 3), np.uint8), 0.0))
    prompt = conversation.prompt()
    with ModelServer(refuse=refuse) as server:

        async def main() -> HttpPolicy:
            policy = HttpPolicy(PolicyConfig(server.url, "scripted", api="chat"))
            await policy.generate(prompt, Sampling())
            await policy.aclose()
            return policy

        policy = asyncio.run(main())
        sent = [r.body.get("chat_template_kwargs") for r in server.requests if r.body]
    assert sent[0] == {"enable_thinking": True}
    assert sent[1:] == ([None] if refuse else [])
    assert len(policy.notes) == bool(refuse)
