"""Request bodies, as bytes.

A long rollout sends up to twenty screenshots with every step, several megabytes. Each is encoded
once, as the JSON of its data URL, and bodies are joined from these pieces.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
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
    images = [b'{"type":"image_url","url":%b}' % data_url(image) for image in prompt.images]
    parts = {"content_parts": b"[%b]" % b",".join(images)} if images else {}
    return _object(rest, parts)


def chat_body(prompt: Prompt, model: str, fields: dict[str, Any]) -> bytes:
    """Body for ``/chat/completions``."""
    messages = b"[%b]" % b",".join(_message(m) for m in prompt.messages)
    return _object({"model": model, **fields}, {"messages": messages})


def data_url(image: Screenshot) -> bytes:
    """The screenshot's PNG as a data URL, as a JSON string; kept for as long as the screenshot."""
    url = _data_urls.get(image)
    if url is None:
        url = b'"data:image/png;base64,%b"' % base64.b64encode(image.png)
        _data_urls[image] = url
    return url


def _message(message: Message) -> bytes:
    role = json.dumps(message.role).encode()
    if message.role == "assistant" or all(isinstance(p, Text) for p in message.parts):
        text = "".join(p.text for p in message.parts if isinstance(p, Text))
        return b'{"role":%b,"content":%b}' % (role, json.dumps(text).encode())
    parts: Iterable[bytes] = (
        b'{"type":"text","text":%b}' % json.dumps(p.text).encode()
        if isinstance(p, Text)
        else b'{"type":"image_url","image_url":{"url":%b}}' % data_url(p.image)
        for p in message.parts
    )
    return b'{"role":%b,"content":[%b]}' % (role, b",".join(parts))


def _object(plain: dict[str, Any], encoded: dict[str, bytes]) -> bytes:
    tail = b"".join(b",%b:%b" % (json.dumps(k).encode(), v) for k, v in encoded.items())
    return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode()[:-1] + tail + b"}"
