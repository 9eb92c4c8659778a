"""The local backend's own options, given as ``DesktopOptions.extra``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from legato.errors import ConfigError


class LocalOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    home_template: Path | None = None
    """Directory whose contents the agent's home has after every reset; default: empty folders."""
    ro_bind: tuple[Path, ...] = ()
    """Further host paths the desktop can read, at the same place inside."""
    disk_mib: int = Field(default=512, ge=16)
    """Size of home, of /tmp and of /dev/shm each, in MiB; memory that is taken when used."""
    max_processes: int = Field(default=1024, ge=0)
    """Processes and threads of one desktop (Linux 5.14 and later); 0: no bound."""

    @field_validator("home_template", "ro_bind")
    @classmethod
    def _exists(cls, value: Any) -> Any:
        for path in value if isinstance(value, tuple) else (value,):
            if path is not None and not (path.is_absolute() and path.exists()):
                raise ValueError(f"{path} is not an absolute path of something that exists")
        return value

    @classmethod
    def read(cls, extra: Mapping[str, Any]) -> LocalOptions:
        """Raises :class:`~legato.errors.ConfigError` on an unknown key or a wrong value."""
        try:
            return cls(**extra)
        except ValidationError as e:
            known = ", ".join(cls.model_fields)
            lines = "; ".join(
                f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
                for item in e.errors(include_url=False)
            )
            raise ConfigError(f"local desktop option {lines} (known: {known})") from None
