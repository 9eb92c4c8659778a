"""Harnesses by name: those built in, and those that other packages bring."""

from __future__ import annotations

import inspect
from importlib.metadata import entry_points
from typing import Any

from legato.errors import ConfigError
from legato.rl.harness.chat import ChatHarness
from legato.rl.harness.compact import Compact
from legato.rl.harness.osworld import OSWorldAgents
from legato.rl.harness.qwen import Qwen3VL, Qwen25VL, Qwen35
from legato.rl.types import Harness, Tokenizer

ENTRY_POINTS = "legato.harnesses"
"""Entry-point group of third-party harnesses: callables with :func:`make_harness`'s keywords."""

_BUILT_IN: dict[str, type[ChatHarness] | type[OSWorldAgents]] = {
    kind.name: kind for kind in (Qwen35, Qwen3VL, Qwen25VL, Compact, OSWorldAgents)
}


def harness_names() -> list[str]:
    """Every name :func:`make_harness` knows, sorted."""
    return sorted({*_BUILT_IN, *(entry.name for entry in entry_points(group=ENTRY_POINTS))})


def make_harness(
    name: str, *, tokenizer: Tokenizer | None, image_max: int = 20, **options: Any
) -> Harness:
    """Make a harness.

    Without a ``tokenizer`` its prompts carry messages and no token ids. ``image_max`` screenshots
    stay in the prompt; past it the oldest half leaves at once. ``options`` are the harness's own.
    Raises :class:`~legato.errors.ConfigError`, which lists what there is, for an unknown name or
    option.
    """
    factory: Any = _BUILT_IN.get(name)
    if factory is None:
        found = list(entry_points(group=ENTRY_POINTS, name=name))
        if not found:
            raise ConfigError(f"unknown harness {name!r}; known: {', '.join(harness_names())}")
        factory = found[0].load()
        try:
            inspect.signature(factory).bind(tokenizer=tokenizer, image_max=image_max, **options)
        except TypeError as error:
            raise ConfigError(f"harness {name} does not take these options: {error}") from None
    harness: Harness = factory(tokenizer=tokenizer, image_max=image_max, **options)
    return harness
