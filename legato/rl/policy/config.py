"""Which model server to ask, and within which bounds."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Literal, get_args
from urllib.parse import urlsplit

from pydantic import SecretStr

from legato.errors import ConfigError
from legato.rl.tokens import HFTokenizer, load_tokenizer

KEY_VARIABLE = "LEGATO_POLICY_KEY"

Api = Literal["auto", "tokens", "chat"]
"""``tokens``: vLLM's token endpoint; ``chat``: OpenAI chat completions; ``auto``: the first that
the server has, given that there is a tokenizer on this side."""


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """A model server. Raises :class:`~legato.errors.ConfigError` on a value it cannot use.

    The key is held as a :class:`pydantic.SecretStr`: it shows in no ``repr``, and serialising the
    config as JSON fails rather than writing it down.
    """

    url: str
    """Base of the OpenAI-style API, usually ending in ``/v1``."""
    model: str
    """Name under which the server serves the model."""
    version: str = "0"
    """Name of the weights now loaded, as the trainer counts them; kept with every step."""
    api_key: str | SecretStr | None = field(default=None, repr=False)
    """Bearer key; by default the environment variable ``LEGATO_POLICY_KEY``, if it is set."""
    api: Api = "auto"
    tokenizer: str | None = None
    """Checkpoint directory or hub id of the tokenizer; by default the model's name."""
    step_timeout: float = 60.0
    """Seconds within which one call must be answered, from the moment it is sent."""
    retries: int = 1
    """How often a failed call is repeated."""
    max_inflight: int | None = None
    """Most requests at the server at any time, over all rollouts; ``None``: no cap."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _checked_url(self.url))
        object.__setattr__(self, "api_key", _checked_key(self.api_key))
        if not self.model:
            raise ConfigError("policy model is empty: give the name the server lists at /models")
        if not isinstance(self.version, str) or not self.version:
            raise ConfigError(f"policy version must be a non-empty string, got {self.version!r}")
        if self.api not in get_args(Api):
            raise ConfigError(f"policy api must be one of {get_args(Api)}, got {self.api!r}")
        if not (math.isfinite(self.step_timeout) and self.step_timeout > 0):
            raise ConfigError(f"step timeout must be positive seconds, got {self.step_timeout!r}")
        if self.retries < 0:
            raise ConfigError(f"retries must be 0 or more, got {self.retries!r}")
        if self.max_inflight is not None and self.max_inflight < 1:
            raise ConfigError(f"max-inflight must be 1 or more, got {self.max_inflight!r}")

    @property
    def root(self) -> str:
        """The server without the ``/v1`` of its OpenAI-style API."""
        return self.url.removesuffix("/v1")

    @property
    def secret(self) -> str | None:
        """The key in the clear, for the request header alone."""
        return self.api_key.get_secret_value() if isinstance(self.api_key, SecretStr) else None


def tokenizer_for(config: PolicyConfig) -> HFTokenizer | None:
    """The policy's tokenizer; ``None`` when only chat is left, its own name leading to none.

    Raises :class:`~legato.errors.ConfigError` if one was asked for and cannot be loaded.
    """
    if config.api == "chat" and config.tokenizer is None:
        return None
    try:
        return load_tokenizer(config.tokenizer or config.model)
    except ConfigError:
        if config.tokenizer is not None or config.api == "tokens":
            raise
        return None


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        raise ConfigError("policy url cannot be read: write it as https://server/v1") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        # urls are recorded and logged, so the message must not repeat this one either
        raise ConfigError(
            f"policy url must hold no user, password, query or fragment: give the key "
            f"in {KEY_VARIABLE}"
        )
    if not usable:
        raise ConfigError(f"policy url must look like https://server/v1, got {url!r}")
    return url.rstrip("/")


def _checked_key(key: str | SecretStr | None) -> SecretStr | None:
    if key is None:
        key = os.environ.get(KEY_VARIABLE)
    value = key.get_secret_value() if isinstance(key, SecretStr) else (key or "")
    value = value.strip()
    if not value:
        return None
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise ConfigError(
            f"the policy key holds characters that no header can carry: check {KEY_VARIABLE}"
        )
    return SecretStr(value)
