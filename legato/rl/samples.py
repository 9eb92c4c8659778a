"""Training rows: what was sampled, token by token, with what it earned.

One row per policy step, or merged. Merging shares a row between consecutive steps whose prompt
extends the previous prompt + reply; a row splits only where that prefix breaks::

    step 0   P0 R0                          per step:  P0 | R0     P0 R0 O1 | R1     P2 | R2
    step 1   P0 R0 O1 R1                    merged:    P0 | R0 O1 R1                 P2 | R2
    step 2   P2 R2        (P2 starts anew)  (R trained, O and everything left of | not)

Both ways train exactly the same tokens with the same logprobs and advantages. Everything is read
from the record alone; rows of rollouts held in memory go through their record, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from legato.desktop.contract import Screenshot
from legato.errors import SampleError
from legato.rl.advantage import MIN_GROUP, Outcome, advantages
from legato.rl.images import ImageSpec
from legato.rl.manifest import RunPath, read_manifest
from legato.rl.record import read_records
from legato.rl.row import ImageRef, Row, Turn, sample_error
from legato.rl.schema import RolloutRecord, StepRecord, encode, prompt_ids
from legato.rl.types import VERDICTS, Rollout, Sampling, Status

LOGPROB_SLACK = 1e-5
"""A logprob may exceed 0 by this much: float32 rounding of a certain token."""


@dataclass(frozen=True, slots=True)
class Vision:
    """What is known of the model's image input; rows are checked against it."""

    image_token_id: int
    """Id of the placeholder."""
    spec: ImageSpec


def samples_from(
    rollouts: Iterable[Rollout],
    *,
    merged: bool = True,
    min_group: int = MIN_GROUP,
    vision: Vision | None = None,
) -> list[Row]:
    """Rows of every ``ok`` or ``truncated`` rollout, in the order given.

    Give whole groups: advantages are taken over what is given. Raises :class:`SampleError`.
    """
    records = [encode(rollout).record for rollout in rollouts if rollout.status in VERDICTS]
    by_id = advantages(map(outcome, records), min_group=min_group)
    return [
        row
        for record in records
        for row in rows(record, by_id[record["rollout_id"]], merged=merged, vision=vision)
    ]


def read_samples(
    run_dir: RunPath, *, merged: bool = True, vision: Vision | None = None
) -> Iterator[Row]:
    """Rows of every ``ok`` or ``truncated`` rollout of a run, one rollout at a time in memory."""
    by_id = run_advantages(run_dir)
    for record in read_records(run_dir):
        if record["rollout_id"] in by_id and record["status"] in VERDICTS:
            yield from rows(record, by_id[record["rollout_id"]], merged=merged, vision=vision)


def run_advantages(run_dir: RunPath) -> dict[str, float]:
    """Advantages of a run's verdicts by rollout id, as of now."""
    min_group = read_manifest(run_dir).min_group
    return advantages(map(outcome, read_records(run_dir)), min_group=min_group)


def screenshots(rollouts: Iterable[Rollout]) -> dict[str, Screenshot]:
    """The images that rows of these rollouts refer to, by hash."""
    return {
        image.sha256: image
        for rollout in rollouts
        for step in rollout.steps
        for image in step.prompt.images
    }


def outcome(record: RolloutRecord) -> Outcome:
    return Outcome(
        record["rollout_id"], record["group_id"], Status(record["status"]), record["reward"]
    )


def rows(
    record: RolloutRecord, advantage: float, *, merged: bool, vision: Vision | None = None
) -> list[Row]:
    """The rows of one rollout with a verdict; checked, so that a trainer need not be.

    Raises :class:`SampleError` naming rollout and step: ids that are missing or negative, counts
    that do not match, a logprob that is none, an image whose tokens differ from what ``vision``
    predicts.
    """
    steps = [
        _read(record, number, step, ids, vision)
        for number, (step, ids) in enumerate(zip(record["steps"], prompt_ids(record), strict=True))
    ]
    if not merged:
        return [_row(record, advantage, [step], vision) for step in steps]
    for step in steps:
        if step.prompt is None or step.reply is None:
            raise sample_error(
                record["rollout_id"],
                step.number,
                "no token ids were reported, so steps cannot share a row; use rows per step, or "
                "a server that returns token ids",
            )
    if len({step.logprobs is None for step in steps}) > 1:
        missing = next(step.number for step in steps if step.logprobs is None)
        raise sample_error(record["rollout_id"], missing, "no logprobs, but other steps have")
    runs: list[list[_Step]] = []
    for step in steps:
        if runs and step.extends:
            runs[-1].append(step)
        else:
            runs.append([step])
    return [_row(record, advantage, run, vision) for run in runs]


@dataclass(slots=True)
class _Step:
    """A recorded step, checked by itself."""

    number: int
    record: StepRecord
    prompt: list[int] | None
    reply: list[int] | None
    logprobs: list[float] | None
    images: list[ImageRef]
    extends: bool
    """Its prompt starts with the whole previous prompt + reply, images included."""


def _read(
    record: RolloutRecord,
    number: int,
    step: StepRecord,
    ids: list[int] | None,
    vision: Vision | None,
) -> _Step:
    response = step["response"]
    reply, logprobs = response["token_ids"], response["logprobs"]

    def fail(what: str) -> SampleError:
        return sample_error(record["rollout_id"], number, what)

    if min(ids or (0,)) < 0 or min(reply or (0,)) < 0:
        raise fail("a token id is negative")
    if logprobs is not None:
        of = response["tokens"] if reply is None else reply
        if of is not None and len(logprobs) != len(of):
            raise fail(f"{len(logprobs)} logprobs for {len(of)} tokens")
        for logprob in logprobs:
            if logprob is None or not math.isfinite(logprob) or logprob > LOGPROB_SLACK:
                raise fail(f"{logprob} is not a logprob")
    images = _image_refs(record, step, vision, fail)
    counts = [image.tokens for image in images]
    total = step["model"]["prompt_tokens"]
    if ids is not None and total is not None and None not in counts:
        expected = len(ids) + sum(n - 1 for n in counts if n is not None)
        if total != expected:
            raise fail(f"the server counted {total} prompt tokens, the ids make {expected}")
    return _Step(number, step, ids, reply, logprobs, images, _extends(record, number))


def _extends(record: RolloutRecord, number: int) -> bool:
    if number == 0:
        return False
    before, step = record["steps"][number - 1], record["steps"][number]
    reply = before["response"]["token_ids"]
    if before["prompt"] is None or step["prompt"] is None or reply is None:
        return False
    length = before["prompt"]["prefix_len"] + len(before["prompt"]["new_ids"]) + len(reply)
    shown = len(before["images"])
    return step["prompt"]["prefix_len"] == length and step["images"][:shown] == before["images"]


def _image_refs(
    record: RolloutRecord,
    step: StepRecord,
    vision: Vision | None,
    fail: Callable[[str], SampleError],
) -> list[ImageRef]:
    counts: Sequence[int | None] | None = step["image_tokens"]
    if counts is None:
        counts = [None] * len(step["images"])
    if len(counts) != len(step["images"]):
        raise fail(f"{len(counts)} image token counts for {len(step['images'])} images")
    refs: list[ImageRef] = []
    for index, tokens in zip(step["images"], counts, strict=True):
        image = record["images"][index]
        if vision is not None:
            predicted = vision.spec.tokens(image["width"], image["height"])
            if tokens is not None and tokens != predicted:
                raise fail(
                    f"an image of {image['width']}x{image['height']} took {tokens} tokens, the "
                    f"image processor makes {predicted}; are both the same checkpoint?"
                )
            tokens = predicted
        refs.append(ImageRef(image["sha256"], image["width"], image["height"], tokens))
    return refs


def _row(record: RolloutRecord, advantage: float, steps: list[_Step], vision: Vision | None) -> Row:
    first = steps[0]
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    turns: list[Turn] = []
    prompt = first.prompt or []
    for step in steps:
        if step is not first:
            assert step.prompt is not None
            between = step.prompt[len(prompt) + len(ids) :]
            ids += between
            mask += [0] * len(between)
            logprobs += [0.0] * len(between)
        reply = step.reply or []
        turns.append(_turn(step, len(ids)))
        ids += reply
        mask += [1] * len(reply)
        logprobs += step.logprobs or []
    versions = [version for turn in turns for version in turn.versions]
    order = int if all(v.isdecimal() for v in versions) else versions.index
    row = Row(
        rollout_id=record["rollout_id"],
        task_id=record["task_id"],
        group_id=record["group_id"],
        attempt=record["attempt"],
        turns=tuple(turns),
        prompt_ids=tuple(prompt),
        response_ids=tuple(ids),
        loss_mask=tuple(mask),
        logprobs=None if first.logprobs is None else tuple(logprobs),
        images=tuple(steps[-1].images),
        n_prompt_images=len(first.images),
        reward=_reward(record),
        advantage=advantage,
        policy_version_min=min(versions, key=order),
        policy_version_max=max(versions, key=order),
        truncated=record["status"] == Status.TRUNCATED,
        has_ids=first.prompt is not None and all(step.reply is not None for step in steps),
    )
    if vision is not None and row.has_ids:
        row.check_placeholders(vision.image_token_id)
    return row


def _turn(step: _Step, start: int) -> Turn:
    record = step.record
    response = record["response"]
    sampling = dict(record["sampling"])
    return Turn(
        step=step.number,
        start=start,
        stop=start + len(step.reply or ()),
        version=record["policy_version"],
        version_last=record["policy_version_last"] or record["policy_version"],
        finish_reason=response["finish_reason"],
        sampling=Sampling(**{**sampling, "banned_ids": tuple(sampling["banned_ids"])}),
        text=response["content"],
        reasoning=response["reasoning"],
        tokens=None if response["tokens"] is None else tuple(response["tokens"]),
    )


def _reward(record: RolloutRecord) -> float:
    if record["reward"] is None:
        raise SampleError(f"rollout {record['rollout_id']} is {record['status']} without a reward")
    return record["reward"]
