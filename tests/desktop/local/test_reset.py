"""A reset desktop is as good as a new one."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from legato.desktop.actions import Action
from legato.desktop.contract import DesktopOptions, Machine, Score
from legato.desktop.extras import CanCheckHealth, CanKill, CanPrepare
from legato.desktop.local import LocalDesktop, make_desktop
from legato.errors import ConfigError, EnvFailure, GradeFailure
from tests.desktop.local.conftest import ScriptedTask

pytestmark = pytest.mark.desktop

TRACES = """
echo x > /home/user/trace; mkdir -p /home/user/.config/deep; echo x > /tmp/trace
echo x > /dev/shm/trace; echo x > /run/user/1000/trace; rm -r /home/user/Documents
ipcmk -M 4096 -S 2 -Q > /dev/null
(setsid sh -c 'trap "" TERM HUP; while :; do sleep 1000; done' &)
"""


def traces(machine: Machine) -> str:
    look = "ls -A /tmp /dev/shm /run/user/1000; ls -A ~; cat /proc/sysvipc/*"
    # Sorted here: a second program in a pipe may or may not be seen by the first.
    processes = sorted(machine.run(["ps", "-eo", "comm="]).stdout.split("\n"))
    return machine.run(["sh", "-c", look]).stdout + "\n".join(processes)


def test_nothing_of_an_episode_outlives_the_reset(desktop: LocalDesktop) -> None:
    before, after = ScriptedTask(), ScriptedTask()
    desktop.reset(before)
    clean = traces(before.machine)
    screen = desktop.observe().rgb
    assert before.machine.run(["sh", "-c", TRACES]).returncode == 0
    before.machine.launch(["mousepad"])
    desktop.act(Action(action_type="key_down", key="shift"))
    desktop.act(Action(action_type="mouse_down", x=5, y=5))
    assert traces(before.machine) != clean
    desktop.reset(after)
    assert traces(after.machine) == clean
    assert after.machine.windows() == []
    assert np.array_equal(desktop.observe().rgb, screen)


def test_fast_reset_stays_in_the_sandbox_and_a_full_one_does_not(
    own_desktop: Callable[..., LocalDesktop],
) -> None:
    for fast in (True, False):
        desktop = own_desktop(fast_reset=fast)
        desktop.prepare()
        first = desktop._box
        desktop.reset(ScriptedTask())
        assert desktop._box is first
        desktop.reset(ScriptedTask())
        assert (desktop._box is first) == fast


def test_a_prepared_desktop_only_runs_the_tasks_setup(desktop: LocalDesktop) -> None:
    session = desktop._session
    desktop.reset(ScriptedTask())
    assert desktop._session is session
    desktop.reset(ScriptedTask())
    assert desktop._session is not session


def test_what_cannot_be_removed_costs_a_new_sandbox(
    desktop: LocalDesktop,
) -> None:
    task, next_task = ScriptedTask(), ScriptedTask()
    desktop.reset(task)
    first = desktop._box
    deep = "import os\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')\nos.chmod('..', 0)\n"
    task.machine.run(["python3", "-c", deep], timeout=30)
    desktop.reset(next_task)
    assert desktop._box is not first
    assert next_task.machine.run(["ls"]).stdout.split() == ["Desktop", "Documents", "Downloads"]


def test_a_template_home(own_desktop: Callable[..., LocalDesktop], tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "Notes").mkdir()
    (tmp_path / "Notes" / "a.txt").write_text("from the template")
    (tmp_path / "link").symlink_to("Notes/a.txt")
    desktop = own_desktop(extra={"home_template": tmp_path})
    for _ in range(2):
        task = ScriptedTask()
        desktop.reset(task)
        assert task.machine.read_file("/home/user/link") == b"from the template"
        task.machine.write_file("/home/user/Notes/a.txt", b"changed")


def test_the_walk_of_an_episode(desktop: LocalDesktop) -> None:
    def grade(machine: Machine) -> Score:
        assert machine.ended_by is not None
        return Score(0.5, output=machine.ended_by.action_type)

    task = ScriptedTask(lambda machine: machine.launch(["mousepad"]) and None, grade)
    desktop.reset(task)
    assert task.machine.ended_by is None
    assert desktop.wait_after_reset().reason == "idle"
    before = desktop.observe()
    assert (before.width, before.height) == (1280, 720)
    result = desktop.act(Action(action_type="type", text="hello"))
    assert result.ready.reason == "idle"
    assert not np.array_equal(desktop.observe().rgb, before.rgb)
    assert desktop.act(Action(action_type="screenshot")).ready.reason == "none"
    assert desktop.act(Action(action_type="done")).ready.reason == "none"
    assert desktop.wait_before_eval().reason == "idle"
    assert desktop.evaluate() == Score(0.5, output="done")


def test_fixed_waits_instead_of_the_signal(own_desktop: Callable[..., LocalDesktop]) -> None:
    desktop = own_desktop(ready_signal=False, fixed_wait=0.3)
    desktop.reset(ScriptedTask())
    started = time.monotonic()
    ready = desktop.act(Action(action_type="key", key="a")).ready
    assert (ready.reason, ready.seconds) == ("fixed", 0.3)
    assert time.monotonic() - started >= 0.3


def test_a_verifier_that_breaks_is_not_a_verdict(desktop: LocalDesktop) -> None:
    def grade(machine: Machine) -> Score:
        raise KeyError("checks")

    desktop.reset(ScriptedTask(on_grade=grade))
    with pytest.raises(GradeFailure, match="KeyError"):
        desktop.evaluate()
    desktop.check_health()


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        ({"colour": "red"}, "colour.*known: home_template"),
        ({"disk_mib": "much"}, "disk_mib"),
        ({"home_template": "/no/such/place"}, "/no/such/place"),
    ],
)
def test_unknown_or_wrong_options_are_refused(extra: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_desktop(DesktopOptions(extra=extra), 0)


def test_a_desktop_that_was_not_reset_says_so(own_desktop: Callable[..., LocalDesktop]) -> None:
    desktop = own_desktop()
    for call in (desktop.observe, desktop.wait_after_reset, desktop.evaluate, desktop.check_health):
        with pytest.raises(EnvFailure, match="reset"):
            call()


def test_it_has_every_capability(own_desktop: Callable[..., LocalDesktop]) -> None:
    for capability in (CanPrepare, CanKill, CanCheckHealth):
        assert isinstance(own_desktop(), capability)


def test_other_screen_sizes(own_desktop: Callable[..., LocalDesktop]) -> None:
    desktop = own_desktop(width=1001, height=603)
    desktop.prepare()
    assert desktop.observe().rgb.shape == (603, 1001, 3)
    desktop.check_health()
