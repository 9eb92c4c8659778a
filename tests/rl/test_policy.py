"""The client against a scripted server, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import logging
import math
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from legato.desktop.contract import Screenshot
from legato.errors import ConfigError, ContextLimit, PolicyFailure
from legato.rl.harness import make_harness
from legato.rl.policy import HttpPolicy, PolicyConfig, request, tokenizer_for
from legato.rl.policy.http import split_reasoning
from legato.rl.types import Generation, ImagePart, Message, Prompt, Sampling, Text
from tests.rl.servers import (
    Behaviour,
    Drop,
    Fault,
    Hang,
    ModelServer,
    Raw,
    Status,
    byte_level,
)

KEY = "sk-do-not-tell-5b1c"
SAMPLING = Sampling(temperature=0.8, max_tokens=8, seed=3)


def shot(seed: int = 0) -> Screenshot:
    rgb = np.random.default_rng(seed).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    return Screenshot(rgb, taken_at=0.0).seal()


def prompt(server: ModelServer, *images: Screenshot, text: str = "click save") -> Prompt:
    parts = (*(ImagePart(i) for i in images), Text(text))
    messages = (Message("system", (Text("You act."),)), Message("user", parts))
    wire = [
        {"role": "system", "content": "You act."},
        {"role": "user", "content": [*({"image_url": _URL} for _ in images), {"text": text}]},
    ]
    return Prompt(messages, tuple(server._chat_ids(wire)))


_URL = {"url": "data:image/png;base64,"}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def policy(server: ModelServer, *, tokenizer: bool = True, **changes: Any) -> HttpPolicy:
    config = PolicyConfig(server.url, "scripted", **{"step_timeout": 5.0, "retries": 0} | changes)
    return HttpPolicy(config, server.tokenizer if tokenizer else None)


def ask(
    server: ModelServer,
    *images: Screenshot,
    sampling: Sampling = SAMPLING,
    text: str = "click save",
    **changes: Any,
) -> tuple[Generation, HttpPolicy]:
    async def run() -> tuple[Generation, HttpPolicy]:
        p = policy(server, **changes)
        try:
            return await p.generate(prompt(server, *images, text=text), sampling), p
        finally:
            await p.aclose()

    return asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for the server, which runs in another thread."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legato.rl.policy.http.BACKOFF", 0.01)


# --- a good answer ------------------------------------------------------------------------------


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


# --- versions -----------------------------------------------------------------------------------


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


# --- what servers lack --------------------------------------------------------------------------


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


# --- faults -------------------------------------------------------------------------------------


def choice(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = answer["choices"][0]
    return found


def entry(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = choice(answer)["logprobs"]["content"][0]
    return found


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
    assert time.monotonic() - started < 5


def test_server_that_hangs_is_given_up_at_the_step_timeout(server: ModelServer) -> None:
    server.always = Hang()
    started = time.monotonic()
    with pytest.raises(PolicyFailure, match=r"did not answer within 0\.2 s"):
        ask(server, step_timeout=0.2)
    assert 0.2 <= time.monotonic() - started < 3


def test_retry_after_is_honoured_within_bounds(server: ModelServer) -> None:
    server.faults.append(Status(429, headers=(("Retry-After", "1"),)))
    started = time.monotonic()
    ask(server, retries=1)
    assert time.monotonic() - started >= 1
    server.faults.append(Status(503, headers=(("Retry-After", "86400"),)))
    started = time.monotonic()
    ask(server, retries=1, step_timeout=0.5)
    assert 0.5 <= time.monotonic() - started < 5


@pytest.mark.parametrize("value", ["soon", "nan", "-5", "Wed, 21 Oct 2015 07:28:00 GMT", "inf"])
def test_odd_retry_after(server: ModelServer, value: str) -> None:
    server.faults.append(Status(429, headers=(("Retry-After", value),)))
    reply, _ = ask(server, retries=1, step_timeout=1.0)
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


# --- the key ------------------------------------------------------------------------------------


def test_key_is_sent_and_checked(server: ModelServer) -> None:
    server.behaviour.key = KEY
    assert ask(server, api_key=KEY)[0].logprobs
    with pytest.raises(PolicyFailure, match="LEGATO_POLICY_KEY was refused"):
        ask(server, api_key="sk-wrong")
    with pytest.raises(PolicyFailure, match="set LEGATO_POLICY_KEY"):
        ask(server)


def test_key_from_the_environment(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.behaviour.key = KEY
    monkeypatch.setenv("LEGATO_POLICY_KEY", KEY + "\n")
    assert ask(server)[0].logprobs


def test_key_never_shows(server: ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    config = PolicyConfig(server.url, "scripted", api_key=KEY)
    p = HttpPolicy(config, server.tokenizer)
    shown = [repr(config), str(config), str(asdict(config)), repr(p), str(vars(p))]
    with pytest.raises(TypeError):
        json.dumps(asdict(config))
    echo = b'{"error": {"message": "bad header Bearer %s"}}' % KEY.encode()
    faults: list[Fault] = [
        Status(500, echo),
        Status(400, echo),
        Status(401, echo),
        Status(404, echo),
        Status(400, echo.replace(b"bad", b"context length top_k")),
        Raw(b"Bearer " + KEY.encode()),
        lambda a: choice(a).update(finish_reason=KEY),
        lambda a: entry(a).update(logprob=KEY),
    ]
    with caplog.at_level(logging.DEBUG):
        for fault in faults:
            server.always = fault
            for api in ("tokens", "chat"):
                with pytest.raises(PolicyFailure) as caught:
                    ask(server, api=api, api_key=KEY)
                shown.append("".join(str(a) for a in caught.value.args))
    shown += [r.getMessage() for r in caplog.records]
    assert not [text for text in shown if KEY in text]


def test_config_survives_copying_with_its_key() -> None:
    config = PolicyConfig("http://localhost/v1/", "m", api_key=KEY)
    for other in (
        replace(config, version="2"),
        copy.deepcopy(config),
        pickle.loads(pickle.dumps(config)),
    ):
        assert other.secret == KEY
    assert config.url == "http://localhost/v1"
    assert config.root == "http://localhost"


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "localhost:8000"},
        {"url": "ftp://host/v1"},
        {"url": "http://"},
        {"url": "http://host:99999/v1"},
        {"url": f"https://u:{KEY}@host/v1"},
        {"url": f"https://host/v1?key={KEY}"},
        {"model": ""},
        {"version": ""},
        {"version": 41},
        {"api": "responses"},
        {"step_timeout": 0},
        {"step_timeout": math.inf},
        {"retries": -1},
        {"max_inflight": 0},
        {"api_key": f"{KEY}\nX-Evil: 1"},
        {"api_key": f"{KEY}é"},
    ],
)
def test_config_is_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        PolicyConfig(**{"url": "https://host/v1", "model": "m"} | changes)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_tokenizer_of_a_policy(server: ModelServer, tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    config = PolicyConfig(server.url, "scripted", tokenizer=str(tmp_path))
    found = tokenizer_for(config)
    assert found is not None
    assert len(found) == len(server.tokenizer)
    assert tokenizer_for(replace(config, tokenizer=None)) is None
    assert tokenizer_for(replace(config, tokenizer=None, api="chat")) is None
    for changes in ({"tokenizer": str(tmp_path / "none")}, {"tokenizer": None, "api": "tokens"}):
        with pytest.raises(ConfigError, match=r"tokenizer\.json"):
            tokenizer_for(replace(config, **changes))  # type: ignore[arg-type]


# --- many at once -------------------------------------------------------------------------------


def test_max_inflight_is_never_exceeded(server: ModelServer) -> None:
    server.behaviour.delay = 0.03

    async def run() -> list[Generation]:
        p = policy(server, max_inflight=4)
        asked = [p.generate(prompt(server, text=str(i)), SAMPLING) for i in range(40)]
        replies = await asyncio.gather(*asked)
        await p.aclose()
        return replies

    replies = asyncio.run(run())
    assert server.most_inflight == 4
    assert max(r.seconds for r in replies) > 5 * 0.03


def test_queueing_does_not_eat_the_step_timeout(server: ModelServer) -> None:
    server.behaviour.delay = 0.2

    async def run() -> list[Generation]:
        p = policy(server, max_inflight=1, step_timeout=0.9)
        replies = await asyncio.gather(*(p.generate(prompt(server), SAMPLING) for _ in range(8)))
        await p.aclose()
        return replies

    assert max(r.seconds for r in asyncio.run(run())) > 0.9


def test_a_queued_call_can_be_cancelled(server: ModelServer) -> None:
    server.always = Hang()

    async def run() -> int:
        p = policy(server, max_inflight=1, step_timeout=30.0)
        first = asyncio.create_task(p.generate(prompt(server), SAMPLING))
        await until(lambda: server.inflight == 1)
        queued = asyncio.create_task(p.generate(prompt(server), SAMPLING))
        await asyncio.sleep(0)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        server.always = None
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await p.generate(prompt(server), SAMPLING)  # the slot is free again
        await p.aclose()
        return len(server.requests)

    assert asyncio.run(asyncio.wait_for(run(), 10)) == 2


def test_cancelling_reaches_the_server(server: ModelServer) -> None:
    server.always = Hang()

    async def run() -> None:
        p = policy(server, step_timeout=30.0)
        calls = [asyncio.create_task(p.generate(prompt(server), SAMPLING)) for _ in range(5)]
        await until(lambda: server.inflight == 5)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: server.inflight == 0)
        await p.aclose()

    asyncio.run(run())
    assert server.gone == 5


def test_hundreds_of_calls_at_once(server: ModelServer) -> None:
    server.behaviour.delay = 0.2
    server.behaviour.reply = "ok"

    async def run() -> list[Generation]:
        p = policy(server, step_timeout=60.0)
        asked = [p.generate(prompt(server, text=str(i)), SAMPLING) for i in range(200)]
        replies = await asyncio.gather(*asked)
        again = await asyncio.gather(
            *(p.generate(prompt(server, text=str(i)), SAMPLING) for i in range(50))
        )
        await p.aclose()
        return [*replies, *again]

    replies = asyncio.run(run())
    assert len(replies) == 250
    assert server.connections < 250  # the second wave reused connections


def test_behaviour_is_complete() -> None:
    """The scripted server's own sampler agrees with the logprobs it reports."""
    with ModelServer(Behaviour()) as server:
        reply, _ = ask(server, sampling=Sampling(temperature=1.0, top_k=1, max_tokens=3))
    assert reply.logprobs == (0.0, 0.0, 0.0)


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
