"""The lockdown: every step holds on a real desktop, and a miss of any keeps it from being used."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.contract import Completed, DesktopOptions, Machine, Score
from legato.desktop.guest import session, view
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
                view.view_command("/home/user", "/opt/legato", 3, ["true"])


def test_a_session_with_more_rights_than_an_agents_is_refused() -> None:
    """The tests' own process has no NoNewPrivs, and may be root: either is too much."""
    with pytest.raises(view.NotLocked, match="would start"):
        view.view_command("/home/user", "/opt/legato", 3, ["true"])


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
