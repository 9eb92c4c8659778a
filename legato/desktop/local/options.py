"""The local backend's own options, given as ``DesktopOptions.extra``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from legato.desktop.backend_options import BackendOptions


class LocalOptions(BackendOptions):
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
