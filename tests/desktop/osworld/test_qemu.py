"""The QEMU provider on a real guest in software emulation: boot, ``loadvm``, ports, and the end."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from legato.desktop.osworld.worker import qemu
from legato.desktop.osworld.worker.faults import Fault
from tests.conftest import REPO
from tests.desktop.osworld.virtual_machine import Guest, tiny

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def guest() -> Guest:
    return tiny(REPO / ".cache" / "osworld-guest")


@pytest.fixture
def provider(guest: Guest, tmp_path: Path) -> Iterator[qemu.QemuProvider]:
    made = qemu.QemuProvider(options(guest, tmp_path), lambda what: None)
    yield made
    made.stop_emulator("")


def options(guest: Guest, folder: Path) -> dict[str, Any]:
    return {
        "run_dir": str(folder),
        "acceleration": "tcg",
        "cpus": 1,
        "memory_mib": 256,
        "qemu_args": list(guest.arguments),
        "boot_timeout": 400.0,
        "client_password": "password",
        "settle": lambda server: None,
    }


def mark(provider: qemu.QemuProvider, name: str) -> list[str]:
    """Leave a file in the guest's memory; the names of all that are there."""
    port = provider.get_ip_address("").split(":")[1]
    reply = requests.get(f"http://localhost:{port}/cgi-bin/mark?{name}", timeout=120)
    return reply.text.split()


def test_loadvm_undoes_what_the_guest_did_and_the_end_is_told(
    provider: qemu.QemuProvider, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = guest.disk.read_bytes()
    taken = iter([taken_ports()])
    free = qemu._free_ports
    monkeypatch.setattr(qemu, "_free_ports", lambda n: next(taken, None) or free(n))
    provider.start_emulator(str(guest.disk), True)
    assert mark(provider, "first") == ["first"]
    assert mark(provider, "second") == ["first", "second"]
    process = provider._process
    provider.revert_to_snapshot(str(guest.disk), "any")
    provider.start_emulator(str(guest.disk), True)  # as DesktopEnv does after a revert
    assert provider._process is process
    assert mark(provider, "third") == ["third"]
    assert guest.disk.read_bytes() == before
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(qemu, "MONITOR_S", 1.0)
    with pytest.raises(Fault, match="QEMU's monitor does not answer: timed out"):
        provider.revert_to_snapshot(str(guest.disk), "any")
    process.kill()
    process.wait(30)
    with pytest.raises(Fault, match="QEMU ended before it was reverted"):
        provider.revert_to_snapshot(str(guest.disk), "any")


def taken_ports() -> tuple[int, ...]:
    """A port that somebody listens on, which QEMU must get over."""
    holder = socket.create_server(("127.0.0.1", 0))
    _HELD.append(holder)
    return (holder.getsockname()[1], *qemu._free_ports(3))


_HELD: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    yield
    while _HELD:
        _HELD.pop().close()


def test_an_image_that_is_none(provider: qemu.QemuProvider, tmp_path: Path) -> None:
    (tmp_path / "image").write_text("no disk")
    with pytest.raises(Fault, match=r"image is no usable qcow2 image"):
        provider.start_emulator(str(tmp_path / "image"), True)


def test_a_full_disk(guest: Guest, tmp_path: Path) -> None:
    wanting = options(guest, tmp_path) | {"memory_mib": 2**40}
    with pytest.raises(Fault, match=r"MiB free and the machine needs .* set TMPDIR"):
        qemu.QemuProvider(wanting, lambda what: None).start_emulator(str(guest.disk), True)


def test_qemu_that_does_not_start(guest: Guest, tmp_path: Path) -> None:
    """QEMU's own word on why it does not start is passed on."""
    wanting = options(guest, tmp_path) | {"qemu_args": ["-machine", "no-such-machine"]}
    with pytest.raises(Fault, match=r"QEMU did not start: .*unsupported machine type"):
        qemu.QemuProvider(wanting, lambda what: None).start_emulator(str(guest.disk), True)
