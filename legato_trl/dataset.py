"""Training rows as a ``datasets.Dataset``, for whoever drives a trainer of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

from datasets import Dataset, Features, Image, Sequence, Value

from legato.rl.advantage import MIN_GROUP
from legato.rl.manifest import existing_run
from legato.rl.record import load_screenshot
from legato.rl.row import Row
from legato.rl.samples import read_samples, samples_from, screenshots
from legato.rl.types import Rollout

FEATURES = Features(
    {
        "rollout_id": Value("string"),
        "task_id": Value("string"),
        "group_id": Value("string"),
        "attempt": Value("int64"),
        "prompt_ids": Sequence(Value("int64")),
        "completion_ids": Sequence(Value("int64")),
        "loss_mask": Sequence(Value("int8")),
        "logprobs": Sequence(Value("float32")),
        "images": Sequence(Image()),
        "image_tokens": Sequence(Value("int64")),
        "n_prompt_images": Value("int64"),
        "turn_stops": Sequence(Value("int64")),
        "reward": Value("float64"),
        "advantage": Value("float64"),
        "policy_version_min": Value("string"),
        "policy_version_max": Value("string"),
        "truncated": Value("bool"),
    }
)


def to_dataset(
    source: Iterable[Rollout] | str | PathLike[str],
    *,
    merged: bool = True,
    min_group: int = MIN_GROUP,
) -> Dataset:
    """Rows of rollouts (give whole groups), or of a run directory.

    Ids hold ONE placeholder per image; ``image_tokens`` says how many tokens each stands for, and
    ``turn_stops`` where each reply ends in ``completion_ids``. ``loss_mask`` is 1 on what the
    policy sampled, ``logprobs`` are the server's, 0.0 elsewhere. With ``merged=False`` there is
    one row per policy step. ``min_group`` is that of the run when it is read from a directory.

    Raises :class:`~legato.errors.SampleError` if a step does not add up to a row.
    """
    if isinstance(source, str | PathLike):
        folder = existing_run(source)
        rows: Iterable[Row] = read_samples(folder, merged=merged)

        def png(name: str) -> bytes:
            return load_screenshot(folder, name).png
    else:
        rollouts = list(source)
        rows = samples_from(rollouts, merged=merged, min_group=min_group)
        shown = screenshots(rollouts)

        def png(name: str) -> bytes:
            return shown[name].png

    return Dataset.from_list([_line(row, png) for row in rows], features=FEATURES)


def _line(row: Row, png: Callable[[str], bytes]) -> dict[str, Any]:
    return {
        "rollout_id": row.rollout_id,
        "task_id": row.task_id,
        "group_id": row.group_id,
        "attempt": row.attempt,
        "prompt_ids": list(row.prompt_ids),
        "completion_ids": list(row.response_ids),
        "loss_mask": list(row.loss_mask),
        "logprobs": None if row.logprobs is None else list(row.logprobs),
        "images": [{"bytes": png(image.sha256)} for image in row.images],
        "image_tokens": [image.tokens for image in row.images],
        "n_prompt_images": row.n_prompt_images,
        "turn_stops": [turn.stop for turn in row.turns],
        "reward": row.reward,
        "advantage": row.advantage,
        "policy_version_min": row.policy_version_min,
        "policy_version_max": row.policy_version_max,
        "truncated": row.truncated,
    }
