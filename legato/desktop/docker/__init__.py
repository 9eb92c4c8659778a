"""Desktops in containers, through the API of Docker or podman, on this host or another.

``make_desktop`` is what the entry point ``docker`` of ``legato.desktops`` names.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from legato.desktop.contract import DesktopOptions
from legato.desktop.docker.options import DockerOptions
from legato.errors import ConfigError, EnvFailure

if TYPE_CHECKING:
    from legato.desktop.docker.desktop import DockerDesktop


def make_desktop(options: DesktopOptions, slot: int) -> DockerDesktop:
    """A desktop whose container starts with its first ``prepare`` or ``reset``.

    Raises :class:`~legato.errors.ConfigError` on an unknown or wrong option in ``extra``, and if
    the engine, our permission to use it or the image is missing.
    """
    docker = DockerOptions.read(options.extra)
    _check_once(docker.engine, docker.image, os.environ.get("DOCKER_HOST"))
    from legato.desktop.docker.desktop import DockerDesktop

    return DockerDesktop(options, slot)


@cache
def _check_once(address: str | None, name: str | None, host: str | None) -> None:
    check_requirements(address, name)


def check_requirements(address: str | None = None, name: str | None = None) -> None:
    """Raise ``ConfigError`` saying what to install, start or allow, unless desktops can run.

    ``address`` and ``name`` are ``engine`` and ``image`` of
    :class:`~legato.desktop.docker.options.DockerOptions`.
    """
    if find_spec("docker") is None:
        raise ConfigError(
            "container desktops need the docker package: pip install legatolabs[docker]"
        )
    from legato.desktop import image
    from legato.desktop.docker.engine import Engine

    try:
        engine = Engine(address)
    except EnvFailure as e:
        raise ConfigError(str(e)) from None
    try:
        engine.check()
        engine.check_image(name or image.reference())
    finally:
        engine.close()
