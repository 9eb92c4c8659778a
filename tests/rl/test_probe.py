"""What the probe says of servers that are right, and of servers that are wrong in known ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from legato.errors import ConfigError
from legato.rl.policy import PolicyConfig
from legato.rl.probe import ProbeReport, probe
from legato.rl.types import Sampling
from tests.rl.servers import ModelServer, Status, byte_level

KEY = "sk-do-not-tell-77aa"
FACTOR = 32


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer, and a processor under which every screenshot takes 40 x 22 or 60 x 33 tokens."""
    path = tmp_path_factory.mktemp("checkpoint")
    byte_level().save(str(path / "tokenizer.json"))
    processor = {
        "patch_size": FACTOR // 2,
        "merge_size": 2,
        "size": {"shortest_edge": FACTOR**2, "longest_edge": 6 * FACTOR**2},
    }
    (path / "preprocessor_config.json").write_text(json.dumps(processor))
    return path


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(image_tokens=3 * 1) as running:  # 16:9 within six tokens: three by one
        yield running


def run(
    server: ModelServer,
    checkpoint: Path | None,
    sampling: Sampling | None = None,
    **changes: Any,
) -> ProbeReport:
    tokenizer = None if checkpoint is None else str(checkpoint)
    settings = {"step_timeout": 5.0, "retries": 0, "tokenizer": tokenizer} | changes
    config = PolicyConfig(server.url, "scripted", **settings)
    return asyncio.run(probe(config, sampling or Sampling(temperature=0.7)))


def marks(report: ProbeReport) -> dict[str, str]:
    return {line.subject: line.mark for line in report.found}


def says(report: ProbeReport, subject: str) -> str:
    return next(line.text for line in report.found if line.subject == subject)


@pytest.mark.parametrize("api", ["tokens", "chat"])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.4])
@pytest.mark.parametrize("peak", [0.0, 12.0])
def test_a_good_server_passes(
    server: ModelServer, checkpoint: Path, api: str, temperature: float, peak: float
) -> None:
    server.behaviour.peak = peak
    report = run(server, checkpoint, Sampling(temperature=temperature, banned_ids=(3,)), api=api)
    assert report.ok, report.lines()
    found = marks(report)
    assert found["temperature"] == found["bans"] == "ok", report.lines()
    assert found["image tokens"] == "ok"
    assert found["prefix cache"] == "ok"
    assert found["abort"] == "note"  # the scripted model replies at once
    assert found["endpoint"] == ("ok" if api == "tokens" else "note")


@pytest.mark.parametrize("hidden", [{}, {"hidden_top_k": 20}, {"hidden_top_p": 0.95}])
def test_a_model_that_is_sure_of_everything_is_seen_through(
    server: ModelServer, checkpoint: Path, hidden: dict[str, Any]
) -> None:
    """At the temperature asked for, its alternatives would be too unlikely to prove anything."""
    for name, value in {**hidden, "steep": 16.0}.items():
        setattr(server.behaviour, name, value)
    report = run(server, checkpoint, Sampling(temperature=0.7))
    assert marks(report)["bans"] == ("wrong" if hidden else "ok"), report.lines()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7, top_k=20),
        Sampling(temperature=0.7, top_k=5),
        Sampling(temperature=0.7, top_k=60),
        Sampling(temperature=1.0, top_p=0.8),
        Sampling(temperature=1.0, top_p=0.2),
        Sampling(temperature=1.0, top_k=20, top_p=0.9),
        Sampling(temperature=1.3, top_k=100, top_p=0.9, banned_ids=(1, 2)),
    ],
)
def test_truncation_that_was_asked_for(
    server: ModelServer, checkpoint: Path, sampling: Sampling
) -> None:
    report = run(server, checkpoint, sampling)
    assert marks(report)["truncation"] == "ok", report.lines()
    server.behaviour.ignore_truncation = True
    report = run(server, checkpoint, sampling)
    if sampling.top_k == 60:  # beyond what twenty alternatives can rule out
        assert marks(report)["truncation"] == "note", report.lines()
        return
    assert marks(report)["truncation"] == "wrong", report.lines()
    assert "top_k 0 and top_p 1" in says(report, "truncation")
    assert not report.ok


@pytest.mark.parametrize("peak", [0.0, 12.0])
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_raw_logprobs(
    server: ModelServer, checkpoint: Path, temperature: float, peak: float
) -> None:
    server.behaviour.raw_logprobs = True
    server.behaviour.peak = peak
    report = run(server, checkpoint, Sampling(temperature=temperature))
    assert marks(report)["temperature"] == "wrong"
    assert marks(report)["bans"] == "wrong"
    assert "processed_logprobs" in says(report, "temperature")
    assert not report.ok


@pytest.mark.parametrize("peak", [0.0, 12.0])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize(
    "hidden",
    [{"hidden_top_k": 20}, {"hidden_top_k": 50}, {"hidden_top_p": 0.8}, {"hidden_top_p": 0.95}],
)
def test_hidden_truncation(
    server: ModelServer,
    checkpoint: Path,
    hidden: dict[str, Any],
    temperature: float,
    peak: float,
) -> None:
    """A generation_config that wins over an explicit "off"."""
    for name, value in {**hidden, "peak": peak}.items():
        setattr(server.behaviour, name, value)
    report = run(server, checkpoint, Sampling(temperature=temperature))
    assert marks(report)["bans"] == "wrong", report.lines()
    assert "generation_config" in says(report, "bans")
    assert not report.ok


def test_ignored_bans(server: ModelServer, checkpoint: Path) -> None:
    server.behaviour.ignore_bias = True
    report = run(server, checkpoint)
    assert marks(report)["bans"] == "wrong"
    assert not report.ok


def test_a_noisy_server_is_not_called_wrong(server: ModelServer, checkpoint: Path) -> None:
    for noise in (0.001, 0.02, 0.5):
        server.behaviour.noise = noise
        report = run(server, checkpoint)
        assert report.ok, (noise, report.lines())


def test_noise_does_not_hide_raw_logprobs(server: ModelServer, checkpoint: Path) -> None:
    server.behaviour.noise = 0.005
    server.behaviour.raw_logprobs = True
    assert not run(server, checkpoint).ok


def test_temperature_zero(server: ModelServer, checkpoint: Path) -> None:
    report = run(server, checkpoint, Sampling(temperature=0.0))
    assert not report.ok
    assert "nothing to learn" in says(report, "temperature")


def test_no_logprobs(server: ModelServer, checkpoint: Path) -> None:
    server.behaviour.refuse = frozenset({"logprobs"})
    report = run(server, checkpoint, api="chat")
    assert marks(report)["logprobs"] == "wrong"
    assert not report.ok
    assert any("refuses logprobs" in line.text for line in report.found)


def test_no_token_ids_with_and_without_a_tokenizer(server: ModelServer, checkpoint: Path) -> None:
    server.behaviour.ignore = frozenset({"return_token_ids"})
    server.behaviour.token_endpoint = False
    assert marks(run(server, checkpoint))["token ids"] == "note"
    report = run(server, None)
    assert marks(report)["token ids"] == "wrong"
    assert "--tokenizer" in says(report, "token ids")
    assert not report.ok


def test_strings_instead_of_ids_can_still_be_judged(server: ModelServer, checkpoint: Path) -> None:
    """A server without token ids: alternatives are told apart by their text."""
    server.behaviour.ignore = frozenset({"return_token_ids", "return_tokens_as_token_ids"})
    report = run(server, checkpoint, api="chat")
    assert report.ok, report.lines()
    assert marks(report)["temperature"] == "ok"
    server.behaviour.raw_logprobs = True
    assert not run(server, checkpoint, api="chat").ok


def test_image_placeholders_that_do_not_match(server: ModelServer, checkpoint: Path) -> None:
    server.behaviour.image_tokens += 1
    report = run(server, checkpoint)
    assert marks(report)["image tokens"] == "wrong"
    assert not report.ok


def test_server_that_takes_no_images(server: ModelServer, checkpoint: Path) -> None:
    original = server._generate

    def text_only(request: Any) -> tuple[int, bytes]:
        if "image_url" in json.dumps(request.body):
            return 400, b'{"error": {"message": "scripted is not a multimodal model"}}'
        return original(request)

    server._generate = text_only  # type: ignore[method-assign]
    report = run(server, checkpoint)
    assert marks(report)["images"] == "wrong"
    assert "not a multimodal model" in says(report, "images")


def test_cache_that_is_not_reported(server: ModelServer, checkpoint: Path) -> None:
    server.behaviour.cached = False
    report = run(server, checkpoint)
    assert report.ok
    assert "--enable-prompt-tokens-details" in says(report, "prefix cache")


def test_abort_is_seen_when_the_model_takes_its_time(server: ModelServer, checkpoint: Path) -> None:
    server.behaviour.delay = 0.1
    assert marks(run(server, checkpoint))["abort"] == "ok"
    assert server.gone == 1


def test_server_that_is_down(checkpoint: Path) -> None:
    with ModelServer() as server:
        pass
    report = run(server, checkpoint)
    assert not report.ok
    assert "no model server answers" in says(report, "server")


def test_refused_key_does_not_show(server: ModelServer, checkpoint: Path) -> None:
    server.behaviour.key = "sk-another"
    report = run(server, checkpoint, api_key=KEY)
    assert not report.ok
    assert "LEGATO_POLICY_KEY was refused" in "\n".join(report.lines())
    assert KEY not in "\n".join(report.lines()) + repr(report)
    assert "LEGATO_POLICY_KEY is missing" in "\n".join(run(server, checkpoint).lines())


def test_model_that_is_not_served(server: ModelServer, checkpoint: Path) -> None:
    config = PolicyConfig(server.url, "other", tokenizer=str(checkpoint), retries=0)
    report = asyncio.run(probe(config, Sampling()))
    assert marks(report)["model"] == "wrong"
    assert "scripted" in says(report, "model")
    assert not report.ok


@pytest.mark.parametrize("fault", [Status(500), Status(200, b"{}"), Status(404)])
def test_server_that_fails(server: ModelServer, checkpoint: Path, fault: Status) -> None:
    server.always = fault
    report = run(server, checkpoint)
    assert not report.ok


def test_a_tokenizer_that_was_named_must_exist(server: ModelServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        run(server, tmp_path)


def test_report_in_words_and_in_colour(server: ModelServer, checkpoint: Path) -> None:
    server.behaviour.raw_logprobs = True
    report = run(server, checkpoint)
    lines = report.lines()
    assert lines[0] == f"scripted at {server.url}"
    assert lines[-1].startswith("Training on this server would be wrong: temperature, bans")
    shown = StringIO()
    Console(file=shown, width=200).print(report)
    for line in report.found:
        assert line.subject in shown.getvalue()
