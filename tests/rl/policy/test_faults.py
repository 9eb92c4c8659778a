"""Faults of the server: which are asked again, which end the call, and how they are told."""

from __future__ import annotations

import json
import math
import time

import pytest

from legato.errors import ContextLimit, PolicyFailure
from tests.rl.policy.asking import ask, choice, entry
from tests.rl.servers import (
    Drop,
    Fault,
    Hang,
    ModelServer,
    Raw,
    Status,
)

SPOILED: dict[str, Fault] = {
    "not json": Raw(b"<html>busy</html>"),
    "empty": Raw(b""),
    "cut off": Raw(b'{"choices": ['),
    "deep": Raw(b"[" * 100_000),
    "null": Raw(b"null"),
    "list": Raw(b"[]"),
    "number": Raw(b"1e999"),
    "binary": Raw(bytes(range(256))),
    "a giant id": lambda a: choice(a)["token_ids"].__setitem__(0, 2**31),
    "a giant prompt id": lambda a: a["prompt_token_ids"].__setitem__(0, 2**65),
    "no choices": lambda a: a.update(choices=[]),
    "choices of nothing": lambda a: a.update(choices=[None]),
    "choices not a list": lambda a: a.update(choices={}),
    "nan": lambda a: entry(a).update(logprob=math.nan),
    "infinity": lambda a: entry(a).update(logprob=-math.inf),
    "positive": lambda a: entry(a).update(logprob=0.5),
    "floor": lambda a: entry(a).update(logprob=-9999.0),
    "text": lambda a: entry(a).update(logprob="-0.1"),
    "bool": lambda a: entry(a).update(logprob=False),
    "none": lambda a: entry(a).update(logprob=None),
    "gone": lambda a: entry(a).pop("logprob"),
    "huge": lambda a: entry(a).update(logprob=-(10**400)),
    "no logprobs": lambda a: choice(a).update(logprobs=None),
    "empty logprobs": lambda a: choice(a)["logprobs"].update(content=[]),
    "null content": lambda a: choice(a)["logprobs"].update(content=None),
    "one logprob short": lambda a: choice(a)["logprobs"]["content"].pop(),
    "one id short": lambda a: choice(a)["token_ids"].pop(),
    "no ids at all": lambda a: choice(a).update(token_ids=[]),
    "ids of text": lambda a: choice(a).update(token_ids=["1"] * len(choice(a)["token_ids"])),
    "negative ids": lambda a: choice(a).update(token_ids=[-1] * len(choice(a)["token_ids"])),
    "float ids": lambda a: choice(a).update(token_ids=[1.0] * len(choice(a)["token_ids"])),
    "ids not a list": lambda a: choice(a).update(token_ids="12"),
    "prompt ids of text": lambda a: a.update(prompt_token_ids=["a"]),
    "aborted": lambda a: choice(a).update(finish_reason="abort"),
    "no finish reason": lambda a: choice(a).update(finish_reason=None),
    "usage": lambda a: a.update(usage=[1]),
    "count": lambda a: a["usage"].update(completion_tokens=10**6),
}


@pytest.mark.parametrize("api", ["tokens", "chat"])
@pytest.mark.parametrize("name", SPOILED)
def test_unusable_answer(server: ModelServer, api: str, name: str) -> None:
    server.always = SPOILED[name]
    with pytest.raises(PolicyFailure) as caught:
        ask(server, api=api)
    assert caught.value.transient
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", SPOILED)
def test_unusable_answer_is_asked_again(server: ModelServer, name: str) -> None:
    server.faults.append(SPOILED[name])
    reply, _ = ask(server, retries=1)
    assert reply.attempts == 2
    assert reply.logprobs


@pytest.mark.parametrize(
    "spoil",
    [lambda a: choice(a).update(message="hi"), lambda a: choice(a)["message"].update(content=[1])],
)
def test_unusable_message(server: ModelServer, spoil: Fault) -> None:
    server.always = spoil
    with pytest.raises(PolicyFailure, match="cannot be used"):
        ask(server, api="chat")


def test_rounding_above_zero_is_zero(server: ModelServer) -> None:
    server.always = lambda a: entry(a).update(logprob=3e-7)
    reply, _ = ask(server)
    assert reply.logprobs is not None
    assert reply.logprobs[0] == 0.0


@pytest.mark.parametrize("fault", [Status(500), Status(502), Status(503), Status(429), Drop()])
def test_transient_faults_are_retried(server: ModelServer, fault: Fault) -> None:
    server.faults.append(fault)
    reply, _ = ask(server, retries=1)
    assert reply.attempts == 2
    server.faults.extend([fault, fault])
    with pytest.raises(PolicyFailure) as caught:
        ask(server, retries=1)
    assert caught.value.transient


@pytest.mark.parametrize("code", [400, 401, 403, 404, 422, 301])
def test_final_faults_are_not_retried(server: ModelServer, code: int) -> None:
    server.always = Status(code)
    with pytest.raises(PolicyFailure) as caught:
        ask(server, api="chat", retries=3)
    assert not caught.value.transient
    assert len(server.requests) == 1


def test_server_that_is_down() -> None:
    with ModelServer() as server:
        pass
    started = time.monotonic()
    with pytest.raises(PolicyFailure, match="no model server answers at http://127") as caught:
        ask(server, retries=0)
    assert caught.value.transient
    assert time.monotonic() - started < 25  # at once, not at the step timeout


def test_server_that_hangs_is_given_up_at_the_step_timeout(server: ModelServer) -> None:
    server.always = Hang()
    started = time.monotonic()
    with pytest.raises(PolicyFailure, match=r"did not answer within 0\.2 s"):
        ask(server, step_timeout=0.2)
    assert 0.2 <= time.monotonic() - started < 60


def test_retry_after_is_honoured_within_bounds(server: ModelServer) -> None:
    server.faults.append(Status(429, headers=(("Retry-After", "1"),)))
    started = time.monotonic()
    ask(server, retries=1)
    assert time.monotonic() - started >= 1
    server.faults.append(Status(503, headers=(("Retry-After", "86400"),)))
    started = time.monotonic()
    ask(server, retries=1, step_timeout=2.0)
    assert 2.0 <= time.monotonic() - started < 60


@pytest.mark.parametrize("value", ["soon", "nan", "-5", "Wed, 21 Oct 2015 07:28:00 GMT", "inf"])
def test_odd_retry_after(server: ModelServer, value: str) -> None:
    server.faults.append(Status(429, headers=(("Retry-After", value),)))
    reply, _ = ask(server, retries=1, step_timeout=3.0)
    assert reply.attempts == 2


@pytest.mark.parametrize("api", ["tokens", "chat"])
def test_context_limit_is_its_own_failure(server: ModelServer, api: str) -> None:
    server.behaviour.max_len = 10
    with pytest.raises(ContextLimit) as caught:
        ask(server, api=api, retries=3)
    assert not caught.value.transient
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "message",
    [
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "Requested token count exceeds the model's maximum context length of 4096 tokens.",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ],
)
def test_context_limit_as_servers_word_it(server: ModelServer, message: str) -> None:
    server.always = Status(400, json.dumps({"error": {"message": message}}).encode())
    with pytest.raises(ContextLimit):
        ask(server)


def test_endless_body_is_cut(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legato.rl.policy.transport.MAX_ANSWER", 1000)
    server.always = Raw(b"x" * 100_000)
    with pytest.raises(PolicyFailure, match="answers without end"):
        ask(server)
