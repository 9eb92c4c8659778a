"""The OSWorld backend's own options, given as ``DesktopOptions.extra``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from legato.desktop.backend_options import BackendOptions
from legato.desktop.osworld.environment import default_path
from legato.errors import ConfigError

VM_FOLDER = "docker_vm_data"
"""Where OSWorld's docker provider keeps its virtual machines, in the checkout."""


class OSWorldOptions(BackendOptions):
    osworld_path: Path | None = None
    """The checkout (``--osworld``): settings of tasks and the virtual machine are found there."""
    provider: Literal["docker", "qemu"] = "docker"
    """OSWorld's docker provider, or QEMU on this host, which goes back to a snapshot faster."""
    vm_image: Path | None = None
    """The machine's qcow2; by default ``docker_vm_data/Ubuntu.qcow2`` in the checkout."""
    cpus: int = Field(default=4, ge=1)
    memory_mib: int = Field(default=4096, ge=256)
    acceleration: Literal["kvm", "tcg"] = "kvm"
    """``tcg`` is software emulation: a hundred times slower, and needs no KVM."""
    qemu_args: tuple[str, ...] = ()
    """Further arguments of ``qemu-system-x86_64``, such as ``-bios`` with a firmware."""
    client_password: str = "password"
    """The guest user's, which some tasks need; the one of OSWorld's image."""
    home: str = "/home/user"
    boot_timeout: float = Field(default=300.0, gt=0)
    """Seconds until the guest's server must answer."""
    wait_after_reset: float = Field(default=60.0, ge=0)
    """Seconds, used only without the ready signal: OSWorld's own loop waits so long."""
    wait_before_eval: float = Field(default=20.0, ge=0)
    """The same before grading."""
    environment: Path = Field(default_factory=default_path)
    """Where ``osworld-setup`` has put OSWorld's environment."""

    @property
    def checkout(self) -> Path:
        """The checkout's absolute path. Raises :class:`~legato.errors.ConfigError`."""
        if self.osworld_path is None:
            raise ConfigError("the osworld backend needs --osworld with the path of a checkout")
        path = self.osworld_path.expanduser().absolute()
        if not (path / "evaluation_examples").is_dir():
            raise ConfigError(
                f"{path} is no OSWorld checkout (no evaluation_examples in it): give --osworld the "
                "path of a clone of github.com/xlang-ai/OSWorld"
            )
        return path

    @property
    def image(self) -> Path:
        """The machine's qcow2. Raises :class:`~legato.errors.ConfigError` if there is none."""
        path = self.vm_image.expanduser().absolute() if self.vm_image else None
        path = path or self.checkout / VM_FOLDER / "Ubuntu.qcow2"
        if not path.is_file():
            raise ConfigError(
                f"there is no virtual machine {path}: let OSWorld's quickstart download it once, "
                "or name it in desktop.options.vm_image"
            )
        return path
