"""The lockdown: every step holds on a real desktop, and a miss of any keeps it from being used."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.contract import Completed, DesktopOptions, Machine, Score
from legato.desktop.guest import bundle, execution, probe, session, view
from legato.desktop.local import LocalDesktop, make_desktop
from legato.desktop.lockdown import STEPS, check_lockdown
from legato.errors import EnvFailure, SandboxError
from tests.desktop.socket_server import SocketServer


@dataclass
class Locked:
    """A task that needs a locked desktop; ``spoil`` is its set-up."""

    spoil: Any = lambda machine: None
    lockdown: bool = True
    task_id: str = "locked"
    domain: str = "tests"
    instruction: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    machines: list[Machine] = field(default_factory=list)

    def setup(self, machine: Machine) -> None:
        self.machines.append(machine)
        self.spoil(machine)

    def grade(self, machine: Machine) -> Score:
        return Score(0.0)


@pytest.fixture(scope="module")
def desktop() -> Iterator[LocalDesktop]:
    desktop = make_desktop(DesktopOptions(), 0)
    yield desktop
    desktop.close()


def said(**wrong: str) -> Completed:
    return Completed(0, json.dumps({**dict.fromkeys(STEPS), **wrong}), "")


# --- what a report must say ----------------------------------------------------------------------


def test_a_report_in_which_every_step_holds_passes() -> None:
    check_lockdown(said())


@pytest.mark.parametrize("step", sorted(STEPS))
def test_a_single_step_that_fails_is_a_sandbox_error(step: str) -> None:
    with pytest.raises(SandboxError, match=f"{step}: it is open"):
        check_lockdown(said(**{step: "it is open"}))


@pytest.mark.parametrize("step", sorted(STEPS))
def test_a_step_that_was_not_tried_is_one(step: str) -> None:
    report = dict.fromkeys(STEPS - {step})
    with pytest.raises(SandboxError, match=f"{step}: not tried"):
        check_lockdown(Completed(0, json.dumps(report), ""))


def test_a_program_outside_of_the_view_is_one() -> None:
    with pytest.raises(SandboxError, match="xterm runs with more rights"):
        check_lockdown(said(), ["xterm"])


@pytest.mark.parametrize("output", ["", "{", "[]x", "null", "3"])
def test_a_probe_that_says_nothing_is_one(output: str) -> None:
    with pytest.raises(SandboxError, match="did not answer"):
        check_lockdown(Completed(1, output, "it broke"))


# --- how the view is made ------------------------------------------------------------------------


def test_a_missing_helper_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for helper in ("BWRAP", "NSENTER"):
        with monkeypatch.context() as patched:
            patched.setattr(view, helper, "/usr/bin/no-such-helper")
            with pytest.raises(view.NotLocked, match="no-such-helper is missing"):
                view.view_command("/home/user", "/opt/legato", 3, -1, ["true"])


def test_a_session_with_more_rights_than_an_agents_is_refused() -> None:
    """The tests' own process has no NoNewPrivs, and may be root: either is too much."""
    with pytest.raises(view.NotLocked, match="would start"):
        view.view_command("/home/user", "/opt/legato", 3, -1, ["true"])


def test_a_desktop_that_already_runs_is_refused() -> None:
    running = session.Session.__new__(session.Session)
    running._x = object()  # type: ignore[assignment]
    with pytest.raises(view.NotLocked, match="runs already"):
        running.start(640, 480, 1.0)


def test_only_listed_programs_are_started() -> None:
    with pytest.raises(FileNotFoundError, match="not among the programs of a locked desktop"):
        view.locate(["xterm"])


def test_no_shell_or_interpreter_is_among_the_programs() -> None:
    assert not {"sh", "bash", "python3", "xterm", "perl", "env"} & set(view.PROGRAMS)


# --- on a real desktop ---------------------------------------------------------------------------


@pytest.mark.desktop
def test_every_step_holds_before_set_up_and_after(desktop: LocalDesktop) -> None:
    seen: list[dict[str, Any]] = []

    def look(machine: Any) -> None:
        machine.launch(["mousepad"])
        machine.launch(["pcmanfm"])
        machine.launch(["chromium", "--app=http://127.0.0.1:8321/"])
        seen.append(json.loads(machine._guest.probe([]).stdout))

    task = Locked(look)
    desktop.reset(task)
    assert seen == [dict.fromkeys(STEPS)]
    assert task.machines[0]._guest.outsiders() == []  # type: ignore[attr-defined]


@pytest.mark.desktop
@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        (lambda m: m.run(["sh", "-c", "(xterm >/dev/null 2>&1 &)"]), "runs with more rights"),
        (
            lambda m: m.run(
                ["sh", "-c", "(exec python3 -m http.server 9222 >/dev/null 2>&1 &) ; sleep 1"]
            ),
            "no open ports: ports .9222. are open",
        ),
    ],
    ids=["a program outside the view", "a debugging port"],
)
def test_a_set_up_that_breaks_it_is_not_handed_out(
    spoil: Any, names: str, desktop: LocalDesktop
) -> None:
    with pytest.raises(SandboxError, match=names):
        desktop.reset(Locked(spoil))
    with pytest.raises(EnvFailure, match="not running"):
        desktop.observe()
    desktop.reset(Locked())


CALL = """
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result: sys.exit(os.strerror(ctypes.get_errno()))
wm = subprocess.run(["pgrep", "-x", "openbox"], capture_output=True, text=True).stdout.strip()
for space in [os.open(f"/proc/{wm}/ns/{name}", os.O_RDONLY) for name in ("user", "mnt")]:
    check(libc.setns(space, 0))
"""
LAY_BARE = f"{CALL}\nfor place in sys.argv[1:]: check(libc.umount2(place.encode(), 2))"
COVER = f"{CALL}\nwhat, at = map(str.encode, sys.argv[1:])\ncheck(libc.mount(what, at, 0, 4096, 0))"
ALLOW = f"{CALL}\ncheck(libc.mount(0, sys.argv[1].encode(), 0, 4096 | 32 | int(sys.argv[2]), 0))"
"""Undo a mount; put another file in its place (``MS_BIND``); let its files be executed again."""
FORBIDDEN = {"/usr": "7", "/home/user": "6"}
"""What these mounts forbid besides, and must go on to: flags of ``mount(2)``."""


def in_view(machine: Machine, code: str, *arguments: str) -> None:
    """Run Python with the rights of the one who made the agent's view; it joins that itself."""
    done = machine.run(["python3", "-I", "-S", "-c", code, *arguments])
    assert done.returncode == 0, done.stderr


def covered(name: str, was: str, becomes: str) -> Any:
    """A set-up that shows the session another version of one of its files."""

    def spoil(machine: Machine) -> None:
        file = f"{bundle.STAGED}/session/{name}"
        text = machine.run(["cat", file]).stdout
        assert was in text
        machine.write_file("/tmp/other", text.replace(was, becomes, 1).encode())
        in_view(machine, COVER, "/tmp/other", file)

    return spoil


def bare(*places: str) -> Any:
    return lambda machine: in_view(machine, LAY_BARE, *places)


def executable(place: str) -> Any:
    return lambda machine: in_view(machine, ALLOW, place, FORBIDDEN[place])


def shells(machine: Machine) -> None:
    in_view(machine, LAY_BARE, view.SHOWN_AT)
    executable("/usr")(machine)


@pytest.mark.desktop
@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        (shells, "no commands: can execute sh"),
        (shells, "only allowed programs: /usr/bin holds"),
        (executable("/usr"), "programs: files below /usr can be executed"),
        (executable("/home/user"), "programs: files below /home/user can be executed"),
        (bare(view.FILE_TYPES), f"own: {view.FILE_TYPES} knows launchers"),
        (bare(view.COMMAND_DIALOGS[0]), "own: .*pref.ui asks for commands"),
        (bare(view.COMMAND_DIALOGS[1]), "own: .*exec-file.ui asks for commands"),
        *((bare(f"/home/user/{p}"), f"own: .*{p} can be written") for p in view.USER_SETTINGS),
        *((bare(f"/home/user/{p}"), f"own: .*{p} can be written") for p in view.USER_COMMANDS),
        (bare(view.CHROMIUM_POLICY), "browser policy: it"),
        (bare(view.OFFICE_REGISTRY), "office policy: "),
        (
            covered("openbox.xml", 'name="Close"', 'name="Execute"'),
            "run dialog: a key or a button of the window manager runs",
        ),
        (
            covered("openbox.xml", 'name="Close"', 'name="Restart"'),
            "run dialog: keys of the window manager do Restart",
        ),
        (covered("menu.xml", "mousepad", "xterm"), "programs: a menu starts 'xterm'"),
        (covered("files.desktop", "Exec=pcmanfm", "Exec=sh"), "programs: a menu starts 'sh'"),
    ],
)
def test_a_view_with_a_gap_is_not_handed_out(spoil: Any, names: str, desktop: LocalDesktop) -> None:
    with pytest.raises(SandboxError, match=names):
        desktop.reset(Locked(spoil))


EXECUTABLE = """
import os
for top, folders, files in os.walk("/"):
    if top == "/":
        folders[:] = set(folders) - {"proc", "sys", "dev"}
    for name in files:
        path = f"{top}/{name}"
        if ".so" in name or os.path.islink(path) or not os.path.isfile(path):
            continue
        if not os.access(path, os.X_OK):
            continue
        with open(path, "rb") as f:
            if f.read(4) == b"\\x7fELF":
                print(path)
"""


@pytest.mark.desktop
def test_no_other_file_of_the_machine_can_be_executed(desktop: LocalDesktop) -> None:
    """Nor a script, nor by the loader: of what no list names, nothing is mounted so as to run."""
    task = Locked()
    desktop.reset(task)
    machine = task.machines[0]
    allowed = {view.PROGRAMS[n] for n in view.installed_programs()} | set(execution.HELPERS)
    enter = (
        'exec 7</usr/bin/python3; exec nsenter --target "$(pgrep -x openbox)" --user --mount '
        '--preserve-credentials -- /proc/self/fd/7 -I -S -c "$0"'
    )
    done = machine.run(["sh", "-c", enter, EXECUTABLE], timeout=300.0)
    assert done.returncode == 0, done.stderr
    found = done.stdout.split()
    assert {f"{view.SHOWN_AT}/openbox", view.PROGRAMS["chromium"]} <= set(found)
    others = set(found) - allowed
    assert {file for file in others if file.rsplit("/", 1)[1] not in execution.IN_PLACE} == set()


def test_the_probe_notices_rights_and_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own process has no NoNewPrivs, and may be root; what a desktop cannot be given."""
    tried = probe.Probe("/home/user", "/opt/legato", set())
    assert tried.no_privileges() is not None
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
    assert tried.no_network() == "network interfaces ['eth0']"
    monkeypatch.setattr(os, "open", lambda *_: os.dup(0))
    assert tried.other_programs_out_of_reach() == "/proc/1/environ can be opened"


@pytest.mark.desktop
def test_a_locked_task_starts_only_listed_programs(desktop: LocalDesktop) -> None:
    with pytest.raises(EnvFailure, match="not among the programs of a locked desktop"):
        desktop.reset(Locked(lambda machine: machine.launch(["xterm"])))


@pytest.mark.desktop
def test_a_task_that_needs_none_may_start_anything(desktop: LocalDesktop) -> None:
    task = Locked(lambda machine: machine.launch(["xterm"]), lockdown=False)
    desktop.reset(task)
    assert [w.wm_class for w in task.machines[0].windows()] == ["XTerm"]


@pytest.mark.desktop
def test_a_second_session_beside_a_running_one_is_a_sandbox_error(desktop: LocalDesktop) -> None:
    desktop.reset(Locked())
    assert desktop._guest is not None
    with pytest.raises(SandboxError, match="runs already"):
        desktop._guest.start_session(1280, 720, timeout=10.0)


@pytest.mark.desktop
def test_setup_has_no_sudo_and_the_view_cannot_be_left(desktop: LocalDesktop) -> None:
    task = Locked()
    desktop.reset(task)
    machine = task.machines[0]
    done = machine.run(["sh", "-c", "sudo -n id; su -c id; id -u"])
    assert done.stdout.split()[-1] == "1000"
    assert "uid=0" not in done.stdout
    inside = machine._guest.probe([]).stdout  # type: ignore[attr-defined]
    assert json.loads(inside)["other programs out of reach"] is None


class HalfSent:
    """Serves a page of which the second half comes only when told, on a unix socket."""

    def __init__(self, path: Path) -> None:
        self.finish = threading.Event()
        self._server = SocketServer(path, self._answer)

    def _answer(self, connection: socket.socket) -> None:
        if not connection.recv(65536):
            return
        head = b"HTTP/1.1 200 -\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n"
        connection.sendall(head + b"<title>half</title>" + b"<p>first</p>" * 200)
        self.finish.wait(20.0)
        connection.sendall(b"<p>second</p>")

    def close(self) -> None:
        self.finish.set()
        self._server.close()


@pytest.mark.desktop
def test_the_ready_signals_pipe_works_under_the_policy(desktop: LocalDesktop) -> None:
    """A locked browser's loads are counted, though it has no tools and no port for them.

    The server spoke last, so the relay has nothing to report: only the browser knows.
    """
    pages: list[HalfSent] = []

    def browse(machine: Machine) -> None:
        pages.append(HalfSent(machine.scratch / "page"))
        machine.own(pages[0])
        machine.expose(8321, machine.scratch / "page")
        machine.launch(["chromium", "--app=http://127.0.0.1:8321/"])

    task = Locked(browse)
    desktop.reset(task)
    guest = task.machines[0]._guest  # type: ignore[attr-defined]

    def comes(awaited: bool) -> bool:
        end = time.monotonic() + 20.0
        while bool(guest.pending_requests()) is not awaited and time.monotonic() < end:
            time.sleep(0.02)
        return bool(guest.pending_requests()) is awaited

    assert comes(True)
    pages[0].finish.set()
    assert comes(False)
