"""What every provider's desktops understand, given as ``DesktopOptions.extra``."""

from __future__ import annotations

from pydantic import Field

from legato.desktop.backend_options import BackendOptions


class SandboxOptions(BackendOptions):
    """A provider's own options extend this; none of them is a key."""

    image: str | None = None
    """Default: the image that ``python -m legato.rl sandbox-image`` makes."""
    creating: int = Field(default=4, ge=1)
    """Sandboxes that this process has created at the same time; providers limit the rate."""
    create_timeout: float = Field(default=90.0, gt=0)
    """Seconds within which a new sandbox must run, waiting for the provider's limits included."""
    episodes: int = Field(default=50, ge=1)
    """Rollouts after which a sandbox is replaced."""
    life_s: float = Field(default=600.0, ge=120)
    """Seconds after which a sandbox ends by itself once its driver has stopped renewing it."""
    hourly_rate: float | None = Field(default=None, ge=0)
    """What a sandbox costs an hour, in any currency: ``profile`` then estimates costs."""
    max_processes: int = Field(default=1024, ge=64)
    """Processes and threads of one desktop."""
    disk_mib: int = Field(default=512, ge=16)
    """Size of home, of /tmp and of /dev/shm each, in MiB; memory that is taken when used."""
