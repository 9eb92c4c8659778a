"""Nothing of ours outlives its driver, however that ends. As root and as an ordinary user."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.desktop import rundir
from legato.desktop.local import LocalOptions, keeper
from legato.desktop.local.sandbox import Sandbox

pytestmark = pytest.mark.desktop

REPO = Path(__file__).resolve().parents[3]
SOON_S = 30.0
"""For what takes a moment, on a machine that may be busy."""

USERS = [os.getuid()] + ([1000] if os.getuid() == 0 else [])


class Driver:
    """A driver process with two desktops, and what is known of it."""

    def __init__(self, uid: int, mode: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.desktop.local.drive", str(uid), mode],
            cwd=REPO,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        first = self.hear()
        self.base, self.warden = Path(first["base"]), int(first["warden"])
        self.pids = [self.warden, *descendants(self.warden)]
        assert set(first["pids"]) <= set(self.pids)

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            pytest.fail(f"the driver ended: {self.process.stderr.read()[-2000:]}")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def let_exit(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(SOON_S) == 0

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # a fork of it may live on
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(SOON_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture(params=USERS, ids=lambda uid: "root" if uid == 0 else "user")
def drive(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Driver]]:
    drivers: list[Driver] = []

    def start(mode: str) -> Driver:
        drivers.append(Driver(request.param, mode))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.end()


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def alive(pids: list[int]) -> list[int]:
    left = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            left.append(pid)
    return left


def all_gone(driver: Driver, *, base: bool = True) -> None:
    deadline = time.monotonic() + SOON_S
    while (alive(driver.pids) or (base and driver.base.exists())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(driver.pids) == []
    if base:
        assert not driver.base.exists()
        names = Path("/proc/net/unix").read_text()
        assert str(driver.base) not in names


def test_an_episode(drive: Callable[[str], Driver]) -> None:
    driver = drive("episode")
    heard = driver.hear()
    assert heard["saved"] == "Zażółć"
    assert heard["seccomp"] == "2"
    assert heard["size"] == [1280, 720]
    assert driver.hear() == {"closed": True}
    all_gone(driver)
    assert driver.process.wait(SOON_S) == 0


@pytest.mark.parametrize("mode", ["act", "fork"])
def test_the_driver_is_killed(drive: Callable[[str], Driver], mode: str) -> None:
    driver = drive(mode)
    assert len(driver.pids) >= 2 * 6  # bwrap, guest, Xvfb, bus, openbox, panel
    driver.process.send_signal(signal.SIGKILL)
    all_gone(driver)


def test_the_driver_just_exits(drive: Callable[[str], Driver]) -> None:
    driver = drive("exit")
    driver.let_exit()
    all_gone(driver)


def test_ctrl_c_reaches_the_driver_alone(drive: Callable[[str], Driver]) -> None:
    driver = drive("act")
    os.killpg(driver.process.pid, signal.SIGINT)
    all_gone(driver)


def test_the_warden_is_told_to_end(drive: Callable[[str], Driver]) -> None:
    driver = drive("act")
    os.kill(driver.warden, signal.SIGTERM)
    all_gone(driver)


def test_the_warden_is_killed_and_the_driver_goes_on(drive: Callable[[str], Driver]) -> None:
    driver = drive("outlive")
    os.kill(driver.warden, signal.SIGKILL)
    all_gone(driver, base=False)
    second = driver.hear()
    assert second["base"] != str(driver.base)
    assert driver.hear() == {"closed": True}
    assert not driver.base.exists()  # swept by the new warden's start
    assert not Path(second["base"]).exists()


def test_closing_ends_a_warden_that_was_stopped(drive: Callable[[str], Driver]) -> None:
    driver = drive("stop")
    driver.let_exit()
    assert driver.hear() == {"closed": True}
    all_gone(driver)


def test_both_are_killed_and_the_next_start_sweeps(drive: Callable[[str], Driver]) -> None:
    driver, other = drive("act"), drive("act")
    for pid in (driver.warden, driver.process.pid):
        os.kill(pid, signal.SIGKILL)
    all_gone(driver, base=False)
    assert driver.base.exists()
    third = drive("exit")
    third.let_exit()
    all_gone(third)
    assert not driver.base.exists()
    assert other.base.exists()  # its owner lives
    assert alive(other.pids)


def test_a_sandbox_killed_at_any_moment_of_its_start_leaves_nothing() -> None:
    keep = keeper.acquire()
    try:
        before = naming(keep.base)  # desktops of other tests may share this warden
        assert keep._process.pid in before
        for delay_ms in range(30):
            sandbox = Sandbox(keep, LocalOptions())
            time.sleep(delay_ms / 1000)
            sandbox.kill()
            sandbox.wait_gone()
        until = time.monotonic() + 20  # a busy machine takes its time to bury the dead
        while (left := naming(keep.base) - before) and time.monotonic() < until:
            time.sleep(0.1)
        assert left == set()
        assert keep.alive
    finally:
        keeper.release(keep)


def naming(base: Path) -> set[int]:
    """Processes that have this run directory in their command line."""
    return {
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and str(base).encode() in command_line(entry)
    }


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_a_sweep_kills_a_sandbox_stuck_in_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warden that is killed at the wrong moment leaves one; so does this blocked start."""
    monkeypatch.setattr(rundir, "_parent", lambda: tmp_path)
    base, lock = rundir.create()
    block, unblock = os.pipe()
    info, info_in = os.pipe()
    flags = ["--block-fd", str(block), "--info-fd", str(info_in)]
    stuck = subprocess.Popen(
        ["bwrap", "--ro-bind", "/", "/", *flags, "true", f"{base}/1"], pass_fds=[block, info_in]
    )
    os.close(info_in)
    try:
        assert os.read(info, 1), "before it speaks it may not have its own name yet"
        assert rundir.sweep() == []
        assert stuck.poll() is None
        os.close(lock)
        assert rundir.sweep() == [base]
        assert stuck.wait(SOON_S) == -signal.SIGKILL
    finally:
        stuck.kill()
        stuck.wait()
        for fd in (block, unblock, info):
            os.close(fd)


def test_a_sweep_leaves_what_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rundir, "_parent", lambda: tmp_path)
    base, lock = rundir.create()
    young = tmp_path / f"legato-{os.getuid()}-young"
    young.mkdir()
    foreign = tmp_path / f"legato-{os.getuid() + 1}-0"
    foreign.mkdir()
    target = tmp_path / "precious"
    target.mkdir()
    (tmp_path / f"legato-{os.getuid()}-link").symlink_to(target)
    assert rundir.sweep() == []
    os.close(lock)
    os.utime(young, (0, 0))
    assert set(rundir.sweep()) == {base, young}
    assert foreign.exists()
    assert target.exists()
