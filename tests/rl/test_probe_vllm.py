"""The probe on real vLLM servers: one that is right, and two that invite mistakes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator

import httpx
import pytest

from legato.rl.policy import PolicyConfig
from legato.rl.probe import ProbeReport, probe
from legato.rl.tokens import load_tokenizer
from legato.rl.types import Sampling
from tests.conftest import CheckpointFactory, Vllm
from tools.vllm_server import LogprobsMode, VllmServer

pytestmark = pytest.mark.vllm


def run(server: Vllm | VllmServer, sampling: Sampling, api: str = "auto") -> ProbeReport:
    config = PolicyConfig(
        server.url,
        server.model,
        api=api,
        tokenizer=str(server.checkpoint),  # type: ignore[arg-type]
    )
    return asyncio.run(probe(config, sampling))


def marks(report: ProbeReport) -> dict[str, str]:
    return {line.subject: line.mark for line in report.found}


@pytest.mark.parametrize("api", ["tokens", "chat"])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_a_good_server_is_fit_for_training(vllm: Vllm, api: str, temperature: float) -> None:
    report = run(vllm, Sampling(temperature=temperature), api)
    assert report.ok, report.lines()


@pytest.mark.parametrize("api", ["tokens", "chat"])
@pytest.mark.parametrize("temperature", [0.2, 0.7, 1.0])
def test_a_good_server_passes(vllm: Vllm, api: str, temperature: float) -> None:
    tokenizer = load_tokenizer(str(vllm.checkpoint))
    banned = tokenizer.special("<|image_pad|>")
    assert banned is not None
    report = run(vllm, Sampling(temperature=temperature, banned_ids=(banned,)), api)
    assert report.ok, report.lines()
    wanted = {"temperature", "bans", "image tokens", "abort", "prefix cache", "token ids"}
    assert {marks(report)[subject] for subject in wanted} == {"ok"}, report.lines()


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.7, top_k=20, top_p=0.8), Sampling(top_p=0.5)]
)
def test_truncation_that_was_asked_for(vllm: Vllm, sampling: Sampling) -> None:
    report = run(vllm, sampling)
    assert marks(report)["truncation"] == "ok", report.lines()


@pytest.fixture(scope="module", params=["processed_logprobs", "raw_logprobs"])
def opinionated(
    tiny_checkpoint: CheckpointFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[VllmServer, LogprobsMode]]:
    """A checkpoint whose ``generation_config`` says temperature 0.7, top_k 20, top_p 0.8."""
    checkpoint = tiny_checkpoint("qwen3_vl", temperature=0.7, top_k=20, top_p=0.8)
    with VllmServer(checkpoint, logprobs_mode=request.param) as server:
        yield server, request.param


def first_tokens(server: VllmServer) -> float:
    """Mass of the twenty likeliest tokens when a request leaves sampling to the server."""
    body = {
        "model": server.model,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 1,
        "logprobs": True,
        "top_logprobs": 20,
    }
    answer = httpx.post(f"{server.url}/chat/completions", json=body, timeout=60).json()
    top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return math.fsum(math.exp(t["logprob"]) for t in top)


def test_against_a_generation_config(opinionated: tuple[VllmServer, LogprobsMode]) -> None:
    server, mode = opinionated
    for api in ("tokens", "chat"):
        report = run(server, Sampling(temperature=0.7), api)
        if mode == "processed_logprobs":
            assert first_tokens(server) == pytest.approx(1.0, abs=1e-4)  # the trap is there
            assert report.ok, report.lines()
        else:
            assert not report.ok
            assert marks(report)["temperature"] == "wrong", report.lines()
            assert marks(report)["bans"] == "wrong", report.lines()
