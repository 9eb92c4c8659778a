"""The operator's way into a desktop."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from legato.desktop.actions import Type
from legato.desktop.contract import Machine
from legato.desktop.local import LocalDesktop
from legato.errors import EnvFailure, FileTooLarge
from tests.desktop.local.conftest import ScriptedTask
from tests.desktop.socket_server import SocketServer

pytestmark = pytest.mark.desktop


def test_a_command_runs_as_the_agents_user(machine: Machine) -> None:
    done = machine.run(
        ["sh", "-c", 'echo "$HOME $X $(pwd) $(id -u)"; echo bad >&2; exit 3'],
        env={"X": "1"},
        cwd="/tmp",
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "/home/user 1 /tmp 1000\n", "bad\n")


def test_a_commands_output_is_cut_at_a_mebibyte(machine: Machine) -> None:
    done = machine.run(["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"])
    assert done.returncode == 0
    assert done.stdout == "x" * 2**20


def test_a_command_is_over_when_it_ends_though_a_child_lives_on(machine: Machine) -> None:
    started = time.monotonic()
    done = machine.run(["sh", "-c", "sleep 60 & echo done"], timeout=30)
    assert done.stdout == "done\n"
    assert time.monotonic() - started < 10


def test_a_command_past_its_time_is_killed_with_its_children(machine: Machine) -> None:
    with pytest.raises(EnvFailure, match=r"did not end within 0\.5 s"):
        machine.run(["sh", "-c", "sleep 61 & sleep 61"], timeout=0.5)
    assert machine.run(["pgrep", "-f", "sleep 61"]).stdout == ""


def test_no_such_program(machine: Machine) -> None:
    with pytest.raises(EnvFailure, match="no-such-program"):
        machine.run(["no-such-program"])
    with pytest.raises(EnvFailure, match="no-such-program"):
        machine.launch(["no-such-program"])


def test_a_launch_waits_for_the_window(machine: Machine) -> None:
    pid = machine.launch(["mousepad"])
    assert [w.wm_class for w in machine.windows()] == ["Mousepad"]
    assert machine.windows()[0].pid == pid


def test_a_launch_that_fails_says_why_at_once(machine: Machine) -> None:
    started = time.monotonic()
    with pytest.raises(EnvFailure, match=r"ended with 7 .*: no luck"):
        machine.launch(["sh", "-c", "echo no luck >&2; exit 7"], timeout=60)
    assert time.monotonic() - started < 10


def test_a_launch_without_a_window(machine: Machine) -> None:
    with pytest.raises(EnvFailure, match=r"no new window within 0\.3 s"):
        machine.launch(["sleep", "62"], timeout=0.3)
    machine.launch(["sleep", "63"], wait_window=False)
    assert machine.run(["pgrep", "-f", "sleep 63"]).stdout


def test_windows_are_activated_and_closed(machine: Machine) -> None:
    machine.launch(["mousepad"])
    machine.launch(["pcmanfm"])
    first, second = machine.windows()
    assert (first.wm_class, second.wm_class) == ("Mousepad", "Pcmanfm")
    assert 0 < first.width <= machine.screen[0]
    machine.activate_window(first.id)
    assert machine.close_window(second.id)
    assert [w.id for w in machine.windows()] == [first.id]
    with pytest.raises(EnvFailure, match="no window"):
        machine.close_window(second.id)


def test_a_window_may_ask_back_and_none_closes_once_frozen(machine: Machine) -> None:
    machine.launch(["mousepad"])
    window = machine.windows()[0]
    machine.input(Type(text="unsaved"))
    deadline = time.monotonic() + 30
    while not machine.windows()[0].title.startswith("*") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert machine.close_window(window.id)
    assert machine.windows()[0].id == window.id
    assert len(machine.windows()) == 2
    machine.freeze()
    assert not machine.close_window(window.id)


def test_files_go_in_and_out(machine: Machine) -> None:
    data = os.urandom(3 * 2**20)
    machine.write_file("/home/user/a/b/c.bin", data, mode=0o600)
    assert machine.read_file("/home/user/a/b/c.bin") == data
    assert machine.run(["stat", "-c", "%a %U", "/home/user/a/b/c.bin"]).stdout == "600 user\n"
    machine.write_file("/home/user/a/b/c.bin", b"")
    assert machine.read_file("/home/user/a/b/c.bin") == b""
    assert machine.read_file("/home/user/nothing") is None
    assert machine.read_file("/home/user/a") is None


def test_writing_replaces_a_link_instead_of_following_it(machine: Machine) -> None:
    machine.run(["sh", "-c", "echo kept > target; ln -s target link"])
    machine.write_file("/home/user/link", b"new")
    assert machine.read_file("/home/user/target") == b"kept\n"
    assert machine.read_file("/home/user/link") == b"new"


HOSTILE = """
mkfifo pipe; ln -s /etc/passwd out; ln -s / root; ln -s loop loop; ln -s inside in
echo fine > inside; mkdir empty locked; chmod 000 locked; head -c 3000000 /dev/zero > big
python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('sock')"
ln -s /tmp tmp; echo leak > /tmp/leak; touch "$(printf 'bad\\377name')"
"""


def test_a_hostile_home_can_be_read_safely(machine: Machine) -> None:
    home = machine.home
    assert machine.run(["sh", "-c", HOSTILE], timeout=20).returncode == 0
    for path in ("pipe", "sock", "loop", "out", "root/etc/passwd", "tmp/leak", "locked/x", "empty"):
        assert machine.read_file(f"{home}/{path}") is None, path
    assert machine.read_file(f"{home}/in") == b"fine\n"
    assert machine.read_file("/tmp/leak") == b"leak\n"
    with pytest.raises(FileTooLarge):
        machine.read_file(f"{home}/big", limit=2_999_999)
    assert machine.read_file(f"{home}/big", limit=3_000_000) == bytes(3_000_000)
    with pytest.raises(FileTooLarge):
        machine.read_file("/dev/shm/../../home/user/big", limit=10)
    listed = machine.list_files(home)
    expected = {"big", "in", "inside", "loop", "out", "root", "tmp", "empty/", "locked/"}
    assert expected <= set(listed)
    assert not {"pipe", "sock"} & set(listed)
    assert not [name for name in listed if name.startswith(("root/", "tmp/"))]


def test_too_many_files_are_told_apart(machine: Machine) -> None:
    machine.run(["sh", "-c", "mkdir many; cd many; seq 1 100100 | xargs touch"], timeout=60)
    with pytest.raises(FileTooLarge):
        machine.list_files(machine.home)


def _answer_in_capitals(connection: socket.socket) -> None:
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    connection.sendall(data.upper())


@pytest.fixture
def echo(machine: Machine) -> Iterator[None]:
    server = SocketServer(machine.scratch / "echo", _answer_in_capitals)
    machine.expose(7000, machine.scratch / "echo")
    yield
    server.close()


ASK = """
import socket, sys
s = socket.create_connection(("127.0.0.1", 7000))
s.sendall(b"a" * int(sys.argv[1])); s.shutdown(socket.SHUT_WR)
got = b""
while chunk := s.recv(65536): got += chunk
print(len(got), set(got) <= set(b"A"))
"""


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_an_exposed_server_is_reached(machine: Machine, echo: None, size: int) -> None:
    done = machine.run(["python3", "-c", ASK, str(size)], timeout=30)
    assert done.stdout == f"{size} True\n", done.stderr


def test_exposing_nothing_fails(machine: Machine) -> None:
    with pytest.raises(EnvFailure, match="no server to expose"):
        machine.expose(7001, machine.scratch / "nothing")


def test_a_taken_port_fails(machine: Machine, echo: None) -> None:
    with pytest.raises(EnvFailure, match="in use"):
        machine.expose(7000, machine.scratch / "echo")


def test_processes_that_wake_each_other_are_frozen_all_the_same(
    machine: Machine, desktop: LocalDesktop
) -> None:
    wake = "import os, signal\nwhile True: os.kill(-1, signal.SIGCONT)"
    for _ in range(6):
        machine.launch(["/usr/bin/python3", "-c", wake], wait_window=False)
    machine.freeze()
    for _ in range(5):
        states = machine.run(["ps", "-eo", "state=,args="]).stdout.split("\n")
        wakers = [line for line in states if "SIGCONT" in line]
        assert len(wakers) == 6
        assert all(line.startswith("T") for line in wakers), wakers


def test_a_frozen_machine_stands_still_and_can_still_be_read(
    machine: Machine, desktop: LocalDesktop
) -> None:
    script = "i=0; while :; do i=$((i+1)); echo $i > n; (kill -CONT -1 2>/dev/null); done"
    machine.launch(["sh", "-c", script], wait_window=False)
    machine.launch(["xterm"])
    deadline = time.monotonic() + 10
    while machine.read_file("/home/user/n") is None and time.monotonic() < deadline:
        time.sleep(0.02)
    machine.freeze()
    first = machine.read_file("/home/user/n")
    states = machine.run(["ps", "-eo", "state=,comm="]).stdout.split("\n")
    running = [line.split()[1] for line in states if line and line[0] not in "TZ"]
    assert set(running) <= {"python3", "Xvfb", "openbox", "ps"}
    time.sleep(0.2)
    assert machine.read_file("/home/user/n") == first
    assert len(machine.windows()) == 1
    assert desktop.observe().width == 1280


POST = """
import socket, time
with socket.create_connection(("127.0.0.1", 7000)) as s:
    s.sendall(b"save")
    time.sleep(1000)
"""


def test_a_freeze_ends_when_what_was_asked_before_is_answered(machine: Machine) -> None:
    """A server that takes its time has saved before anyone grades."""
    asked, saved = threading.Event(), threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(machine.scratch / "slow"))
        listener.listen()
        listener.settimeout(30.0)
        machine.expose(7000, machine.scratch / "slow")

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                asked.set()
                time.sleep(0.5)
                saved.set()
                connection.sendall(b"done")

        serving = threading.Thread(target=serve)
        serving.start()
        machine.launch(["python3", "-c", POST], wait_window=False)
        assert asked.wait(30.0)
        machine.freeze()
        assert saved.is_set()
        serving.join(30.0)


GRAB = """
import signal, socket, struct, time
x = socket.socket(socket.AF_UNIX)
x.connect("/tmp/.X11-unix/X0")
x.sendall(struct.pack("<BxHHHHxx", 0x6C, 11, 0, 0, 0))
head = x.recv(8, socket.MSG_WAITALL)
x.recv(4 * struct.unpack_from("<H", head, 6)[0], socket.MSG_WAITALL)
request = lambda code: x.sendall(struct.pack("<BxH", code, 1))
signal.signal(signal.SIGCONT, lambda *_: request(37))  # UngrabServer
request(36)  # GrabServer
request(43)  # GetInputFocus, which has a reply
x.recv(32, socket.MSG_WAITALL)
open("grabbed", "w").close()
while True:
    time.sleep(1000)
"""


def test_a_program_that_has_the_server_for_itself_lets_go_before_it_is_stopped(
    machine: Machine,
) -> None:
    """This one does when it is let go on; programs that open a window do by themselves."""
    machine.launch(["python3", "-c", GRAB], wait_window=False)
    deadline = time.monotonic() + 30
    while machine.read_file("/home/user/grabbed") is None and time.monotonic() < deadline:
        time.sleep(0.02)
    machine.freeze()
    assert machine.windows() == []
    states = machine.run(["ps", "-C", "python3", "-o", "state=,args="]).stdout.split("\n")
    assert [line[0] for line in states if "GrabServer" in line] == ["T"]


def test_what_an_episode_owns_is_closed_last_first(desktop: LocalDesktop) -> None:
    closed: list[str] = []

    class Resource:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            closed.append(self.name)
            if self.name == "bad":
                raise RuntimeError("cannot")

    def setup(machine: Machine) -> None:
        for name in ("first", "bad", "last"):
            machine.own(Resource(name))
        (machine.scratch / "left").write_text("x")

    task = ScriptedTask(setup)
    desktop.reset(task)
    assert closed == []
    desktop.reset(ScriptedTask())
    assert closed == ["last", "bad", "first"]
    assert list(task.machine.scratch.iterdir()) == []


def test_a_web_server_is_reached_by_name(machine: Machine) -> None:
    """The way a task's own web app is served: HTTP over the exposed socket."""
    from tests.desktop.local.page import PORT, EventPage

    machine.own(page := EventPage(machine.scratch / "page"))
    machine.expose(PORT, machine.scratch / "page")
    code = (
        "import urllib.request as u;"
        f'u.urlopen(\'http://localhost:{PORT}/event\', data=b\'{{"type":"x","n":0}}\');'
        f"print(len(u.urlopen('http://127.0.0.1:{PORT}/').read()))"
    )
    done = machine.run(["python3", "-c", code], timeout=20)
    assert int(done.stdout) > 0, done.stderr
    assert page.events == [{"type": "x", "n": 0}]
