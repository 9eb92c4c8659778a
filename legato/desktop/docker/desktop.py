"""The docker desktop: an X session in a container, on this host or another."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from pathlib import Path

from legato.desktop import rundir
from legato.desktop.contract import DesktopOptions
from legato.desktop.docker.container import Container, sweep
from legato.desktop.docker.engine import Engine
from legato.desktop.docker.options import DockerOptions
from legato.desktop.guest.desktop import GuestDesktop

_swept: set[str] = set()
"""Addresses of the engines that this process has cleaned up on."""
_sweeping = threading.Lock()


class DockerProvider:
    """Implements :class:`~legato.desktop.guest.box.Provider` with containers of one engine."""

    def __init__(self, options: DockerOptions) -> None:
        self._options = options
        self._engine: Engine | None = None
        self._directory: tuple[Path, int] | None = None
        self._numbers = itertools.count(1)

    def create(self) -> Container:
        if self._engine is None:
            self._engine = Engine(self._options.engine)
        with _sweeping:
            if self._engine.address not in _swept:
                sweep(self._engine)
                _swept.add(self._engine.address)
        if self._directory is None:
            rundir.sweep()
            self._directory = rundir.create()
        scratch = self._directory[0] / f"scratch{next(self._numbers)}"
        return Container(self._engine, self._options, scratch)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        if self._directory is not None:
            base, lock = self._directory
            shutil.rmtree(base, ignore_errors=True)
            os.close(lock)
            self._directory = None


class DockerDesktop(GuestDesktop):
    """A :class:`~legato.desktop.guest.desktop.GuestDesktop` in a container."""

    def __init__(self, options: DesktopOptions, slot: int) -> None:
        super().__init__(options, slot, DockerProvider(DockerOptions.read(options.extra)))
