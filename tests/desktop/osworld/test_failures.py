"""What OSWorld's code hides is told by whose failure it is, and nothing is left running."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.actions import Click, Type
from legato.desktop.contract import DesktopOptions, Task
from legato.desktop.osworld.desktop import OSWorldDesktop, make_desktop
from legato.desktop.osworld.environment import Environment
from legato.errors import ActionError, EnvFailure, GradeFailure
from legato.tasks.tasks_file import CarriedTask
from tests.desktop.osworld.conftest import Make
from tests.desktop.osworld.engine import IMAGE, Engine
from tests.desktop.osworld.examples import APPEND, NOTES, _rule

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]

NOBODY = "http://127.0.0.1:9/gold.txt"
"""A port that nobody listens on."""
TEXT = {"type": "vm_command_line", "command": ["cat", NOTES]}


def task(**changes: Any) -> Task:
    """A task past the checks that would refuse it."""
    config = {**APPEND.config, "config": [], **changes}
    return CarriedTask("broken", "vs_code", "Do it.", config)


def evaluator(func: Any, result: Any = TEXT, expected: Any = None) -> dict[str, Any]:
    return {"func": func, "result": result, "expected": expected or _rule("x")}


@pytest.mark.parametrize(
    ("graded", "reason"),
    [
        (
            evaluator(
                "compare_text_file",
                {"type": "vm_file", "path": NOTES, "dest": "a"},
                {"type": "cloud_file", "path": NOBODY, "dest": "gold"},
            ),
            f"the evaluator failed: .*{NOBODY} could not be fetched",
        ),
        (
            evaluator("exact_match", {"type": "vm_command_line", "command": ["no-such-program"]}),
            "the evaluator's 0 is no verdict: the guest's /execute could not be fetched: HTTP 500",
        ),
        (
            evaluator("compare_image_text", {"type": "vm_file", "path": NOTES, "dest": "a"}),
            "the package 'easyocr' is not installed",
        ),
        (
            evaluator("exact_match", expected={"type": "rule", "rules": {"unlike": "x"}}),
            "the evaluator failed: ",
        ),
    ],
)
def test_an_evaluator_without_a_verdict(
    shared_desktop: OSWorldDesktop, graded: dict[str, Any], reason: str
) -> None:
    shared_desktop.reset(task(evaluator=graded))
    with pytest.raises(GradeFailure, match=reason):
        shared_desktop.evaluate()
    shared_desktop.check_health()


def test_a_file_that_the_agent_did_not_make_is_its_own_0(shared_desktop: OSWorldDesktop) -> None:
    missing = {"type": "vm_file", "path": "/home/user/none.txt", "dest": "a"}
    there = {"type": "vm_file", "path": NOTES, "dest": "b"}
    shared_desktop.reset(task(evaluator=evaluator("compare_text_file", missing, there)))
    assert shared_desktop.evaluate().reward == 0.0


def test_what_pyautogui_would_leave_out_is_told_to_the_agent(
    shared_desktop: OSWorldDesktop,
) -> None:
    shared_desktop.reset(task())
    with pytest.raises(ActionError, match="can type ASCII only, not 'é'"):
        shared_desktop.act(Type(text="café"))
    with pytest.raises(ActionError, match="outside the 1280x720 screen"):
        shared_desktop.act(Click(x=1280, y=5))
    shared_desktop.check_health()


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (
            {"type": "launch", "parameters": {"command": ["no-such-program"]}},
            "the guest's /setup/launch could not be fetched: HTTP 500",
        ),
        (
            {"type": "download", "parameters": {"files": [{"url": NOBODY, "path": "/tmp/a"}]}},
            "could not be fetched",
        ),
    ],
)
def test_a_set_up_that_failed_in_silence(
    shared_desktop: OSWorldDesktop, step: dict[str, Any], reason: str
) -> None:
    with pytest.raises(EnvFailure, match=f"the task's set-up failed: .*{reason}"):
        shared_desktop.reset(task(config=[step]))
    shared_desktop.reset(task())  # on a new machine
    assert shared_desktop.last_reset == "first"


def test_a_locked_screen_and_a_guest_that_stops_answering(
    shared_desktop: OSWorldDesktop, engine: Engine
) -> None:
    lock = {"type": "execute", "parameters": {"command": ["touch", "/home/user/locked"]}}
    shared_desktop.reset(task(config=[lock]))
    with pytest.raises(EnvFailure, match="the guest's screen is locked"):
        shared_desktop.wait_after_reset()
    shared_desktop.reset(task())
    engine.docker("kill", *engine.docker("ps", "-q").split())
    with pytest.raises(EnvFailure, match="the guest's server does not answer"):
        shared_desktop.observe()
    assert engine.docker("ps", "-aq") == ""


def test_a_container_removed_from_outside(own_desktop: Make, engine: Engine) -> None:
    desktop = own_desktop()
    before = set(engine.docker("ps", "-q").split())
    desktop.reset(task())
    (mine,) = set(engine.docker("ps", "-q").split()) - before
    engine.docker("rm", "-f", mine)
    with pytest.raises(EnvFailure, match="the guest's server does not answer"):
        desktop.act(Click(x=5, y=5))
    desktop.reset(task())
    assert desktop.last_reset == "first"  # on a new machine
    desktop.check_health()


def test_a_machine_that_stops_answering(own_desktop: Make, engine: Engine) -> None:
    desktop = own_desktop()
    before = set(engine.docker("ps", "-q").split())
    desktop.reset(task())
    (mine,) = set(engine.docker("ps", "-q").split()) - before
    engine.docker("pause", mine)
    desktop.deadlines = replace(desktop.deadlines, observe=3.0)
    with pytest.raises(EnvFailure, match="did not answer 'screenshot' within 3 s"):
        desktop.observe()
    assert set(engine.docker("ps", "-aq").split()) == before


def test_the_engines_disk_is_full(
    own_desktop: Make, environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(disk="32m") as small:
        monkeypatch.setenv("DOCKER_HOST", small.host)
        small.load(Path(os.devnull), ["/bin/no"])
        desktop = own_desktop()
        full = fill(small.data)
        with pytest.raises(EnvFailure, match=r"the disk of the docker engine is full") as e:
            desktop.prepare()
        assert not e.value.transient
        full.unlink()
        assert small.docker("ps", "-aq") == ""


def fill(disk: Path) -> Path:
    """A file that takes all the room there is."""
    full = disk / "full"
    with full.open("wb", buffering=0) as f, contextlib.suppress(OSError):
        while f.write(bytes(1 << 16)):
            continue
    assert shutil.disk_usage(disk).free == 0
    return full


def test_an_image_that_is_not_osworlds(own_desktop: Make, engine: Engine) -> None:
    engine.docker("tag", IMAGE, "kept")
    engine.docker("import", "--change", 'ENTRYPOINT ["/bin/no"]', os.devnull, IMAGE)
    try:
        with pytest.raises(EnvFailure, match="the machine did not start"):
            own_desktop().prepare()
        assert engine.docker("ps", "-aq") == ""
    finally:
        engine.docker("tag", "kept", IMAGE)
        engine.docker("rmi", "kept")


def test_two_runs_side_by_side_and_a_strangers_container(
    own_desktop: Make, engine: Engine, options: Callable[..., DesktopOptions]
) -> None:
    """Ports in use are stepped over, a hung worker is killed with its machine, and no other is."""
    stranger = engine.docker("run", "-d", "--network=none", "--entrypoint=sleep", IMAGE, "1000")
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind(("", 5000))
        holder.listen()
    except OSError:
        pass  # somebody else holds it, which is as good
    try:
        hung, sound = own_desktop(), own_desktop()
        hung.prepare()
        sound.prepare()
        assert len(engine.docker("ps", "-q").split()) == 3
        worker = hung._worker
        assert worker is not None
        os.killpg(worker._process.pid, signal.SIGSTOP)
        hung.deadlines = replace(hung.deadlines, observe=1.0)
        with pytest.raises(EnvFailure, match="did not answer 'screenshot' within 1 s"):
            hung.observe()
        assert len(engine.docker("ps", "-q").split()) == 2
        sound.check_health()
        sound.close()
        assert engine.docker("ps", "-aq", "--no-trunc").split() == [stranger.strip()]
        with pytest.raises(EnvFailure, match=r"ended during"):
            sound.observe()
    finally:
        holder.close()
        engine.docker("rm", "-f", stranger.strip())


def test_what_a_killed_run_left_is_swept_by_the_next(
    engine: Engine, options: Callable[..., DesktopOptions]
) -> None:
    labels = ("--label", "legato.osworld.desktop=old", "--label", "legato.osworld.owner=")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    dead = f"{labels[3]}{boot}:999999999:1"
    left = engine.docker(
        "run", "-d", "--network=none", *labels[:3], dead, "--entrypoint=sleep", IMAGE, "1000"
    ).strip()
    desktop = make_desktop(options(), 9)
    try:
        desktop.prepare()
        assert left not in engine.docker("ps", "-aq", "--no-trunc").split()
    finally:
        desktop.close()
