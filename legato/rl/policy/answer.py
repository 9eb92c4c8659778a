"""Reading what a model server answered, trusting none of it.

A wrong number here is trained on, so anything that does not add up is a
:class:`~legato.errors.PolicyFailure`: transient when the server may do better next time, final
when it would answer the same again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from legato.errors import PolicyFailure

FLOOR = -9999.0
"""vLLM's stand-in for a log-probability it does not have."""

ROUNDING = 1e-4
"""How far above 0 a log-probability may lie by rounding alone; it is then read as 0."""


MAX_ID = 2**31
"""Token ids lie below this: no vocabulary comes near it, and tensors of ids are 32-bit at least."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply as the server gave it, checked; ``prompt_ids`` still have images expanded."""

    finish_reason: Literal["stop", "length"]
    token_ids: tuple[int, ...] | None
    logprobs: tuple[float, ...] | None
    tokens: tuple[str, ...] | None
    top: tuple[tuple[str, float], ...]
    """Most likely first tokens as the server names them, with log-probabilities."""
    text: str | None
    reasoning: str | None
    prompt_ids: tuple[int, ...] | None
    spans: tuple[tuple[int, int], ...] | None
    """(offset, length) of each image in ``prompt_ids``, in order."""
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


def read_answer(data: Any, *, want_logprobs: bool, banned: Sequence[int]) -> Answer:
    """Check and unpack a decoded JSON body of either endpoint.

    Raises :class:`~legato.errors.PolicyFailure` naming what is wrong with it.
    """
    body = _mapping(data, "the answer")
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise _bad("it holds no choices")
    choice = _mapping(choices[0], "a choice")
    finish_reason = _finish_reason(choice.get("finish_reason"))
    token_ids = _ids(choice.get("token_ids"), "token_ids")
    logprobs, tokens, top = _logprobs(choice.get("logprobs"), wanted=want_logprobs)
    usage = _mapping(body.get("usage") or {}, "usage")
    completion_tokens = _count(usage.get("completion_tokens"))
    if token_ids is not None:
        _check_ids(token_ids, logprobs, completion_tokens, banned)
    elif logprobs is not None and completion_tokens not in (None, len(logprobs)):
        raise _bad(f"{len(logprobs)} logprobs for {completion_tokens} tokens")
    # a choice of the token endpoint has no message
    message = _mapping(choice.get("message") or {}, "message")
    prompt_ids = body.get("prompt_token_ids")
    if prompt_ids is None:
        prompt_ids = choice.get("prompt_token_ids")  # where SGLang puts them
    details = _mapping(usage.get("prompt_tokens_details") or {}, "prompt_tokens_details")
    return Answer(
        finish_reason=finish_reason,
        token_ids=token_ids,
        logprobs=logprobs,
        tokens=tokens if token_ids is None else None,
        top=top,
        text=_text(message.get("content"), "content"),
        reasoning=_text(message.get("reasoning"), "reasoning")
        or _text(message.get("reasoning_content"), "reasoning_content"),
        prompt_ids=_ids(prompt_ids, "prompt_token_ids"),
        spans=_spans(body.get("mm_placeholders")),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=completion_tokens if token_ids is None else len(token_ids),
        cached_tokens=_count(details.get("cached_tokens")),
    )


def collapse(
    ids: Sequence[int], spans: Sequence[tuple[int, int]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """``ids`` with each span reduced to its first id, and the length of each span.

    Raises :class:`~legato.errors.PolicyFailure` unless the spans are disjoint runs of one id.
    """
    out: list[int] = []
    end = 0
    for offset, length in spans:
        run = ids[offset : offset + length]
        if offset < end or len(run) != length or len(set(run)) != 1:
            raise PolicyFailure(
                f"the server's image placeholders do not fit its prompt at token {offset}",
                transient=False,
            )
        out += ids[end : offset + 1]
        end = offset + length
    out += ids[end:]
    return tuple(out), tuple(length for _, length in spans)


def find_spans(
    ids: Sequence[int], images: int, placeholder: int | None
) -> tuple[tuple[int, int], ...] | None:
    """Where the images are in an expanded prompt whose server does not say.

    ``placeholder`` is the model's image token; without one it is taken to be the id with the
    longest run, which no text of a sensible prompt reaches. ``None`` if there is not exactly one
    run per image.
    """
    if not images:
        return ()
    runs: list[tuple[int, int, int]] = []
    offset = 0
    for token_id, group in groupby(ids):
        length = sum(1 for _ in group)
        runs.append((token_id, offset, length))
        offset += length
    if placeholder is None:
        placeholder = max(runs, key=lambda run: run[2])[0]
    spans = tuple((offset, length) for i, offset, length in runs if i == placeholder)
    return spans if len(spans) == images else None


def _bad(what: str) -> PolicyFailure:
    return PolicyFailure(f"the model server's answer cannot be used: {what}")


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _bad(f"{name} is {type(value).__name__}, not an object")
    return value


def _text(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _bad(f"{name} is {type(value).__name__}, not text")
    return value


def _count(value: Any) -> int | None:
    """A token count, or ``None`` for anything else: counts are reported, never trained on."""
    return value if type(value) is int and value >= 0 else None


def _finish_reason(value: Any) -> Literal["stop", "length"]:
    if value == "length":
        return "length"
    if value in ("stop", "tool_calls", "function_call"):
        return "stop"
    # abort, error, content_filter: what was sampled is cut off or withheld, hence no sample
    raise _bad(f"generation ended with {value!r}")


def _ids(value: Any, name: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(i) is int and 0 <= i < MAX_ID for i in value):
        raise _bad(f"{name} is not a list of token ids")
    return tuple(value)


def _check_ids(
    token_ids: tuple[int, ...],
    logprobs: tuple[float, ...] | None,
    completion_tokens: int | None,
    banned: Sequence[int],
) -> None:
    if not token_ids:
        raise _bad("it holds no tokens")
    if logprobs is not None and len(logprobs) != len(token_ids):
        raise _bad(f"{len(logprobs)} logprobs for {len(token_ids)} token ids")
    if completion_tokens not in (None, len(token_ids)):
        raise _bad(f"{len(token_ids)} token ids for {completion_tokens} tokens sampled")
    if sampled := set(token_ids).intersection(banned):
        raise PolicyFailure(
            f"the server sampled banned token ids {sorted(sampled)}: it ignores logit_bias",
            transient=False,
        )


def _logprobs(
    value: Any, *, wanted: bool
) -> tuple[tuple[float, ...] | None, tuple[str, ...] | None, tuple[tuple[str, float], ...]]:
    if not wanted:
        return None, None, ()
    if value is None:
        raise _bad("logprobs were asked for and are missing")
    content = _mapping(value, "logprobs").get("content")
    if not isinstance(content, list) or not content:
        raise _bad("logprobs were asked for and are missing")
    entries = [_mapping(entry, "a logprob") for entry in content]
    values = tuple(_logprob(e.get("logprob")) for e in entries)
    names = tuple(str(e.get("token", "")) for e in entries)
    alternatives = entries[0].get("top_logprobs") or []
    if not isinstance(alternatives, list):
        raise _bad("top_logprobs is not a list")
    top: list[tuple[str, float]] = []
    for alternative in alternatives:
        item = _mapping(alternative, "a top logprob")
        value = item.get("logprob")
        # outside the support of a truncated distribution: reported as "none", not as an error
        if isinstance(value, int | float) and (value == -math.inf or value <= FLOOR):
            continue
        top.append((str(item.get("token", "")), _logprob(value)))
    return values, names, tuple(top)


def _logprob(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(f"a logprob is {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise _bad("a logprob is out of range") from None
    if not math.isfinite(number) or number > ROUNDING or number <= FLOOR:
        raise _bad(f"a logprob is {number}")
    return min(number, 0.0)


def _spans(value: Any) -> tuple[tuple[int, int], ...] | None:
    if not isinstance(value, dict) or "image" not in value:
        return None
    ranges = value["image"]
    if not isinstance(ranges, list):
        raise _bad("mm_placeholders is not a list")
    spans = []
    for entry in ranges:
        item = _mapping(entry, "an image placeholder")
        offset, length = _count(item.get("offset")), _count(item.get("length"))
        if offset is None or not length:
            raise _bad("an image placeholder has no offset and length")
        spans.append((offset, length))
    return tuple(sorted(spans))
