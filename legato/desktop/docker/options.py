"""The docker backend's own options, given as ``DesktopOptions.extra``."""

from __future__ import annotations

from pydantic import Field

from legato.desktop.backend_options import BackendOptions


class DockerOptions(BackendOptions):
    engine: str | None = None
    """Address of the engine's API: ``unix://``, ``tcp://`` or ``ssh://user@host[:port][/socket]``;
    by default ``DOCKER_HOST``, else the engine of this machine."""
    image: str | None = None
    """Default: the image that ``make desktop-image`` makes. Another one must be built on it."""
    memory_mib: int = Field(default=3072, ge=256)
    """Memory of one desktop, in MiB; what it keeps in its home, /tmp and /dev/shm included."""
    cpus: float = Field(default=2.0, gt=0)
    """Processors' worth of time that one desktop may take."""
    max_processes: int = Field(default=1024, ge=64)
    """Processes and threads of one desktop."""
    disk_mib: int = Field(default=512, ge=16)
    """Size of home, of /tmp and of /dev/shm each, in MiB; memory that is taken when used."""
