"""``legato.rollout/v0``: the fields of a record, and how a rollout becomes one.

A record is one JSON object per try of an attempt. It is small because everything large or
repeated lies beside it, once: messages and images are stored by hash, and the prompt ids of a
step are written as the difference to the step before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypedDict

import numpy as np

from legato.desktop.actions import action_json
from legato.desktop.contract import Screenshot
from legato.rl.store import sha256
from legato.rl.types import ActionTaken, ImagePart, Message, Rollout, Step, Text

SCHEMA = "legato.rollout/v0"
IMAGE_SCHEME = "legato-image://"


class PolicyRecord(TypedDict):
    model: str
    version: str
    """Of the first sampled token."""
    versions: list[str]
    """Every version that sampled in this rollout, in order of appearance."""


class ImageRecord(TypedDict):
    sha256: str
    width: int
    """Pixels, as the model saw it."""
    height: int


class PromptRecord(TypedDict):
    """Prompt ids, one placeholder per image, against the step before.

    They are the first ``prefix_len`` of (previous prompt ids + previous reply ids), then
    ``new_ids``.
    """

    prefix_len: int
    new_ids: list[int]


class ResponseRecord(TypedDict):
    content: str
    reasoning: str | None
    token_ids: list[int] | None
    logprobs: list[float] | None
    """One natural-log probability per token; ``None`` inside where the server sent no number."""
    tokens: list[str] | None
    """Only when there are no token ids."""
    finish_reason: Literal["stop", "length", "abort"]


class ModelRecord(TypedDict):
    seconds: float
    attempts: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


class ActionRecord(TypedDict):
    action: dict[str, Any] | None
    act_s: float
    wait_s: float
    ready_s: float
    obs_s: float
    ready_reason: str
    error: str | None


class StepRecord(TypedDict):
    request: list[str]
    """The exact prompt: hashes of its messages, in order."""
    prompt: PromptRecord | None
    """``None`` when neither side knew token ids."""
    images: list[int]
    """The prompt's images in the order of their placeholders, as indices into the record's."""
    image_tokens: list[int] | None
    """Tokens that each image of the prompt took; ``None``: not reported."""
    response: ResponseRecord
    policy_version: str
    policy_version_last: str | None
    """Of the last token, when weights changed while the step was sampled."""
    sampling: dict[str, Any]
    model: ModelRecord
    actions: list[ActionRecord]


class RolloutRecord(TypedDict):
    schema: str
    rollout_id: str
    task_id: str
    domain: str
    group_id: str
    attempt: int
    attempt_try: int
    policy: PolicyRecord
    status: str
    reward: float | None
    error: dict[str, str] | None
    """``kind`` (``policy``, ``env`` or ``grade``) and ``message``."""
    truncated_by: str | None
    n_steps: int
    timing: dict[str, float]
    score: dict[str, Any] | None
    """The verdict's ``output`` line and its ``checks``."""
    harness: str
    seed: int | None
    started_at: float
    """Unix time in seconds."""
    desktop_slot: int | None
    ready_after_reset: dict[str, Any] | None
    images: list[ImageRecord]
    """Every distinct image of the rollout's prompts, in order of appearance."""
    final_screenshot: str | None
    """Hash of what the last action led to; no prompt contains it."""
    steps: list[StepRecord]
    extra: dict[str, Any]


class StoredRecord(RolloutRecord):
    """A record as it lies in a run directory."""

    session: int
    """Which of the processes that wrote to the directory made it, from 0."""
    recorded_at: float
    """Unix time in seconds."""


@dataclass(slots=True)
class Encoded:
    """A record and the files it refers to."""

    record: RolloutRecord
    messages: dict[str, bytes] = field(default_factory=dict)
    """Canonical JSON by hash."""
    screenshots: dict[str, Screenshot] = field(default_factory=dict)
    """By the hash of their PNG."""


def encode(rollout: Rollout) -> Encoded:
    """The record of a rollout. Pure CPU; encodes PNGs that were not :meth:`~Screenshot.seal`-ed."""
    images = _Images()
    messages: dict[str, bytes] = {}
    names: dict[Message, str] = {}
    steps: list[StepRecord] = []
    before: tuple[int, ...] = ()
    for step in rollout.steps:
        for message in step.prompt.messages:
            if message not in names:
                data = dump_json(message_json(message))
                names[message] = sha256(data)
                messages[names[message]] = data
        steps.append(_step(step, [names[m] for m in step.prompt.messages], images, before))
        before = _prompt_ids(step) + (step.generation.token_ids or ())
    table = images.table()
    final = rollout.final_screenshot
    record = RolloutRecord(
        schema=SCHEMA,
        rollout_id=rollout.rollout_id,
        task_id=rollout.task_id,
        domain=rollout.domain,
        group_id=rollout.group_id,
        attempt=rollout.attempt,
        attempt_try=rollout.attempt_try,
        policy=PolicyRecord(
            model=rollout.policy_model,
            version=rollout.policy_version,
            versions=_versions(rollout),
        ),
        status=rollout.status.value,
        reward=rollout.reward,
        error=(
            None
            if rollout.error_kind is None
            else {"kind": rollout.error_kind, "message": rollout.error or ""}
        ),
        truncated_by=rollout.truncated_by,
        n_steps=len(rollout.steps),
        timing=asdict(rollout.timing),
        score=(
            None
            if rollout.score is None
            else {
                "output": rollout.score.output,
                "checks": [asdict(check) for check in rollout.score.checks],
            }
        ),
        harness=rollout.harness,
        seed=rollout.seed,
        started_at=rollout.started_at,
        desktop_slot=rollout.desktop_slot,
        ready_after_reset=(
            None if rollout.ready_after_reset is None else asdict(rollout.ready_after_reset)
        ),
        images=table,
        final_screenshot=None if final is None else images.name(final),
        steps=steps,
        extra=dict(rollout.extra),
    )
    return Encoded(record, messages, images.by_name)


def message_json(message: Message) -> dict[str, Any]:
    """A message in OpenAI's chat form, its images as ``legato-image://<sha256>``."""
    match message.parts:
        case (Text(text),):
            return {"role": message.role, "content": text}
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ImagePart):
            url = IMAGE_SCHEME + part.image.sha256
            content.append({"type": "image_url", "image_url": {"url": url}})
        else:
            content.append({"type": "text", "text": part.text})
    return {"role": message.role, "content": content}


def prompt_ids(record: RolloutRecord) -> Iterator[list[int] | None]:
    """The prompt ids of every step in turn, rebuilt; ``None`` for a step without."""
    before: list[int] = []
    for step in record["steps"]:
        prompt = step["prompt"]
        ids = None if prompt is None else before[: prompt["prefix_len"]] + prompt["new_ids"]
        yield ids
        before = (ids or []) + (step["response"]["token_ids"] or [])


def dump_json(value: Any) -> bytes:
    """Compact, pure-ASCII JSON.

    ASCII, because a model's reply may hold lone surrogates that UTF-8 cannot carry. A number
    that JSON cannot carry (NaN, infinity) becomes ``null`` rather than costing the record.
    """
    try:
        text = _ENCODER.encode(value)
    except ValueError:
        text = _ENCODER.encode(_finite(value))
    return text.encode("ascii")


class _Images:
    """The rollout's distinct images in order of appearance."""

    def __init__(self) -> None:
        self.by_name: dict[str, Screenshot] = {}
        self._index: dict[str, int] = {}

    def name(self, image: Screenshot) -> str:
        self.by_name.setdefault(image.sha256, image)
        return image.sha256

    def index(self, image: Screenshot) -> int:
        return self._index.setdefault(self.name(image), len(self._index))

    def table(self) -> list[ImageRecord]:
        return [
            ImageRecord(sha256=name, width=image.width, height=image.height)
            for name, image in ((name, self.by_name[name]) for name in self._index)
        ]


def _step(step: Step, request: list[str], images: _Images, before: tuple[int, ...]) -> StepRecord:
    reply = step.generation
    known = reply.prompt_ids is not None or step.prompt.token_ids is not None
    return StepRecord(
        request=request,
        prompt=_difference(before, _prompt_ids(step)) if known else None,
        images=[images.index(image) for image in step.prompt.images],
        image_tokens=_list(reply.image_tokens),
        response=ResponseRecord(
            content=reply.text,
            reasoning=reply.reasoning,
            token_ids=_list(reply.token_ids),
            logprobs=_list(reply.logprobs),
            tokens=_list(reply.tokens) if reply.token_ids is None else None,
            finish_reason=reply.finish_reason,
        ),
        policy_version=reply.version,
        policy_version_last=reply.version_last,
        sampling=step.sampling.to_json(),
        model=ModelRecord(
            seconds=reply.seconds,
            attempts=reply.attempts,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cached_tokens=reply.cached_tokens,
        ),
        actions=[_action(taken) for taken in step.actions],
    )


def _action(taken: ActionTaken) -> ActionRecord:
    return ActionRecord(
        action=None if taken.action is None else action_json(taken.action),
        act_s=taken.act_s,
        wait_s=taken.wait_s,
        ready_s=taken.ready_s,
        obs_s=taken.obs_s,
        ready_reason=taken.ready_reason,
        error=taken.error,
    )


def _prompt_ids(step: Step) -> tuple[int, ...]:
    """What the server says it ran, else what it was asked to run."""
    ids = step.generation.prompt_ids
    return (step.prompt.token_ids or ()) if ids is None else ids


def _difference(before: tuple[int, ...], ids: tuple[int, ...]) -> PromptRecord:
    length = len(before)
    if ids[:length] != before:
        length = min(length, len(ids))
        differs = np.not_equal(before[:length], ids[:length])
        length = int(differs.argmax()) if differs.any() else length
    return PromptRecord(prefix_len=length, new_ids=list(ids[length:]))


def _versions(rollout: Rollout) -> list[str]:
    seen: dict[str, None] = {}
    for step in rollout.steps:
        seen[step.generation.version] = None
        if step.generation.version_last is not None:
            seen[step.generation.version_last] = None
    return list(seen) or [rollout.policy_version]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return str(value)


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain)


def _list(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _finite(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
