"""vLLM inside the training process: rounds, cancelled calls, and the real engine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from legato.errors import PolicyFailure
from legato.rl.tokens import load_tokenizer
from legato.rl.types import Generation, ImagePart, Message, Prompt, Sampling, Text
from legato_trl.colocate import Asked, ColocatedPolicy, Said
from tests.conftest import REPO, CheckpointFactory
from tests.rl.factories import frame

IMAGE = 3
WIDTH = 4


def prompt(number: int, images: int = 1) -> Prompt:
    parts = [ImagePart(frame(number + i)) for i in range(images)]
    ids = (number, *[t for _ in parts for t in (IMAGE, 9)])
    return Prompt((Message("user", (*parts, Text("look"))),), ids)


def echo(asked: Sequence[Asked]) -> list[Said | Exception]:
    """Answers with the prompt's first id; expands images as vLLM does."""
    answers: list[Said | Exception] = []
    for one in asked:
        if one.ids[0] == 13:
            answers.append(PolicyFailure("unlucky"))
            continue
        wide = tuple(t for i in one.ids for t in (i,) * (WIDTH if i == IMAGE else 1))
        answers.append(Said(wide, (one.ids[0],), (-0.5,), "stop", 0))
    return answers


class Words:
    def encode(self, text: str) -> list[int]:
        return [len(text)]

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        return " ".join(map(str, ids))

    def special(self, token: str) -> int | None:
        return None


def serve(policy: ColocatedPolicy, work: Any) -> Any:
    """Run ``work`` on a loop of its own thread while this thread serves."""
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(asyncio.run(work)))
    thread.start()
    while thread.is_alive():
        policy.round()
        thread.join(0.001)
    return result[0]


def test_every_call_gets_its_own_answer() -> None:
    policy = ColocatedPolicy(echo, Words(), IMAGE)
    policy.set_version("7")

    async def ask() -> list[Generation]:
        calls = [policy.generate(prompt(n, images=n % 3), Sampling()) for n in range(20, 50)]
        return await asyncio.gather(*calls)

    for number, said in enumerate(serve(policy, ask()), 20):
        assert said.token_ids == (number,)
        assert said.version == "7"
        assert said.prompt_ids == prompt(number, images=number % 3).token_ids
        assert said.image_tokens == (WIDTH,) * (number % 3)


def test_a_failure_is_that_of_its_call_alone() -> None:
    policy = ColocatedPolicy(echo, Words(), IMAGE)

    async def ask() -> list[Any]:
        calls = [policy.generate(prompt(n), Sampling()) for n in (12, 13, 14)]
        return await asyncio.gather(*calls, return_exceptions=True)

    first, unlucky, last = serve(policy, ask())
    assert (first.token_ids, last.token_ids) == ((12,), (14,))
    assert isinstance(unlucky, PolicyFailure)


def test_an_engine_that_breaks_fails_every_call_of_its_round() -> None:
    def broken(asked: Sequence[Asked]) -> list[Said | Exception]:
        raise RuntimeError("out of memory")

    policy = ColocatedPolicy(broken, Words(), IMAGE)

    async def ask() -> Any:
        return await asyncio.gather(policy.generate(prompt(1), Sampling()), return_exceptions=True)

    (failed,) = serve(policy, ask())
    assert isinstance(failed, PolicyFailure)
    assert "out of memory" in str(failed)


def test_a_cancelled_call_is_not_asked_at_all() -> None:
    seen: list[int] = []

    def watch(asked: Sequence[Asked]) -> list[Said | Exception]:
        seen.extend(one.ids[0] for one in asked)
        return echo(asked)

    policy = ColocatedPolicy(watch, Words(), IMAGE)

    async def ask() -> None:
        calls = [asyncio.create_task(policy.generate(prompt(n), Sampling())) for n in (1, 2)]
        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    loop_done = threading.Event()

    def run() -> None:
        asyncio.run(ask())
        loop_done.set()

    thread = threading.Thread(target=run)
    thread.start()
    while not loop_done.wait(0.2):  # later than the cancellation
        policy.round()
    thread.join()
    assert seen == [2]


@pytest.mark.vllm
def test_the_real_engine_gives_the_trainers_logprobs(
    tiny_checkpoint: CheckpointFactory, tmp_path: Path
) -> None:
    """Prompts with two screenshots, banned ids and a temperature, against transformers."""
    checkpoint = tiny_checkpoint("qwen3_vl")
    done = subprocess.run(
        [sys.executable, "-m", "tests.trl.engine", str(checkpoint), str(tmp_path / "out.json")],
        cwd=REPO,
        timeout=200,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads((tmp_path / "out.json").read_text())
    pad = load_tokenizer(str(checkpoint)).special("<|image_pad|>")
    assert found["placeholder"] == pad
    assert found["compared"] >= 20
    assert found["gap"] <= 1e-3
    assert found["swapped_gap"] >= 10 * found["gap"]
    assert not found["banned_sampled"]
