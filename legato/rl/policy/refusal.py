"""What an HTTP error means, and what the user can do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

from legato.errors import ContextLimit, PolicyFailure
from legato.rl.policy.config import KEY_VARIABLE, PolicyConfig


class Busy(PolicyFailure):
    """A transient refusal; ``after`` seconds were asked for before the next try."""

    def __init__(self, message: str, after: float | None) -> None:
        super().__init__(message, transient=True)
        self.after = after


OPTIONAL = (
    "chat_template_kwargs",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "min_p",
    "top_k",
    "logit_bias",
    "seed",
    "top_logprobs",
    "logprobs",
)
"""Request fields without which a reply is still a reply, in the order they are looked for."""

_REFUSAL = re.compile(
    r"unsupport|not (?:\w+ )?support|unrecogni|unknown|unexpected|extra|not permitted|not allowed"
    r"|forbidden|invalid (?:field|param|argument|property)|not available|deprecated|cannot find",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"context[ _]length|context window|maximum model length|longer than the model"
    r"|prompt is too long|too many (?:input )?tokens|reduce the length",
    re.IGNORECASE,
)
RETRYABLE = frozenset({408, 409, 425, 429})


def refused_field(message: str, fields: Mapping[str, Any]) -> str | None:
    """Which optional field of the request a 400 or 422 is about, if any.

    A field that carries the user's own value (a ban, a seed, a real top_k) is only given up when
    the server says that it does not know the field: a bad value is the user's to correct.
    """
    if "max_tokens" in fields and "max_completion_tokens" in message:
        return "max_tokens"  # its successor is named as the one to use
    for name in OPTIONAL:
        if name not in fields:
            continue
        spelled = name.replace("_", "_?")
        if not re.search(rf"(?<![a-z_]){spelled}(?![a-z_])", message, re.IGNORECASE):
            continue
        own_value = name in ("logit_bias", "seed") or (name == "top_k" and fields[name] > 0)
        if not own_value or _REFUSAL.search(message):
            return name
    return None


def failure(status: int, message: str, config: PolicyConfig) -> PolicyFailure:
    """The failure behind an HTTP status other than 200."""
    where = f"{config.url} answered HTTP {status}"
    if status in (401, 403):
        advice = (
            f"{KEY_VARIABLE} was refused"
            if config.secret
            else f"the server wants a key: set {KEY_VARIABLE}"
        )
        return PolicyFailure(f"{advice} ({where})", transient=False)
    if status in (400, 413, 422) and _CONTEXT.search(message):
        return ContextLimit(f"the prompt no longer fits the model's context: {message}")
    if status == 404:
        return PolicyFailure(
            f"{where}: check the policy url and that it serves {config.model!r}: {message}",
            transient=False,
        )
    if status == 413:
        return PolicyFailure(
            f"{where}: the request is too large; keep fewer screenshots (--image-max)",
            transient=False,
        )
    if 300 <= status < 400:
        return PolicyFailure(
            f"{where}, a redirect: give the final address as the policy url", transient=False
        )
    if "image" in message and "may be provided" in message:
        message += " (raise vLLM's --limit-mm-per-prompt or lower --image-max)"
    transient = status >= 500 or status in RETRYABLE
    return PolicyFailure(f"{where}: {message}" if message else where, transient=transient)


def error_message(body: bytes, limit: int = 500) -> str:
    """The words of an error body, on one line, cut at ``limit`` characters."""
    text = body[: 64 * 1024].decode("utf-8", "replace")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict):
        error = data.get("error", data)
        inner = error.get("message", error) if isinstance(error, dict) else error
        text = inner if isinstance(inner, str) else json.dumps(inner)
    return " ".join(text.split())[:limit]


def retry_after(header: str | None, most: float) -> float | None:
    """Seconds of a ``Retry-After`` header, as a number or a date, at most ``most``."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), most) if seconds == seconds else None


def scrub(text: str, secret: str | None) -> str:
    """``text`` without ``secret``: a server may echo what it was sent."""
    return text.replace(secret, "***") if secret else text
