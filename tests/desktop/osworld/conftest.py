"""One docker engine, one image and one checkout for the tests of the OSWorld backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.contract import DesktopOptions
from legato.desktop.osworld.desktop import OSWorldDesktop, make_desktop
from legato.desktop.osworld.environment import Environment, build
from tests.conftest import REPO
from tests.desktop.osworld.engine import Engine
from tests.desktop.osworld.guest_image import rootfs

Make = Callable[..., OSWorldDesktop]


@pytest.fixture(scope="session")
def environment() -> Environment:
    return build(REPO / ".cache" / "osworld")


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Laid out as OSWorld's; the virtual machine is empty, for the image here has none inside."""
    root = tmp_path_factory.mktemp("osworld")
    (root / "evaluation_examples" / "examples").mkdir(parents=True)
    (root / "docker_vm_data").mkdir()
    (root / "docker_vm_data" / "Ubuntu.qcow2").touch()
    return root


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """With the guest under the name that OSWorld starts; ``DOCKER_HOST`` points at it."""
    before = os.environ.get("DOCKER_HOST")
    with Engine() as engine:
        engine.load(rootfs(REPO / ".cache" / "osworld-guest"), ["/bin/sh", "/opt/start.sh"])
        os.environ["DOCKER_HOST"] = engine.host
        yield engine
        if before is None:
            del os.environ["DOCKER_HOST"]
        else:
            os.environ["DOCKER_HOST"] = before


@pytest.fixture(scope="session")
def options(checkout: Path, environment: Environment) -> Callable[..., DesktopOptions]:
    """The options of a desktop here; ``extra`` ones are the backend's own."""

    def make(**extra: Any) -> DesktopOptions:
        common = {name: extra.pop(name) for name in ("ready_signal", "fast_reset") if name in extra}
        return DesktopOptions(
            **common,
            ready_timeout=30.0,
            extra={
                "osworld_path": str(checkout),
                "environment": str(environment.path),
                "acceleration": "tcg",
                **extra,
            },
        )

    return make


@pytest.fixture
def own_desktop(engine: Engine, options: Callable[..., DesktopOptions]) -> Iterator[Make]:
    """Makes desktops for tests that break them; closes them all."""
    made: list[OSWorldDesktop] = []

    def make(**extra: Any) -> OSWorldDesktop:
        made.append(make_desktop(options(**extra), len(made) + 1))
        return made[-1]

    yield make
    for desktop in made:
        desktop.close()


@pytest.fixture(scope="session")
def shared_desktop(
    engine: Engine, options: Callable[..., DesktopOptions]
) -> Iterator[OSWorldDesktop]:
    """One machine kept up through the tests, as a worker does it."""
    desktop = make_desktop(options(), 0)
    yield desktop
    desktop.close()
