"""The one place that a provider's key is read from: the environment."""

from __future__ import annotations

import os

from legato.errors import ConfigError


def key(name: str) -> str:
    """Raises :class:`~legato.errors.ConfigError` if the variable is not set."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise ConfigError(f"{name} is not set: export your key; it is read from there only")
    return value
