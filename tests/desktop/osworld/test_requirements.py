"""What a machine or a request lacks is told in one line before anything starts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.contract import DesktopOptions
from legato.desktop.osworld import desktop as module
from legato.desktop.osworld.desktop import make_desktop
from legato.desktop.osworld.environment import build
from legato.errors import ConfigError
from tests.desktop.osworld.engine import IMAGE, Engine

Options = Callable[..., DesktopOptions]


@pytest.fixture(autouse=True)
def _ask_anew() -> None:
    module._ask_worker.cache_clear()


def refused(options: DesktopOptions) -> str:
    with pytest.raises(ConfigError) as refusal:
        make_desktop(options, 0)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"osworld_path": None}, "needs --osworld with the path of a checkout"),
        ({"osworld_path": "/nonexistent"}, "/nonexistent is no OSWorld checkout"),
        ({"vm_image": "/nonexistent.qcow2"}, "there is no virtual machine /nonexistent.qcow2"),
        ({"provider": "vmware"}, "osworld desktop option provider"),
        ({"memory": 1}, "osworld desktop option memory"),
        (
            {"environment": "/nonexistent"},
            "run `python -m legato.rl osworld-setup --path /nonexistent` once",
        ),
    ],
)
def test_a_wrong_option(options: Options, extra: dict[str, Any], reason: str) -> None:
    assert reason in refused(options(**extra))


def test_no_kvm(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda p, *a: p != "/dev/kvm" and allowed(p, *a))
    assert "/dev/kvm cannot be used" in refused(options(acceleration="kvm"))


def test_no_engine(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    assert "finds no docker engine: there is no socket" in refused(options())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a socket somebody else's")
def test_an_engine_without_permission(options: Options, tmp_path: Path) -> None:
    """As root without the right to pass over permissions, in a process of its own."""
    address = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as somebodys:
        somebodys.bind(str(address))
        somebodys.listen()
        os.chown(address, 65534, 65534)
        address.chmod(0o600)
        rights = "-dac_override,-dac_read_search"
        argv = ["setpriv", "--bounding-set", rights, "--inh-caps", rights, sys.executable, "-c"]
        done = subprocess.run(
            [*argv, MAKE, json.dumps(asdict(options()))],
            env=os.environ | {"DOCKER_HOST": f"unix://{address}"},
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert "permission denied on its socket; start one" in done.stdout, done.stderr[-2000:]


MAKE = """
import json, sys
from legato.desktop.contract import DesktopOptions
from legato.desktop.osworld.desktop import make_desktop
from legato.errors import ConfigError
try:
    make_desktop(DesktopOptions(**json.loads(sys.argv[1])), 0)
except ConfigError as e:
    print(e)
"""


def test_no_qemu(options: Options, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refused(options(provider="qemu"))
    assert said.startswith("the provider qemu needs qemu-system-x86_64: install QEMU")


@pytest.mark.desktop
def test_no_image(options: Options, engine: Engine) -> None:
    engine.docker("tag", IMAGE, "kept")
    engine.docker("rmi", IMAGE)
    try:
        assert f"run `docker pull {IMAGE}` once" in refused(options())
    finally:
        engine.docker("tag", "kept", IMAGE)
        engine.docker("rmi", "kept")


def test_a_build_that_cannot_have_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{tmp_path}/index")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(ConfigError, match=r"installing desktop-env\S+ failed: ERROR"):
        build(tmp_path / "environment")
    assert not (tmp_path / "environment" / "legato-osworld.ready").exists()


def test_a_build_that_takes_too_long(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="took too long"):
        build(tmp_path / "environment", deadline=0.01)


def test_a_place_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(ConfigError, match="neither empty nor a virtual environment"):
        build(tmp_path / "mine")
    assert (tmp_path / "mine" / "file").exists()
