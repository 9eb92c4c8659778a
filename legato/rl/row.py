"""A training row: ids, mask, logprobs and images of one or several policy steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from legato.errors import SampleError
from legato.rl.types import Sampling


@dataclass(frozen=True, slots=True)
class ImageRef:
    """One image of a row, named as in the record."""

    sha256: str
    width: int
    """Pixels."""
    height: int
    tokens: int | None
    """Tokens its placeholder stands for; ``None``: neither reported nor predicted."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One policy step inside a row: ``response_ids[start:stop]`` is what it sampled."""

    step: int
    start: int
    stop: int
    version: str
    """Policy version of the first token."""
    version_last: str
    """Policy version of the last token."""
    finish_reason: str
    sampling: Sampling
    """The distribution that the logprobs are of."""
    text: str
    reasoning: str | None
    tokens: tuple[str, ...] | None
    """Token strings, only from a server that gives no ids."""

    @property
    def versions(self) -> tuple[str, ...]:
        return (
            (self.version,)
            if self.version == self.version_last
            else (
                self.version,
                self.version_last,
            )
        )


@dataclass(frozen=True, slots=True)
class Expanded:
    """A row as the model runs it: every placeholder repeated to its image's token count."""

    prompt_ids: list[int]
    response_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float] | None
    turns: list[tuple[int, int, int]]
    """(policy step, start, stop) of each reply in ``response_ids``."""


@dataclass(frozen=True, slots=True)
class Row:
    """One training row. Ids hold ONE placeholder per image; see :meth:`expanded`."""

    rollout_id: str
    task_id: str
    group_id: str
    attempt: int
    turns: tuple[Turn, ...]
    """The steps in it, in order; one if rows are per step."""
    prompt_ids: tuple[int, ...]
    """Empty when the server reported none."""
    response_ids: tuple[int, ...]
    """Replies, and what the desktop showed between them; empty when the server gives no ids."""
    loss_mask: tuple[int, ...]
    """1 on sampled tokens; length of ``response_ids``."""
    logprobs: tuple[float, ...] | None
    """Length of ``response_ids``, 0.0 off the mask; ``None``: not reported. Without token ids
    they belong to the turn's ``tokens`` instead."""
    images: tuple[ImageRef, ...]
    """In the order of their placeholders."""
    n_prompt_images: int
    """How many of them lie in ``prompt_ids``; the rest are in ``response_ids``."""
    reward: float
    advantage: float
    policy_version_min: str
    """Lowest version that sampled here. Decimal versions compare as numbers; of other names the
    one seen first counts as lower, since weights only move forward."""
    policy_version_max: str
    truncated: bool
    """A time or context limit ended the rollout."""
    has_ids: bool
    """Token ids of prompt and replies are known; without, only the turn's text is."""

    @property
    def first_step(self) -> int:
        return self.turns[0].step

    @property
    def last_step(self) -> int:
        return self.turns[-1].step

    @property
    def finish_reason(self) -> str:
        """Of the last reply."""
        return self.turns[-1].finish_reason

    def expanded(self, image_token_id: int) -> Expanded:
        """The row with each placeholder repeated to its image's token count.

        Raises :class:`SampleError` if placeholders and images do not match, or if a token count
        is unknown.
        """
        self.check_placeholders(image_token_id)
        counts = []
        for image in self.images:
            if image.tokens is None:
                raise sample_error(self.rollout_id, self.first_step, "an image has no token count")
            counts.append(image.tokens)
        repeats = iter(counts)

        def times(token: int) -> int:
            return next(repeats) if token == image_token_id else 1

        prompt = [t for token in self.prompt_ids for t in [token] * times(token)]
        spread = [times(token) for token in self.response_ids]

        def stretch(values: Sequence[Any]) -> list[Any]:
            return [v for value, n in zip(values, spread, strict=True) for v in [value] * n]

        offsets = list(accumulate(spread, initial=0))
        return Expanded(
            prompt_ids=prompt,
            response_ids=stretch(self.response_ids),
            loss_mask=stretch(self.loss_mask),
            logprobs=None if self.logprobs is None else stretch(self.logprobs),
            turns=[(t.step, offsets[t.start], offsets[t.stop]) for t in self.turns],
        )

    def check_placeholders(self, image_token_id: int) -> None:
        """Raise :class:`SampleError` unless every image has its placeholder and none is sampled."""
        for turn in self.turns:
            if image_token_id in self.response_ids[turn.start : turn.stop]:
                raise sample_error(
                    self.rollout_id,
                    turn.step,
                    f"the policy sampled the image placeholder {image_token_id}; ban that id",
                )
        in_prompt = self.prompt_ids.count(image_token_id)
        later = self.response_ids.count(image_token_id)
        expected = (self.n_prompt_images, len(self.images) - self.n_prompt_images)
        if (in_prompt, later) != expected:
            raise sample_error(
                self.rollout_id,
                self.first_step,
                f"{in_prompt} + {later} image placeholders in prompt + response for "
                f"{expected[0]} + {expected[1]} images",
            )


def sample_error(rollout_id: str, step: int, what: str) -> SampleError:
    return SampleError(f"rollout {rollout_id}, step {step}: {what}")
