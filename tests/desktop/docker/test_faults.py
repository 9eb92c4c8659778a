"""What can go wrong with an engine: one clear line, or a typed error, and nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from legato.desktop import image
from legato.desktop.actions import Action
from legato.desktop.contract import DesktopOptions
from legato.desktop.docker import check_requirements, container, make_desktop
from legato.desktop.docker import engine as engine_module
from legato.desktop.docker.desktop import DockerDesktop
from legato.desktop.docker.engine import Engine
from legato.errors import ConfigError, EnvFailure
from tests.desktop.docker.engines import DaemonProcess, bring_image, dockerd
from tests.desktop.local.conftest import ScriptedTask

pytestmark = pytest.mark.desktop

GONE_S = 60.0


def ours(engine: Engine) -> set[str]:
    """Ids of all containers of ours, in any state."""
    found = engine.api.containers(all=True, filters={"label": image.LABEL})
    return {c["Id"] for c in found}


def await_gone(engine: Engine, gone: set[str]) -> None:
    deadline = time.monotonic() + GONE_S
    while gone & ours(engine) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not gone & ours(engine)


def told(address: str, name: str | None = None) -> str:
    with pytest.raises(ConfigError) as e:
        check_requirements(address, name)
    assert "\n" not in str(e.value)
    return str(e.value)


# --- before anything starts ----------------------------------------------------------------------


def test_no_engine(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/none.sock"
    assert told(address).startswith(f"no engine at {address}: start Docker")
    assert told("tcp://127.0.0.1:9").startswith("no engine at tcp://127.0.0.1:9")
    with pytest.raises(ConfigError, match="no engine at"):
        make_desktop(DesktopOptions(extra={"engine": address}), 0)


@pytest.mark.parametrize("address", ["nonsense", "ftp://here", "unix//x"])
def test_an_address_that_is_none(address: str) -> None:
    assert "is no address of a Docker engine" in told(address)


def test_unknown_options() -> None:
    with pytest.raises(ConfigError, match=r"docker desktop option colour.*known: engine"):
        make_desktop(DesktopOptions(extra={"colour": "red"}), 0)


def test_no_image(daemon: DaemonProcess) -> None:
    assert told(daemon.address, "legato-desktop:nowhere") == (
        "the engine has no image legato-desktop:nowhere: make it there with `make desktop-image`"
    )


def test_the_wrong_image(daemon: DaemonProcess, engine: Engine) -> None:
    base = f"{image.BASE_NAME}:{image.base_tag()}"
    assert "has no guest program; use the one that `make desktop-image`" in told(
        daemon.address, base
    )
    made = engine.api.create_container(base, ["/bin/true"])
    changes = [f"LABEL {image.GUEST_LABEL}=000000000000"]
    engine.api.commit(made["Id"], repository=image.NAME, tag="old", changes=changes)
    engine.api.remove_container(made["Id"])
    assert "another version's guest program (000000000000)" in told(
        daemon.address, f"{image.NAME}:old"
    )


def test_no_permission(daemon: DaemonProcess) -> None:
    check_requirements(daemon.address)  # whatever is imported late has been
    os.seteuid(65534)
    try:
        line = told(daemon.address)
    finally:
        os.seteuid(0)
    assert line.startswith(f"no permission to use the engine at {daemon.address}: join its group")


def test_the_disk_is_full(short_path: Path) -> None:
    with dockerd(short_path / "d", disk="64m") as small:
        with pytest.raises(EnvFailure, match=r"the disk of the engine at .* is full") as e:
            bring_image(small.address)
        assert not e.value.transient
        client = Engine(small.address)
        assert client.api.containers(all=True) == client.api.images(all=True) == []
        client.close()


# --- in the middle -------------------------------------------------------------------------------


def at_work(own_desktop: Callable[..., DockerDesktop], engine: Engine) -> tuple[DockerDesktop, str]:
    """A desktop after its first reset, and the id of its container."""
    desktop = own_desktop()
    before = ours(engine)
    desktop.reset(ScriptedTask())
    (container,) = ours(engine) - before
    return desktop, container


def test_a_container_removed_from_outside(
    own_desktop: Callable[..., DockerDesktop], engine: Engine
) -> None:
    desktop, mine = at_work(own_desktop, engine)
    failed: list[EnvFailure] = []
    task = ScriptedTask(on_setup=lambda machine: machine.run(["sleep", "60"]))

    def wait_in_it() -> None:
        try:
            desktop.reset(task)
        except EnvFailure as e:
            failed.append(e)

    desktop.prepare()
    thread = threading.Thread(target=wait_in_it)
    thread.start()
    while not task.machines:
        time.sleep(0.05)
    engine.api.remove_container(mine, force=True)
    thread.join(GONE_S)
    assert "the machine was lost during 'run'" in str(failed[0])
    desktop.reset(ScriptedTask())  # on a new one
    desktop.check_health()
    assert mine not in ours(engine)


def test_a_container_that_stops_answering(
    own_desktop: Callable[..., DockerDesktop], engine: Engine
) -> None:
    desktop, mine = at_work(own_desktop, engine)
    engine.api.pause(mine)
    with pytest.raises(EnvFailure, match="did not answer"):
        desktop.act(Action(action_type="click", x=5, y=5))
    desktop.reset(ScriptedTask())  # on a new one
    desktop.check_health()
    assert mine not in ours(engine)


def test_an_engine_that_stops_answering(
    daemon: DaemonProcess,
    own_desktop: Callable[..., DockerDesktop],
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_module, "CALL_S", 3)
    desktop = own_desktop()
    before = ours(engine)
    desktop.reset(ScriptedTask())
    mine = ours(engine) - before
    daemon.signal(signal.SIGSTOP)
    try:
        with pytest.raises(EnvFailure, match=r"did not answer|was lost"):
            desktop.act(Action(action_type="click", x=5, y=5))
        with pytest.raises(EnvFailure, match=r"did not .* within 3 s"):
            desktop.prepare()
        assert "does not answer; restart it" in told(daemon.address)
        desktop.close()
    finally:
        daemon.signal(signal.SIGCONT)
    await_gone(engine, mine)


def test_a_killed_desktop_is_gone_at_once(
    own_desktop: Callable[..., DockerDesktop], engine: Engine
) -> None:
    desktop = own_desktop()
    before = ours(engine)
    desktop.reset(ScriptedTask())
    mine = ours(engine) - before
    failed: list[EnvFailure] = []

    def act() -> None:
        try:
            desktop.act(Action(action_type="wait", seconds=60))
        except EnvFailure as e:
            failed.append(e)

    thread = threading.Thread(target=act)
    thread.start()
    desktop.kill()
    thread.join(GONE_S)
    assert failed
    await_gone(engine, mine)


def test_a_driver_killed_takes_its_containers_along_and_no_others(
    daemon: DaemonProcess, own_desktop: Callable[..., DockerDesktop], engine: Engine
) -> None:
    desktop = own_desktop()
    desktop.reset(ScriptedTask())
    with other_driver(daemon) as (other, theirs):
        assert theirs in ours(engine)
        container.sweep(engine)
        desktop.close()
        assert theirs in ours(engine)
        assert ask(other) == "healthy"
        mine = own_desktop()
        mine.reset(ScriptedTask())
        other.kill()
        await_gone(engine, {theirs})
        mine.check_health()


@contextmanager
def other_driver(daemon: DaemonProcess) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.desktop.docker.drive", daemon.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("check\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_what_a_killed_driver_never_started_is_swept(
    daemon: DaemonProcess, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine.api.create_container(image.reference(), labels={image.LABEL: "container"})
    strange = engine.api.create_container(image.reference(), labels={"someone": "else"})
    assert made["Id"] not in container.sweep(engine)  # it may be about to start
    monkeypatch.setattr(container, "GRACE_S", -60.0)
    assert made["Id"] in container.sweep(engine)
    assert made["Id"] not in ours(engine)
    engine.api.inspect_container(strange["Id"])
    engine.api.remove_container(strange["Id"])
