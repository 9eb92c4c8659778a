"""The key and the other settings of a policy."""

from __future__ import annotations

import copy
import json
import logging
import math
import pickle
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from legato.errors import ConfigError, PolicyFailure
from legato.rl.policy import HttpPolicy, PolicyConfig, tokenizer_for
from tests.rl.policy.asking import KEY, ask, choice, entry
from tests.rl.servers import (
    Fault,
    ModelServer,
    Raw,
    Status,
    byte_level,
)


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
