"""podman's API service with the same client: what holds for Docker's containers holds for its own.

The tests imported here run a second time, on the engine of this module.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from docker.types import Ulimit

from legato.desktop import image
from legato.desktop.docker import check_requirements
from legato.desktop.docker import engine as engine_module
from legato.desktop.docker.desktop import DockerDesktop
from legato.desktop.docker.engine import Engine
from legato.errors import ConfigError, EnvFailure
from tests.desktop.docker.conftest import Running, stop_shared
from tests.desktop.docker.engines import DaemonProcess, podman
from tests.desktop.docker.test_engines import ssh_to_here, test_a_group_with_verdicts
from tests.desktop.docker.test_faults import (
    test_a_container_removed_from_outside,
    test_a_driver_killed_takes_its_containers_along_and_no_others,
)
from tests.desktop.docker.test_isolation import (
    test_calls_that_reach_the_kernel_itself_are_refused,
    test_memory_and_processes_are_bounded,
    test_only_what_a_reset_empties_can_be_written_to,
    test_rights,
    test_the_lockdown_holds_and_the_browser_keeps_its_sandbox,
)
from tests.desktop.local.conftest import ScriptedTask

__all__ = [
    "test_a_container_removed_from_outside",
    "test_a_driver_killed_takes_its_containers_along_and_no_others",
    "test_a_group_with_verdicts",
    "test_calls_that_reach_the_kernel_itself_are_refused",
    "test_memory_and_processes_are_bounded",
    "test_only_what_a_reset_empties_can_be_written_to",
    "test_rights",
    "test_the_lockdown_holds_and_the_browser_keeps_its_sandbox",
]

pytestmark = pytest.mark.desktop


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    stop_shared(request.config)  # the other engine holds gigabytes
    started = Running.start(podman(tmp_path_factory.mktemp("p") / "e"))
    yield started
    started.stack.close()


def test_the_container_is_made_as_it_says(desktop: DockerDesktop, engine: Engine) -> None:
    desktop.check_health()
    assert engine.podman
    host = engine.api.inspect_container(desktop._box._id)["HostConfig"]  # type: ignore[union-attr]
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"]
    assert host["Memory"] == host["MemorySwap"] == 3072 * 2**20
    assert (host["PidsLimit"], host["NanoCpus"]) == (1024, 2e9)
    assert not host["Privileged"]
    assert not host["Binds"]


def test_no_permission(daemon: DaemonProcess) -> None:
    check_requirements(daemon.address)  # whatever is imported late has been
    os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match="no permission to use the engine at"):
            check_requirements(daemon.address)
    finally:
        os.seteuid(0)


def test_on_another_host_it_asks_for_a_copy_of_the_profile(
    daemon: DaemonProcess,
    own_desktop: Callable[..., DockerDesktop],
    engine: Engine,
    short_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = short_path / "seccomp.json"
    monkeypatch.setattr(engine_module, "FAR_SECCOMP", str(copy))
    before = engine.api.containers(all=True)
    with ssh_to_here(short_path) as host:
        desktop = own_desktop(engine=f"{host}{daemon.socket}")
        with pytest.raises(EnvFailure, match=rf"copy {engine_module.SECCOMP} to {copy} there"):
            desktop.reset(ScriptedTask())
        assert len(engine.api.containers(all=True)) == len(before)
        shutil.copyfile(engine_module.SECCOMP, copy)
        desktop.reset(ScriptedTask())
        desktop.check_health()
        desktop.close()


def test_limits_that_the_host_does_not_allow(engine: Engine) -> None:
    known = engine.find_image(image.reference())
    assert known is not None
    high = Ulimit(name="nofile", soft=2**40, hard=2**40)
    host = engine.api.create_host_config(network_mode="none", ulimits=[high])
    made = engine.api.create_container(known["Id"], host_config=host)
    try:
        with (
            pytest.raises(EnvFailure, match=r"may not set the limits .* lower them \(podman"),
            engine.calls("start a container"),
        ):
            engine.api.start(made["Id"])
    finally:
        engine.api.remove_container(made["Id"], force=True)


def test_an_engine_without_bounds_is_refused(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = engine_module.Engine._info.func  # type: ignore[attr-defined]
    monkeypatch.setattr(
        engine_module.Engine, "_info", property(lambda self: told(self) | {"PidsLimit": False})
    )
    with pytest.raises(ConfigError, match=r"cannot bound a container's processes: give it"):
        check_requirements(daemon.address)
