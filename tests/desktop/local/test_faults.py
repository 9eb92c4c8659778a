"""A desktop that dies or hangs, in any call: an ``EnvFailure`` soon, and a good desktop after."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from legato.desktop.actions import Action
from legato.desktop.contract import Machine
from legato.desktop.guest import client
from legato.desktop.local import LocalDesktop
from legato.desktop.x11 import connection
from legato.errors import EnvFailure
from tests.desktop.local.conftest import ScriptedTask

pytestmark = pytest.mark.desktop

SOON_S = 8.0
"""Generous: the machine that runs this may be loaded."""


@pytest.fixture
def victim(own_desktop: Callable[..., LocalDesktop]) -> LocalDesktop:
    desktop = own_desktop()
    desktop.reset(ScriptedTask())
    return desktop


def machine_of(desktop: LocalDesktop) -> Machine:
    task = desktop._task
    assert isinstance(task, ScriptedTask)
    return task.machine


def first_pid(desktop: LocalDesktop) -> int:
    assert desktop._box is not None
    return desktop._box.first_pid


def inside(first: int) -> dict[str, int]:
    """Host pids of all processes below the guest program, by name."""
    found: dict[str, int] = {}
    waiting = [first]
    while waiting:
        pid = waiting.pop()
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found[Path(f"/proc/{child}/comm").read_text().strip()] = int(child)
            waiting.append(int(child))
    return found


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def recovers(desktop: LocalDesktop) -> None:
    desktop.prepare()
    desktop.check_health()
    task = ScriptedTask()
    desktop.reset(task)
    assert task.machine.run(["echo", "well"]).stdout == "well\n"


CALLS: dict[str, Callable[[LocalDesktop], object]] = {
    "observe": lambda d: d.observe(),
    "act": lambda d: d.act(Action(action_type="click", x=5, y=5)),
    "wait_after_reset": lambda d: d.wait_after_reset(),
    "check_health": lambda d: d.check_health(),
    "run": lambda d: machine_of(d).run(["true"], timeout=0.2),
    "launch": lambda d: machine_of(d).launch(["mousepad"], timeout=1),
    "windows": lambda d: machine_of(d).windows(),
    "read_file": lambda d: machine_of(d).read_file("/etc/passwd"),
    "write_file": lambda d: machine_of(d).write_file("/tmp/x", b"x"),
    "list_files": lambda d: machine_of(d).list_files("/tmp"),
    "freeze": lambda d: machine_of(d).freeze(),
}
NEED_GUEST = set(CALLS) - {"observe", "windows"}
NEED_X = {"observe", "act", "wait_after_reset", "check_health", "launch", "windows"}


@pytest.mark.parametrize("name", sorted(NEED_GUEST))
def test_every_call_fails_when_the_sandbox_was_killed(victim: LocalDesktop, name: str) -> None:
    pid = first_pid(victim)
    os.kill(pid, signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(EnvFailure):
        CALLS[name](victim)
    assert time.monotonic() - started < SOON_S
    recovers(victim)


def test_the_x_server_was_killed(victim: LocalDesktop) -> None:
    os.kill(inside(first_pid(victim))["Xvfb"], signal.SIGKILL)
    with pytest.raises(EnvFailure):
        victim.observe()
    recovers(victim)


def test_the_window_manager_was_killed(victim: LocalDesktop, quick: None) -> None:
    os.kill(inside(first_pid(victim))["openbox"], signal.SIGKILL)
    with pytest.raises(EnvFailure, match="window manager"):
        victim.check_health()
    recovers(victim)


@pytest.mark.parametrize(
    ("process", "name"),
    [("openbox", "the window manager"), ("tint2", "the panel"), ("dbus-daemon", "the message bus")],
)
@pytest.mark.parametrize(
    "call",
    [lambda d: d.act(Action(action_type="wait", seconds=0)), lambda d: d.evaluate()],
    ids=["act", "evaluate"],
)
def test_what_the_agent_cannot_end_is_no_verdict_when_it_ends(
    victim: LocalDesktop, process: str, name: str, call: Callable[[LocalDesktop], object]
) -> None:
    pid = inside(first_pid(victim))[process]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: is_gone(pid))
    with pytest.raises(EnvFailure, match=f"{name} ended, and not by the agent's doing"):
        call(victim)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def end(desktop: LocalDesktop, pid: int, number: int) -> None:
    """Send a signal to a launched program, by its pid in the sandbox, and wait for its end."""
    machine = machine_of(desktop)
    machine.run(["kill", f"-{number}", str(pid)])
    wait_for(lambda: machine.launched(pid)[0] is not None)  # type: ignore[attr-defined]


LOST = [
    ("chromium", signal.SIGKILL, True, True),
    ("chromium", signal.SIGSEGV, True, True),
    ("mousepad", signal.SIGKILL, True, True),
    ("mousepad", signal.SIGSEGV, True, False),
    ("mousepad", signal.SIGKILL, False, False),
]
"""Program, signal, whether the desktop is locked, and whether that was none of the agent's doing:
who has a terminal can kill, and many a key crashes an editor."""


@pytest.mark.parametrize(("program", "number", "locked", "lost"), LOST)
def test_a_program_that_was_killed(
    own_desktop: Callable[..., LocalDesktop],
    program: str,
    number: signal.Signals,
    locked: bool,
    lost: bool,
) -> None:
    desktop = own_desktop()
    pids: list[int] = []
    task = ScriptedTask(lambda machine: pids.append(machine.launch([program])))
    task.lockdown = locked  # type: ignore[attr-defined]
    desktop.reset(task)
    desktop.wait_after_reset()
    end(desktop, pids[0], number)
    if lost:
        with pytest.raises(EnvFailure, match=f"{program} ended, and not by the agent's doing"):
            desktop.evaluate()
    else:
        assert desktop.evaluate().reward == 1.0


def test_a_program_that_the_agent_closes_is_judged(
    own_desktop: Callable[..., LocalDesktop],
) -> None:
    desktop = own_desktop()
    pids: list[int] = []
    task = ScriptedTask(lambda machine: pids.append(machine.launch(["chromium"])))
    task.lockdown = True  # type: ignore[attr-defined]
    desktop.reset(task)
    desktop.wait_after_reset()
    desktop.act(Action(action_type="key", key="alt+F4"))
    wait_for(lambda: task.machine.launched(pids[0])[0] is not None)  # type: ignore[attr-defined]
    desktop.act(Action(action_type="wait", seconds=0))
    assert desktop.evaluate().reward == 1.0


def test_what_set_up_kills_itself_is_not_missed(own_desktop: Callable[..., LocalDesktop]) -> None:
    def setup(machine: Machine) -> None:
        pid = machine.launch(["mousepad"])
        machine.run(["kill", "-9", str(pid)])
        wait_for(lambda: machine.launched(pid)[0] is not None)  # type: ignore[attr-defined]

    task = ScriptedTask(setup)
    task.lockdown = True  # type: ignore[attr-defined]
    desktop = own_desktop()
    desktop.reset(task)
    assert desktop.evaluate().reward == 1.0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines of half a second instead of ten."""
    from legato.desktop.x11 import windows

    for module in (client, connection):
        monkeypatch.setattr(module, "REPLY_S", 0.5)
    monkeypatch.setattr(client, "FILE_S", 0.5)
    monkeypatch.setattr(client, "CLEAN_S", 0.5)
    monkeypatch.setattr(windows, "ANSWER_S", 0.5)


@pytest.mark.parametrize("name", sorted(NEED_GUEST))
def test_a_guest_program_that_hangs_fails_every_call(
    victim: LocalDesktop, quick: None, name: str
) -> None:
    os.kill(first_pid(victim), signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(EnvFailure, match=r"did not answer '\w+' in|lost during|showed no"):
        CALLS[name](victim)
    assert time.monotonic() - started < SOON_S


@pytest.mark.parametrize("name", sorted(NEED_X))
def test_an_x_server_that_hangs_fails_every_call(
    victim: LocalDesktop, quick: None, name: str
) -> None:
    os.kill(inside(first_pid(victim))["Xvfb"], signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(EnvFailure, match="X server did not answer"):
        CALLS[name](victim)
    assert time.monotonic() - started < SOON_S


def test_a_hang_during_the_reset(victim: LocalDesktop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "CLEAN_S", 0.5)
    pid = first_pid(victim)
    os.kill(pid, signal.SIGSTOP)
    recovers(victim)
    assert is_gone(pid)


def test_kill_ends_a_boot_that_hangs(
    own_desktop: Callable[..., LocalDesktop],
    in_thread: Callable[[Callable[[], object]], Callable[[], BaseException | None]],
) -> None:
    desktop = own_desktop()
    ended = in_thread(desktop.prepare)
    deadline = time.monotonic() + SOON_S
    while (desktop._box is None or not first_pid(desktop)) and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(first_pid(desktop), signal.SIGSTOP)
    time.sleep(0.2)
    desktop.kill()
    assert isinstance(ended(), EnvFailure)


def test_a_failure_takes_the_machine_along(victim: LocalDesktop) -> None:
    """What failed once is not used again, half broken."""
    pid = first_pid(victim)

    def setup(machine: Machine) -> None:
        raise EnvFailure("the task's own")

    with pytest.raises(EnvFailure, match="the task's own"):
        victim.reset(ScriptedTask(setup))
    assert is_gone(pid)
    with pytest.raises(EnvFailure, match="not running"):
        victim.observe()
    recovers(victim)


@pytest.fixture
def in_thread() -> Iterator[Callable[[Callable[[], object]], Callable[[], BaseException | None]]]:
    """Runs a call in a thread; what it returns waits for the call and gives its exception."""
    threads: list[threading.Thread] = []

    def start(call: Callable[[], object]) -> Callable[[], BaseException | None]:
        raised: list[BaseException] = []

        def target() -> None:
            try:
                call()
            except BaseException as e:
                raised.append(e)

        threads.append(threading.Thread(target=target, daemon=True))
        threads[-1].start()

        def wait() -> BaseException | None:
            threads[-1].join(SOON_S)
            assert not threads[-1].is_alive(), "the call did not end"
            return raised[0] if raised else None

        return wait

    yield start
    for thread in threads:
        thread.join(SOON_S)


KILLED_IN: dict[str, Callable[[LocalDesktop], object]] = {
    "wait": lambda d: d.act(Action(action_type="wait", seconds=50)),
    "type": lambda d: d.act(Action(action_type="type", text="日本" * 5000)),
    "run": lambda d: machine_of(d).run(["sleep", "50"]),
    "launch": lambda d: machine_of(d).launch(["sleep", "50"], timeout=50),
    "setup": lambda d: d.reset(ScriptedTask(lambda m: m.run(["sleep", "50"]) and None)),
}


@pytest.mark.parametrize("name", sorted(KILLED_IN))
def test_kill_ends_a_call_from_another_thread(
    victim: LocalDesktop,
    in_thread: Callable[[Callable[[], object]], Callable[[], BaseException | None]],
    name: str,
) -> None:
    pid = first_pid(victim)
    ended = in_thread(lambda: KILLED_IN[name](victim))
    time.sleep(0.8 if name == "setup" else 0.1)  # into the call
    victim.kill()
    victim.kill()
    assert isinstance(ended(), EnvFailure)
    victim.close()
    assert is_gone(pid)


def test_kill_ends_a_call_that_hangs(
    victim: LocalDesktop,
    in_thread: Callable[[Callable[[], object]], Callable[[], BaseException | None]],
) -> None:
    for stopped in (first_pid(victim), inside(first_pid(victim))["Xvfb"]):
        os.kill(stopped, signal.SIGSTOP)
    ended = in_thread(victim.observe)
    time.sleep(0.2)
    victim.kill()
    assert isinstance(ended(), EnvFailure)


def test_kill_while_it_boots(
    own_desktop: Callable[..., LocalDesktop],
    in_thread: Callable[[Callable[[], object]], Callable[[], BaseException | None]],
) -> None:
    for delay in (0.0, 0.05, 0.15, 0.3):
        desktop = own_desktop()
        ended = in_thread(desktop.prepare)
        time.sleep(delay)
        desktop.kill()
        assert isinstance(ended(), EnvFailure | None)
        with pytest.raises(EnvFailure):
            desktop.prepare()
        with pytest.raises(EnvFailure):
            desktop.observe()
        desktop.close()
        assert desktop._box is None
