"""A container desktop at work: the same contract as a local one, without shared memory."""

from __future__ import annotations

import hashlib
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from legato.desktop.actions import Action
from legato.desktop.contract import Machine, Screenshot
from legato.desktop.docker.desktop import DockerDesktop
from legato.errors import ActionError, EnvFailure
from tests.desktop.local.conftest import ScriptedTask

pytestmark = pytest.mark.desktop

NOTE = "/home/user/note.txt"
TEXT = "Zażółć €5 😀 ~`{} 日本語"


def test_what_is_typed_is_saved_and_seen(desktop: DockerDesktop, machine: Machine) -> None:
    machine.write_file(NOTE, b"")
    machine.launch(["mousepad", NOTE], timeout=60)
    assert desktop.wait_after_reset().reason == "idle"
    before = desktop.observe()
    assert desktop.act(Action(action_type="type", text=TEXT)).ready.reason == "idle"
    after = desktop.observe()
    assert (before.width, before.height) == (1280, 720)
    assert before.sha256 != after.sha256
    desktop.act(Action(action_type="key", key="ctrl+s"))
    assert machine.read_file(NOTE) == TEXT.encode()


def test_the_screen_told_is_the_screen_that_is(desktop: DockerDesktop, machine: Machine) -> None:
    """Changes add up: after many, the copy equals one that a new session is told whole."""
    machine.launch(["mousepad"], timeout=60)
    desktop.wait_after_reset()
    for x in (400, 700, 500):
        desktop.act(Action(action_type="drag", x=600, y=98, to_x=x, to_y=200))
        desktop.act(Action(action_type="drag", x=x, y=200, to_x=600, to_y=98))
    desktop.act(Action(action_type="move", x=5, y=5))
    told = desktop.observe()
    assert np.array_equal(told.rgb, desktop.observe().rgb)
    # The pointer is in the screen's memory, but not in what the server shows its clients.
    assert np.array_equal(told.rgb[40:], seen_by_a_client(desktop)[40:])


def seen_by_a_client(desktop: DockerDesktop) -> np.ndarray:
    assert desktop._session is not None
    x = desktop._session.display.x
    z_pixmap, all_planes = 2, 0xFFFFFFFF
    image = x.conn.core.GetImage(z_pixmap, x.root, 0, 0, x.width, x.height, all_planes).reply()
    raw = np.frombuffer(bytes(image.data.raw), np.uint8)
    return raw.reshape(x.height, x.width, 4)[..., 2::-1]


def test_screenshots_are_of_now(desktop: DockerDesktop, machine: Machine) -> None:
    empty = desktop.observe()
    machine.launch(["mousepad"], timeout=60)
    assert not np.array_equal(empty.rgb, desktop.observe().rgb)


def test_a_spinner_does_not_hold_the_wait_up(desktop: DockerDesktop, machine: Machine) -> None:
    page = (
        "<style>@keyframes t{to{transform:rotate(1turn)}}"
        "div{width:60px;height:60px;border:9px solid red;border-left-color:blue;"
        "border-radius:50%;animation:t 1s linear infinite}</style><div></div>"
    )
    machine.write_file("/home/user/page.html", page.encode())
    machine.launch(["chromium", "file:///home/user/page.html"], timeout=90)
    assert desktop.wait_after_reset().reason == "animated"


def test_a_server_of_the_driver_is_reached_and_nothing_else(
    machine: Machine, tmp_path: Path
) -> None:
    body = bytes(range(256)) * 8192  # 2 MiB: more than one window of the stream
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "server"))
    server.listen()

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + body)

    thread = threading.Thread(target=serve)
    thread.start()
    machine.expose(8123, tmp_path / "server")
    fetch = (
        "import hashlib, urllib.request as u;"
        "print(hashlib.sha256(u.urlopen('http://127.0.0.1:8123/', timeout=30).read()).hexdigest())"
    )
    done = machine.run(["python3", "-c", fetch])
    thread.join()
    server.close()
    assert done.stdout.strip() == hashlib.sha256(body).hexdigest(), done.stderr
    with pytest.raises(EnvFailure, match="Address already in use"):
        machine.expose(8123, tmp_path / "server")
    interfaces = machine.run(["ls", "/sys/class/net"]).stdout.split()
    assert interfaces == ["lo"]


def test_files_of_any_size_and_commands(machine: Machine) -> None:
    data = np.random.default_rng(7).bytes(20 * 2**20)
    machine.write_file("/home/user/a/b/big.bin", data)
    assert machine.read_file("/home/user/a/b/big.bin") == data
    assert machine.list_files("/home/user/a") == ["b/big.bin"]
    done = machine.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    with pytest.raises(EnvFailure, match=r"did not end within 0\.5 s"):
        machine.run(["sleep", "60"], timeout=0.5)
    assert machine.run(["true"]).returncode == 0


def test_a_reset_is_clean_and_keeps_the_container(desktop: DockerDesktop, machine: Machine) -> None:
    clean = screenshot_of_clean(desktop)
    kept = desktop._box
    machine = reset(desktop)
    machine.write_file("/home/user/left.txt", b"x")
    machine.run(["sh", "-c", "echo x > /tmp/left; echo x > /dev/shm/left; mkdir /home/user/.x"])
    machine.run(["touch", "/dev/mqueue/left"])
    machine.launch(["mousepad"], timeout=60)
    again = screenshot_of_clean(desktop)
    assert desktop._box is kept
    assert again.sha256 == clean.sha256
    machine = reset(desktop)
    assert "left.txt" not in machine.list_files("/home/user")
    assert machine.run(["ls", "/dev/shm", "/dev/mqueue"]).stdout == "/dev/mqueue:\n\n/dev/shm:\n"
    assert machine.run(["pgrep", "mousepad"]).returncode == 1


def screenshot_of_clean(desktop: DockerDesktop) -> Screenshot:
    desktop.prepare()
    return desktop.observe()


def reset(desktop: DockerDesktop) -> Machine:
    task = ScriptedTask()
    desktop.reset(task)
    return task.machine


def test_an_invalid_action_leaves_the_desktop_good(desktop: DockerDesktop) -> None:
    desktop.reset(ScriptedTask())
    with pytest.raises(ActionError):
        desktop.act(Action(action_type="key", key="no_such_key"))
    desktop.check_health()
