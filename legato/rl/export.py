"""A run as JSON lines for a trainer: one line per policy step, or one per merged row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from legato.errors import ConfigError
from legato.rl.manifest import RunPath, existing_run
from legato.rl.record import data_url, load_request, load_screenshot, read_records
from legato.rl.row import ImageRef, Row, Turn
from legato.rl.samples import rows, run_advantages
from legato.rl.schema import IMAGE_SCHEME, RolloutRecord, dump_json
from legato.rl.store import replacing
from legato.rl.types import VERDICTS


def export_steps(
    run_dir: RunPath,
    out_path: RunPath,
    *,
    merged: bool = False,
    inline_images: bool = False,
) -> int:
    """Write the training rows of every ``ok`` or ``truncated`` rollout; returns their number.

    One line per policy step: the prompt as ``messages`` and ``prompt_token_ids`` (one placeholder
    per image), the reply as text, ids and logprobs, with reward, advantage and policy version.
    With ``merged``, one line per row (:mod:`legato.rl.samples`): ``response_token_ids`` then holds
    several replies under ``loss_mask``, and the lines name ``images`` instead of ``messages``.
    Images are ``legato-image://<sha256>``, or PNG data URLs with ``inline_images``.

    The file appears whole or not at all; memory is that of one rollout. Raises
    :class:`ConfigError` if there is nothing to export, :class:`SampleError` if a step does not add
    up, :class:`StorageError` if the run or the file cannot be read or written.
    """
    folder = existing_run(run_dir)
    advantages = run_advantages(folder)
    if not advantages:
        raise ConfigError(f"nothing to export from {folder}: {_why_empty(folder)}")
    count = 0
    with replacing(Path(out_path)) as file:
        for record in read_records(folder):
            # A run still being written may have gained records since the advantages were taken.
            if record["status"] not in VERDICTS or record["rollout_id"] not in advantages:
                continue
            advantage = advantages[record["rollout_id"]]
            for line in _lines(folder, record, advantage, merged, inline_images):
                file.write(dump_json(line) + b"\n")
                count += 1
        if not count:
            raise ConfigError(f"nothing to export from {folder}: no rollout came to a step")
    return count


def _lines(
    folder: Path, record: RolloutRecord, advantage: float, merged: bool, inline: bool
) -> Iterator[dict[str, Any]]:
    for row in rows(record, advantage, merged=merged):
        if merged:
            yield _merged_line(folder, row, inline)
        else:
            yield _step_line(folder, record, row, inline)


def _step_line(folder: Path, record: RolloutRecord, row: Row, inline: bool) -> dict[str, Any]:
    (turn,) = row.turns
    return {
        **_identity(row),
        "step": turn.step,
        "messages": load_request(folder, record, turn.step, inline_images=inline),
        "prompt_token_ids": list(row.prompt_ids) or None,
        "image_tokens": _counts(row),
        "response_text": turn.text,
        "response_reasoning": turn.reasoning,
        "response_token_ids": record["steps"][turn.step]["response"]["token_ids"],
        "response_logprobs": row.logprobs,
        "response_tokens": turn.tokens,
        "finish_reason": turn.finish_reason,
        "sampling": turn.sampling.to_json(),
        **_worth(row),
        "policy_version": turn.version,
        "policy_version_last": turn.version_last,
    }


def _merged_line(folder: Path, row: Row, inline: bool) -> dict[str, Any]:
    return {
        **_identity(row),
        "steps": [row.first_step, row.last_step],
        "prompt_token_ids": row.prompt_ids,
        "response_token_ids": row.response_ids,
        "loss_mask": row.loss_mask,
        "response_logprobs": row.logprobs,
        "images": [_image_url(folder, image, inline) for image in row.images],
        "n_prompt_images": row.n_prompt_images,
        "image_tokens": _counts(row),
        "turns": [_turn(turn) for turn in row.turns],
        "finish_reason": row.finish_reason,
        **_worth(row),
        "policy_version": row.turns[0].version,
        "policy_version_min": row.policy_version_min,
        "policy_version_max": row.policy_version_max,
    }


def _identity(row: Row) -> dict[str, Any]:
    return {
        "rollout_id": row.rollout_id,
        "task_id": row.task_id,
        "group_id": row.group_id,
        "attempt": row.attempt,
    }


def _worth(row: Row) -> dict[str, Any]:
    return {"reward": row.reward, "advantage": row.advantage, "truncated": row.truncated}


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "step": turn.step,
        "start": turn.start,
        "stop": turn.stop,
        "text": turn.text,
        "finish_reason": turn.finish_reason,
        "sampling": turn.sampling.to_json(),
        "policy_version": turn.version,
        "policy_version_last": turn.version_last,
    }


def _counts(row: Row) -> list[int | None]:
    return [image.tokens for image in row.images]


def _image_url(folder: Path, image: ImageRef, inline: bool) -> str:
    if inline:
        return data_url(load_screenshot(folder, image.sha256).png)
    return IMAGE_SCHEME + image.sha256


def _why_empty(folder: Path) -> str:
    statuses = Counter(record["status"] for record in read_records(folder))
    if not statuses:
        return "it holds no rollouts yet"
    found = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    return f"none of its rollouts is ok or truncated ({found})"
