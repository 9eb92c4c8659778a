"""One dockerd for all tests here, with the image; one desktop for many tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.contract import DesktopOptions, Machine
from legato.desktop.docker import make_desktop
from legato.desktop.docker.desktop import DockerDesktop
from legato.desktop.docker.engine import Engine
from tests.desktop.docker.engines import DaemonProcess, bring_image, dockerd
from tests.desktop.local.conftest import ScriptedTask


@dataclass
class Running:
    """What all tests of this directory share, started with the first and stopped with the last."""

    stack: ExitStack
    daemon: DaemonProcess
    desktop: DockerDesktop | None = None

    @classmethod
    def start(cls, engine: AbstractContextManager[DaemonProcess]) -> Running:
        stack = ExitStack()
        try:
            daemon = stack.enter_context(engine)
            bring_image(daemon.address)
        except BaseException:
            stack.close()
            raise
        return cls(stack, daemon)

    def shared_desktop(self) -> DockerDesktop:
        if self.desktop is None:
            self.desktop = make_desktop(DesktopOptions(extra={"engine": self.daemon.address}), 0)
            self.stack.callback(self.desktop.close)
        return self.desktop


_running = pytest.StashKey[Running]()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop with the last test here: an engine holds gigabytes, which others need."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        stop_shared(item.config)


def stop_shared(config: pytest.Config) -> None:
    if (running := config.stash.get(_running, None)) is not None:
        del config.stash[_running]
        running.stack.close()


@pytest.fixture
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Running:
    stash = request.config.stash
    if _running not in stash:
        directory = tmp_path_factory.mktemp("d") / "e"
        stash[_running] = Running.start(dockerd(directory, tcp=True))
    return stash[_running]


@pytest.fixture
def daemon(running: Running) -> DaemonProcess:
    return running.daemon


@pytest.fixture
def engine(daemon: DaemonProcess) -> Iterator[Engine]:
    """A client of the tests' own, to look and to do harm."""
    client = Engine(daemon.address)
    yield client
    client.close()


@pytest.fixture
def desktop(running: Running) -> DockerDesktop:
    """A clean desktop; tests that break one make their own."""
    desktop = running.shared_desktop()
    desktop.prepare()
    return desktop


@pytest.fixture
def machine(desktop: DockerDesktop) -> Machine:
    task = ScriptedTask()
    desktop.reset(task)
    return task.machine


@pytest.fixture
def own_desktop(daemon: DaemonProcess) -> Iterator[Callable[..., DockerDesktop]]:
    """Makes desktops for tests that break them; closes them all."""
    made: list[DockerDesktop] = []

    def make(**extra: Any) -> DockerDesktop:
        options = DesktopOptions(extra={"engine": daemon.address} | extra)
        made.append(make_desktop(options, len(made) + 1))
        return made[-1]

    yield make
    for desktop in made:
        desktop.close()


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for sockets, whose paths must be short."""
    return tmp_path_factory.mktemp("e")
