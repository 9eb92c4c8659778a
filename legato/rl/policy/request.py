"""Request bodies, as bytes.

A long rollout sends up to twenty screenshots with every step, several megabytes. Each is encoded
once, as the JSON of its data URL, and bodies are joined from these pieces in one copy.
"""

from __future__ import annotations

import base64
import json
from typing import Any
from weakref import WeakKeyDictionary

from legato.desktop.contract import Screenshot
from legato.rl.types import Message, Prompt, Sampling, Text

NEUTRAL = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""What a server's ``generation_config`` would otherwise set by itself, switched off."""

BAN = -100.0
"""The strongest ``logit_bias`` every server takes; e^-100 is zero in 32-bit floats."""

_FIRST_PART = b',"content_parts":[{"type":"image_url","url":'
_NEXT_PART = b',{"type":"image_url","url":'

_data_urls: WeakKeyDictionary[Screenshot, bytes] = WeakKeyDictionary()


def sampling_fields(sampling: Sampling) -> dict[str, Any]:
    """``sampling`` under the names that vLLM and SGLang share; every field is always present.

    ``top_k`` -1 is the one spelling of "off" that both take.
    """
    fields: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k if sampling.top_k > 0 else -1,
        "max_tokens": sampling.max_tokens,
        **NEUTRAL,
    }
    if sampling.banned_ids:
        fields["logit_bias"] = {str(i): BAN for i in sampling.banned_ids}
    if sampling.seed is not None:
        fields["seed"] = sampling.seed
    return fields


def tokens_body(prompt: Prompt, model: str, fields: dict[str, Any]) -> bytes:
    """Body for vLLM's ``/inference/v1/generate``: ids with one placeholder per image."""
    rest = {
        "model": model,
        "token_ids": prompt.token_ids,
        "sampling_params": fields,
        "return_token_ids": True,
    }
    pieces = [_dumps(rest)[:-1]]
    for image in prompt.images:
        first = len(pieces) == 1
        pieces += [_FIRST_PART if first else _NEXT_PART, data_url(image), b"}"]
    pieces.append(b"]}" if len(pieces) > 1 else b"}")
    return b"".join(pieces)


def chat_body(prompt: Prompt, model: str, fields: dict[str, Any]) -> bytes:
    """Body for ``/chat/completions``."""
    pieces = [_dumps({"model": model, **fields})[:-1], b',"messages":[']
    for number, message in enumerate(prompt.messages):
        if number:
            pieces.append(b",")
        pieces += _message(message)
    pieces.append(b"]}")
    return b"".join(pieces)


def data_url(image: Screenshot) -> bytes:
    """The screenshot's PNG as a data URL, as a JSON string; kept for as long as the screenshot."""
    url = _data_urls.get(image)
    if url is None:
        url = b'"data:image/png;base64,%b"' % base64.b64encode(image.png)
        _data_urls[image] = url
    return url


def _message(message: Message) -> list[bytes]:
    start = b'{"role":%b,"content":' % _dumps(message.role)
    if message.role == "assistant" or not message.images:
        text = "".join(p.text for p in message.parts if isinstance(p, Text))
        return [start, _dumps(text), b"}"]
    pieces = [start, b"["]
    for number, part in enumerate(message.parts):
        if number:
            pieces.append(b",")
        if isinstance(part, Text):
            pieces.append(_dumps({"type": "text", "text": part.text}))
        else:
            pieces += [b'{"type":"image_url","image_url":{"url":', data_url(part.image), b"}}"]
    return [*pieces, b"]}"]


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
