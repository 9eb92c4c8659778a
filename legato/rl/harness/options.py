"""A harness's own options, checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import ValidationError

from legato.errors import ConfigError

Options = TypeVar("Options")


def read_options(kind: type[Options], harness: str, given: Mapping[str, Any]) -> Options:
    """Build the pydantic dataclass ``kind``; raises ``ConfigError`` that lists its options."""
    known = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    listed = ", ".join(f"{name}={default!r}" for name, default in known.items())
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ConfigError(
            f"harness {harness} has no option {', '.join(unknown)}; its options: {listed}"
        )
    try:
        return kind(**given)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
            for item in error.errors(include_url=False)
        )
        raise ConfigError(f"options of harness {harness}: {wrong}; defaults: {listed}") from None
