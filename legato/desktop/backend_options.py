"""Options of one kind of desktop, given as ``DesktopOptions.extra``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from legato.errors import ConfigError


class BackendOptions(BaseModel):
    """A backend's class of options is named after it: ``LocalOptions``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, extra: Mapping[str, Any]) -> Self:
        """Raises :class:`~legato.errors.ConfigError` on an unknown key or a wrong value."""
        try:
            return cls(**extra)
        except ValidationError as e:
            known = ", ".join(cls.model_fields)
            lines = "; ".join(
                f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
                for item in e.errors(include_url=False)
            )
            kind = cls.__name__.removesuffix("Options").lower()
            raise ConfigError(f"{kind} desktop option {lines} (known: {known})") from None
