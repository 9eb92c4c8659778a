"""Tasks on real desktops: set-up, reference episodes through the screen, and wrong end states."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.actions import AnyAction, Done, Fail, Key, Type
from legato.desktop.contract import DesktopOptions, Machine, Score, Task
from legato.desktop.local import LocalDesktop, make_desktop
from legato.errors import EnvFailure
from legato.tasks import load_task, parse_tasks
from legato.tasks.desktop_apps.edit_text import EditText
from legato.tasks.desktop_basics.file_manager import FileManager
from legato.tasks.desktop_basics.settings_tabs import SettingsTabs
from legato.tasks.place import Place
from legato.tasks.seeded import SeededTask
from legato.tasks.web.server import DO
from legato.tasks.web.task import PORT

pytestmark = pytest.mark.desktop


@pytest.fixture(scope="module")
def desktop() -> Iterator[LocalDesktop]:
    desktop = make_desktop(DesktopOptions(), slot=0)
    yield desktop
    desktop.close()


class Seen:
    """A task that lets the test see the machine it was set up on."""

    machine: Machine

    def __init__(self, task: Task) -> None:
        self._task = task
        self.task_id, self.domain = task.task_id, task.domain
        self.instruction, self.config = task.instruction, task.config

    def setup(self, machine: Machine) -> None:
        self.machine = machine
        self._task.setup(machine)

    def grade(self, machine: Machine) -> Score:
        return self._task.grade(machine)


def start(desktop: LocalDesktop, task: Task) -> Machine:
    seen = Seen(task)
    desktop.reset(seen)
    desktop.wait_after_reset()
    return seen.machine


def finish(desktop: LocalDesktop, actions: Iterable[AnyAction] = ()) -> Score:
    for action in actions:
        desktop.act(action)
    desktop.wait_before_eval()
    return desktop.evaluate()


# --- seeded tasks ------------------------------------------------------------------------------


def without(drop: Callable[[AnyAction], bool]) -> Callable[[Iterable[AnyAction]], list[AnyAction]]:
    return lambda actions: [action for action in actions if not drop(action)]


def is_key(*keys: str) -> Callable[[AnyAction], bool]:
    return lambda action: isinstance(action, Key) and action.key in keys


@pytest.mark.parametrize("name", ["calc_sheet", "file_manager", "view_pictures"])
def test_a_window_is_and_stays_where_the_seed_says(
    name: str, desktop: LocalDesktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs have places of their own in mind, some of them later."""
    wanted: list[tuple[int, int, int, int]] = []
    on = Place.on

    def spied(self: Place, *room: tuple[int, int]) -> tuple[int, int, int, int]:
        wanted.append(on(self, *room))
        return wanted[-1]

    monkeypatch.setattr(Place, "on", spied)
    machine = start(desktop, load_task(name, 6))
    (window,) = machine.windows()
    assert (window.x, window.y, window.width, window.height) == wanted[-1]


def edit_with(*kinds: str) -> EditText:
    for seed in range(100):
        task = load_task("edit_text", seed)
        assert isinstance(task, EditText)
        if sorted(change.kind for change in task.changes) == sorted(kinds):
            return task
    raise AssertionError(kinds)


def misspelt(actions: Iterable[AnyAction]) -> list[AnyAction]:
    """The text of the first line typed over is wrong."""
    found = list(actions)
    at = next(i for i, action in enumerate(found) if is_key("shift+End")(action)) + 1
    typed = found[at]
    assert isinstance(typed, Type)
    return [*found[:at], Type(text=typed.text + "x"), *found[at + 1 :]]


@pytest.mark.parametrize(
    ("wrong", "reward"),
    [
        (without(is_key("ctrl+s")), 0.0),
        (lambda actions: [Key(key="ctrl+s"), Done()], 0.0),
        (lambda actions: [Key(key="ctrl+a"), Key(key="Delete"), Key(key="ctrl+s")], 0.0),
        (lambda actions: [Type(text="x\n"), *actions], 0.0),
        (misspelt, 2 / 3),
        (without(is_key("Delete")), 2 / 3),
    ],
    ids=["not saved", "saved untouched", "emptied", "a line too many", "misspelt", "not removed"],
)
def test_wrong_edits(wrong: Any, reward: float, desktop: LocalDesktop) -> None:
    task = edit_with("add", "remove", "set")
    machine = start(desktop, task)
    assert finish(desktop, wrong(task.reference_actions(machine))).reward == pytest.approx(reward)


def test_a_dialog_left_open_over_a_saved_text_costs_nothing(desktop: LocalDesktop) -> None:
    task = edit_with("add", "remove", "set")
    machine = start(desktop, task)
    actions = [a for a in task.reference_actions(machine) if a != Done()]
    score = finish(desktop, [*actions, Key(key="ctrl+shift+s"), Done()])
    assert len(machine.windows()) == 0, "it was cancelled, and the editor closed"
    assert score.reward == 1.0, score


def tidy_with(*kinds: str) -> FileManager:
    for seed in range(100):
        task = load_task("file_manager", seed)
        assert isinstance(task, FileManager)
        if sorted(rule.kind for rule in task.rules) == sorted(kinds):
            return task
    raise AssertionError(kinds)


def undeleted(actions: Iterable[AnyAction]) -> list[AnyAction]:
    """Without the key press and the answer to the question that follows it."""
    found = list(actions)
    at = next(i for i, action in enumerate(found) if is_key("Delete")(action))
    return found[:at] + found[at + 2 :]


@pytest.mark.parametrize(
    ("wrong", "reward"),
    [
        (without(is_key("ctrl+x", "ctrl+v")), 2 / 3),
        (without(is_key("ctrl+v")), 2 / 3),
        (undeleted, 2 / 3),
        (lambda actions: [Key(key="ctrl+a"), Key(key="Delete"), Key(key="Return")], 0.0),
        (lambda actions: [Key(key="ctrl+shift+n"), Key(key="Return"), *actions], 0.0),
    ],
    ids=["nothing moved", "cut only", "not deleted", "all deleted", "a folder too many"],
)
def test_wrong_tidying(wrong: Any, reward: float, desktop: LocalDesktop) -> None:
    task = tidy_with("delete", "file", "rename")
    machine = start(desktop, task)
    score = finish(desktop, wrong(task.reference_actions(machine)))
    assert score.reward == pytest.approx(reward), score


@pytest.mark.parametrize(
    ("wrong", "share"),
    [
        (lambda actions: actions[:-2], 0.0),
        (lambda actions: actions[-2:], 0.0),
        (lambda actions: [*actions[:-2], Key(key="F5"), *actions[-2:]], 0.0),
        # ticking a box costs nothing, so it earns nothing alone
        (lambda actions: [*actions[:2], *actions[-2:]], 0.0),
        (lambda actions: [*actions[:2], *actions[1:]], None),
    ],
    ids=["not saved", "saved untouched", "reloaded before saving", "first only", "first undone"],
)
def test_wrong_settings(wrong: Any, share: float | None, desktop: LocalDesktop) -> None:
    """Seed 1 begins with a checkbox: click its tab, click it."""
    task = load_task("settings_tabs", 1)
    assert isinstance(task, SettingsTabs)
    assert task.changes[0][0].kind == "check"
    machine = start(desktop, task)
    score = finish(desktop, wrong(list(task.reference_actions(machine))))
    passed = [check.passed for check in score.checks if check.kind == "progress"]
    if share is None:
        assert 0.0 < score.reward < 1.0
        assert passed.count(True) in (1, len(passed) - 1)
    else:
        assert score.reward == share


def test_a_post_that_is_not_the_pages_is_refused_and_voids_the_score(
    desktop: LocalDesktop,
) -> None:
    task = load_task("settings_tabs", 1)
    machine = start(desktop, task)
    forge = (
        "import urllib.request as u, urllib.error as e\n"
        f"r = u.Request('http://127.0.0.1:{PORT}{DO}', b'{{}}', "
        "{'Content-Type': 'application/json', 'X-Session': 'guess'})\n"
        "try: u.urlopen(r, timeout=10); print('taken')\n"
        "except e.HTTPError as x: print('refused', x.code)\n"
    )
    done = machine.run(["python3", "-c", forge])
    assert done.stdout == "refused 403\n", done
    score = finish(desktop, task.reference_actions(machine))
    assert score.reward == 0.0
    assert "came from the page" in score.output


def test_the_agent_sees_neither_the_server_nor_its_log(desktop: LocalDesktop) -> None:
    machine = start(desktop, load_task("settings_tabs", 1))
    log = machine.scratch / "app" / "events.jsonl"
    assert log.is_file()
    assert machine.run(["test", "-e", str(log)]).returncode != 0
    assert "server.py" not in machine.run(["ps", "-ef"]).stdout


# --- OSWorld's format --------------------------------------------------------------------------


def inline(evaluator: dict[str, Any], *steps: tuple[str, dict[str, Any]], base: Path) -> Task:
    config = {
        "instruction": "Do it.",
        "config": [{"type": kind, "parameters": parameters} for kind, parameters in steps],
        "evaluator": evaluator,
    }
    return parse_tasks([{"task_id": "t", "config": config}], backend="local", base=base)[0]


TEXTS = {
    "func": ["compare_text_file", "exact_match"],
    "conj": "and",
    "result": [
        {"type": "vm_file", "path": "/home/user/Desktop/note.txt", "dest": "note.txt"},
        {
            "type": "vm_command_line",
            "command": "cat /home/user/Desktop/*.txt | wc -l",
            "shell": True,
        },
    ],
    "expected": [
        {"type": "cloud_file", "path": "", "dest": "gold.txt"},
        {"type": "rule", "rules": {"expected": "1\n"}},
    ],
}


def note_task(tmp_path: Path, gold: str) -> Task:
    (tmp_path / "note.txt").write_text("hello\n")
    (tmp_path / "gold.txt").write_text(gold)
    expected = [{"type": "cloud_file", "path": f"file://{tmp_path}/gold.txt"}, TEXTS["expected"][1]]
    save = {"type": "execute", "parameters": {"command": ["touch", "/home/user/graded"]}}
    return inline(
        {**TEXTS, "expected": expected, "postconfig": [save]},
        ("upload_file", {"files": [{"local_path": "note.txt", "path": "~/Desktop/note.txt"}]}),
        ("command", {"command": "echo {SCREEN_WIDTH} > ~/width", "shell": True}),
        ("open", {"path": "/home/user/Desktop/note.txt"}),
        ("activate_window", {"window_name": "note.txt"}),
        ("sleep", {"seconds": 0.1}),
        base=tmp_path,
    )


def test_an_inline_task_is_set_up_solved_and_graded(desktop: LocalDesktop, tmp_path: Path) -> None:
    machine = start(desktop, note_task(tmp_path, "so long\n"))
    assert machine.read_file("/home/user/width") == b"1280\n"
    assert any("note.txt" in window.title for window in machine.windows())
    edit = [Key(key="ctrl+a"), Type(text="so long\n"), Key(key="ctrl+s"), Done()]
    assert finish(desktop, edit).reward == 1.0
    assert machine.read_file("/home/user/graded") == b""


def test_the_same_task_untouched_or_given_up_earns_nothing(
    desktop: LocalDesktop, tmp_path: Path
) -> None:
    start(desktop, note_task(tmp_path, "so long\n"))
    assert finish(desktop, [Done()]).reward == 0.0
    start(desktop, note_task(tmp_path, "hello\n"))
    assert finish(desktop, [Fail()]).reward == 0.0
    start(desktop, note_task(tmp_path, "hello\n"))
    assert finish(desktop).reward == 1.0


def test_a_deleted_result_is_a_verdict_of_0(desktop: LocalDesktop, tmp_path: Path) -> None:
    machine = start(desktop, note_task(tmp_path, "hello\n"))
    machine.run(["rm", "/home/user/Desktop/note.txt"])
    assert finish(desktop, [Done()]).reward == 0.0


def test_launch_waits_for_the_window_of_a_program_that_has_one(
    desktop: LocalDesktop, tmp_path: Path
) -> None:
    task = inline(
        {"func": "infeasible"},
        ("launch", {"command": "mousepad"}),
        ("launch", {"command": ["pcmanfm", "/home/user"]}),
        ("launch", {"command": "sleep 1000 & sleep 1000", "shell": True}),
        ("close_window", {"window_name": "mousepad"}),
        base=tmp_path,
    )
    machine = start(desktop, task)
    titles = " ".join(window.wm_class for window in machine.windows())
    assert "pcmanfm" in titles.lower()
    assert "mousepad" not in titles.lower()
    assert finish(desktop, [Fail()]).reward == 1.0


def test_set_up_that_fails_is_an_env_failure_and_the_desktop_goes_on(
    desktop: LocalDesktop, tmp_path: Path
) -> None:
    with pytest.raises(EnvFailure, match="could not run"):
        desktop.reset(
            inline({"func": "infeasible"}, ("execute", {"command": ["~/nothing"]}), base=tmp_path)
        )
    start(desktop, load_task("edit_text", 0))
    assert finish(desktop, [Done()]).reward == 0.0


def test_desktops_share_a_task_object(desktop: LocalDesktop) -> None:
    """A group runs one task on several desktops at once; its app servers must not mix."""
    task: SeededTask = load_task("settings_tabs", 1)
    other = make_desktop(DesktopOptions(), slot=1)
    scores: dict[str, Score] = {}

    def run(name: str, on: LocalDesktop, solve: bool) -> None:
        machine = start(on, task)
        scores[name] = finish(on, task.reference_actions(machine) if solve else [Done()])

    try:
        threads = [
            threading.Thread(target=run, args=("solved", desktop, True)),
            threading.Thread(target=run, args=("idle", other, False)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        other.close()
    assert {name: score.reward for name, score in scores.items()} == {"solved": 1.0, "idle": 0.0}
