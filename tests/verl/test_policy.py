"""verl's client as a policy: lengths, versions, and what becomes of trouble."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from legato.desktop.contract import Screenshot
from legato.errors import ContextLimit, PolicyFailure
from legato.rl.images import ImageSpec
from legato.rl.samples import Vision
from legato.rl.types import ImagePart, Message, Prompt, Sampling
from legato_verl.policy import VerlPolicy
from legato_verl.settings import Lengths

IMAGE = 3
VISION = Vision(IMAGE, ImageSpec(patch_size=8, merge_size=2, min_pixels=256, max_pixels=2**20))


class Words:
    def encode(self, text: str) -> list[int]:
        return [ord(c) for c in text]

    def decode(self, ids: Any, *, skip_special: bool = True) -> str:
        return "".join(chr(i) for i in ids if i > 9)

    def special(self, token: str) -> int | None:
        return {"<|im_end|>": 7}.get(token)


@dataclass
class Output:
    token_ids: list[int]
    log_probs: list[float] | None
    stop_reason: str = "completed"
    extra_fields: dict[str, Any] = field(default_factory=lambda: {"global_steps": 4})


class Client:
    """Answers with what it is given, and remembers what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    async def _acquire_server(self, request_id: str, **_: Any) -> tuple[str, Any]:
        raise AssertionError("this client has no servers")

    async def generate(self, **request: Any) -> Any:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await asyncio.Event().wait()
        return answer


def prompt(length: int, *, prefix: int = 0, images: int = 1) -> Prompt:
    shots = [Screenshot(np.zeros((32, 32, 3), np.uint8), 0.0) for _ in range(images)]
    message = Message("user", tuple(ImagePart(shot) for shot in shots))
    return Prompt((message,), (IMAGE,) * images + (20,) * (length - images), prefix)


def ask(client: Client, asked: Prompt, lengths: Lengths | None = None, **options: Any) -> Any:
    async def run() -> Any:
        policy = VerlPolicy(
            client,
            Words(),
            VISION,
            lengths or Lengths(prompt=100, response=100, reply=32),
            **{"step_timeout": 30.0, **options},
        )
        return await policy.generate(asked, Sampling(max_tokens=32, seed=11))

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_a_reply_with_all_that_a_row_needs() -> None:
    client = Client(Output([72, 105, 7], [-0.1, -0.2, 1e-7]))
    reply = ask(client, prompt(10))
    assert (reply.text, reply.token_ids, reply.finish_reason) == ("Hi", (72, 105, 7), "stop")
    assert reply.logprobs == (-0.1, -0.2, 0.0)
    assert reply.image_tokens == (4,)
    assert reply.prompt_tokens == 10 + 4 - 1
    assert (reply.version, reply.version_last) == ("4", None)
    (request,) = client.asked
    assert request["prompt_ids"].count(IMAGE) == len(request["image_data"]) == 1
    sampling = request["sampling_params"]
    assert sampling == {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "repetition_penalty": 1.0,
        "max_tokens": 32,
        "logprobs": True,
        "seed": 11,
    }


def test_weights_that_changed_on_the_way() -> None:
    fields = {"global_steps": 6, "min_global_steps": 5, "max_global_steps": 6}
    reply = ask(Client(Output([72, 7], [-0.1, -0.1], extra_fields=fields)), prompt(10))
    assert (reply.version, reply.version_last) == ("5", "6")


def test_a_reply_that_was_cut() -> None:
    assert ask(Client(Output([72] * 32, [-0.1] * 32)), prompt(10)).finish_reason == "length"
    ended = Output([72] * 31 + [7], [-0.1] * 32)
    assert ask(Client(ended), prompt(10)).finish_reason == "stop"


@pytest.mark.parametrize(
    ("length", "prefix", "room"),
    [(97, 0, 32), (98, 0, None), (98, 50, 32), (190, 50, 7), (197, 50, None)],
)
def test_lengths_of_a_row(length: int, prefix: int, room: int | None) -> None:
    """A prompt begins a row within 100 tokens, and a row ends at 200; an image takes 4."""
    client = Client(Output([72, 7], [-0.1, -0.1]))
    if room is None:
        with pytest.raises(ContextLimit, match="max_prompt_length"):
            ask(client, prompt(length, prefix=prefix))
        assert not client.asked
    else:
        ask(client, prompt(length, prefix=prefix))
        assert client.asked[0]["sampling_params"]["max_tokens"] == room


def test_the_models_own_length_counts_too() -> None:
    with pytest.raises(ContextLimit):
        ask(Client(), prompt(60), Lengths(prompt=100, response=100, model=63))


def test_a_failed_call_is_repeated_once() -> None:
    from ray.exceptions import RayActorError

    good = Output([72, 7], [-0.1, -0.1])
    assert ask(Client(RayActorError(), good), prompt(10)).attempts == 2
    with pytest.raises(PolicyFailure, match="RayActorError"):
        ask(Client(RayActorError(), RayActorError(), good), prompt(10))


def test_a_server_that_never_answers() -> None:
    with pytest.raises(PolicyFailure, match=r"legato\.step_timeout"):
        ask(Client(None, None), prompt(10), step_timeout=0.2)


@pytest.mark.parametrize(
    "answer",
    [Output([], []), Output([72], None), Output([72, 7], [-0.1]), Output([72], [-0.1], "aborted")],
)
def test_what_cannot_be_trained_on_is_a_failure(answer: Output) -> None:
    with pytest.raises(PolicyFailure):
        ask(Client(answer), prompt(10))
