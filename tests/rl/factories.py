"""Synthetic rollouts, valid by construction, for tests of what is made from them."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import numpy as np

from legato.desktop.actions import Action
from legato.desktop.contract import Check, Ready, Score, Screenshot
from legato.rl.types import (
    VERDICTS,
    ActionTaken,
    Generation,
    ImagePart,
    Message,
    Prompt,
    Rollout,
    Sampling,
    Status,
    Step,
    Text,
    Timing,
)

IMAGE_ID = 3
"""Placeholder id of the synthetic vocabulary; replies never hold it."""
IMAGE_TOKENS = 4
"""Tokens of a :func:`frame` of the default size: 32x32 pixels, one token per 16x16."""


def frame(seed: int, width: int = 32, height: int = 32) -> Screenshot:
    """A small screenshot of noise, the same for the same seed."""
    rng = np.random.default_rng(seed)
    return Screenshot(
        rng.integers(0, 256, (height, width, 3), dtype=np.uint8), taken_at=float(seed)
    )


def make_rollout(
    *,
    steps: int = 3,
    group_id: str = "g0",
    attempt: int = 0,
    attempt_try: int = 0,
    status: Status = Status.OK,
    reward: float | None = 1.0,
    breaks: Collection[int] = (),
    ids: bool = True,
    logprobs: bool = True,
    versions: tuple[str, ...] = ("41",),
    seed: int = 0,
    frames: list[Screenshot] | None = None,
    **fields: Any,
) -> Rollout:
    """A rollout with one screenshot per step and its whole history in every prompt.

    At the steps in ``breaks`` the history is dropped and the prompt starts anew. Step ``k`` is
    sampled by ``versions[min(k, last)]``. ``frames`` replaces the noise screenshots.
    """
    rng = random.Random(f"{seed}/{group_id}/{attempt}")
    has_reward = status in VERDICTS or status is Status.SURPLUS
    rollout = Rollout(
        rollout_id=f"{group_id}/{attempt}" + (f".{attempt_try}" if attempt_try else ""),
        task_id=fields.pop("task_id", f"task-{group_id}"),
        domain="synthetic",
        group_id=group_id,
        attempt=attempt,
        attempt_try=attempt_try,
        policy_model="tiny",
        policy_version=versions[0],
        status=status,
        reward=reward if has_reward else None,
        score=(
            Score(reward, (Check("saved", "progress", reward > 0),), "1/1")
            if has_reward and reward is not None
            else None
        ),
        timing=Timing(
            **{name: rng.random() for name in ("reset_s", "model_s", "act_s")}, total_s=5.0
        ),
        ready_after_reset=Ready("idle", 0.2),
        harness="synthetic",
        seed=seed,
        started_at=1_700_000_000.0 + attempt,
        **fields,
    )
    system = Message("system", (Text("You use a computer."),))
    history: list[Message] = [system]
    prompt: list[int] = []
    for k in range(steps):
        image = frames[k] if frames else frame(rng.randrange(2**31))
        seen = [*_words(rng), IMAGE_ID, *_words(rng)]
        if k == 0 or k in breaks:
            history, prompt = [system], _words(rng) + seen
        else:
            prompt = prompt + seen
        history = [*history, Message("user", (Text(f"step {k}"), ImagePart(image)))]
        reply = _words(rng)
        n_images = sum(len(m.images) for m in history)
        rollout.steps.append(
            Step(
                prompt=Prompt(tuple(history), tuple(prompt) if ids else None),
                generation=Generation(
                    text=f"reply {reply}",
                    token_ids=tuple(reply) if ids else None,
                    logprobs=tuple(-rng.random() for _ in reply) if logprobs else None,
                    prompt_ids=tuple(prompt) if ids else None,
                    image_tokens=(IMAGE_TOKENS,) * n_images if ids else None,
                    version=versions[min(k, len(versions) - 1)],
                    finish_reason="stop",
                    reasoning="because",
                    tokens=None if ids else tuple(map(str, reply)),
                    prompt_tokens=len(prompt) + n_images * (IMAGE_TOKENS - 1),
                    completion_tokens=len(reply),
                    cached_tokens=len(prompt) // 2,
                    seconds=0.1 * (k + 1),
                ),
                sampling=Sampling(temperature=0.7, top_k=20, banned_ids=(IMAGE_ID,), seed=k),
                actions=[
                    ActionTaken(
                        Action(action_type="click", x=k, y=2),
                        act_s=0.001,
                        wait_s=0.5,
                        ready_s=0.4,
                        obs_s=0.002,
                        ready_reason="idle",
                    )
                ],
            )
        )
        history = [*history, Message("assistant", (Text(f"reply {reply}"),))]
        prompt = prompt + reply
    return rollout


def make_group(rewards: list[float], *, group_id: str = "g0", **fields: Any) -> list[Rollout]:
    """One ``ok`` rollout per reward."""
    return [
        make_rollout(group_id=group_id, attempt=attempt, reward=reward, **fields)
        for attempt, reward in enumerate(rewards)
    ]


def _words(rng: random.Random) -> list[int]:
    return [rng.randrange(10, 500) for _ in range(rng.randrange(1, 6))]
