"""The seeded tasks without a screen: seeds, untouched states, and end states of every kind."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legato.desktop.contract import Score
from legato.errors import ConfigError, EnvFailure
from legato.tasks import list_tasks, load_task
from legato.tasks.desktop_apps.edit_text import EditText
from legato.tasks.desktop_basics.file_manager import FileManager
from legato.tasks.leftovers import copies_elsewhere, files_elsewhere
from legato.tasks.verifier import pack_bytes
from tests.tasks.disk_machine import DiskMachine

NAMES = [info.name for info in list_tasks() if info.suite != "buttons"]
SEEDS = range(200)


def put(machine: DiskMachine, *paths: str, data: bytes = b"") -> None:
    """Files of the home, by relative path, or by full path outside of it."""
    for path in paths:
        place = machine.outside / path[1:] if path.startswith("/") else machine.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def test_files_elsewhere_are_those_outside_the_tasks_own_folders(machine: DiskMachine) -> None:
    put(machine, "Documents/own.txt", data=b"own")
    put(machine, "Desktop/a/b.txt", "c\n.txt", "Docs/Documents", ".hidden", "/tmp/a.txt")
    (machine.root / "Empty").mkdir()
    found = files_elsewhere(machine, "Documents")
    assert found == ["Desktop/a/b.txt", "Docs/Documents", "c\n.txt"]
    assert files_elsewhere(machine, "Documents", "Desktop", "Docs") == ["c\n.txt"]


def test_copies_are_elsewhere_under_hidden_names_and_among_what_is_temporary(
    machine: DiskMachine,
) -> None:
    put(machine, "Documents/own.txt", ".x/y", "/tmp/.b/c", data=b"own")
    put(machine, ".x/own.txt", "/tmp/own.txt", ".x/z", "/tmp/z", data=b"another")
    assert files_elsewhere(machine, "Documents") == [
        *(f"{machine.home}/.x/own.txt", f"{machine.home}/.x/y"),
        *("/tmp/.b/c", "/tmp/own.txt"),
    ]


def test_what_programs_keep_is_not_elsewhere(machine: DiskMachine) -> None:
    """As it was found on desktops on which people worked."""
    put(
        machine,
        *(".cache/openbox/openbox.log", ".cache/thumbnails/normal/a.png", ".cache/menus/2052"),
        *(".config/dconf/user", ".config/libreoffice/4/user/registrymodifications.xcu"),
        *(".config/chromium/Local State", ".config/Mousepad/accels.scm"),
        *(".config/gtk-2.0/gtkfilechooser.ini", ".local/share/recently-used.xbel"),
        *(".local/share/Trash/files/a.txt", ".local/share/Mousepad/autosave-1", ".pki/nssdb/x"),
        *("/tmp/lu125aphmt.tmp/lu125aphmv.tmp", "/tmp/org.chromium.Chromium.R/SingletonCookie"),
        *("/tmp/xa-Ab12Cd/a.txt", "/tmp/.X9-lock", "/run/user/1000/dconf/user"),
        *(".execoooAb12Cd", "/tmp/.execoooAb12Cd", ".new-to-us/x"),
    )
    put(machine, "Documents/a.txt", "Documents/lu1.tmp", data=b"12")
    assert files_elsewhere(machine, "Documents") == []


def test_a_copy_is_found_wherever_it_is_put_but_in_the_trash(machine: DiskMachine) -> None:
    deleted = {"a/budget.txt": b"12 3", "notes.txt": b"x"}
    put(machine, "In/budget.txt", ".local/share/Trash/files/budget.txt", data=b"12 3")
    assert copies_elsewhere(machine, deleted, "In") == {}
    put(machine, ".config/chromium/y", "/dev/shm/z", data=b"12 3")
    put(machine, ".cache/notes.txt", "/tmp/lu1.tmp/w", data=b"something else, and longer")
    assert copies_elsewhere(machine, deleted, "In") == {
        f"{machine.home}/.cache/notes.txt": "notes.txt",
        f"{machine.home}/.config/chromium/y": "a/budget.txt",
        "/dev/shm/z": "a/budget.txt",
    }
    assert copies_elsewhere(machine, {}, "In") == {}
    put(machine, *(f".cache/{n}" for n in range(2_001)))
    assert copies_elsewhere(machine, deleted, "In") is None


def test_the_tasks_are_listed_by_suite_with_a_summary() -> None:
    basics = [info.name for info in list_tasks() if info.suite == "desktop_basics"]
    assert basics == ["signup_form", "todo_list", "settings_tabs", "expense_sheet", "file_manager"]
    assert all(len(info.summary) > 20 for info in list_tasks())


@pytest.mark.parametrize("name", NAMES)
def test_seeds_are_repeatable_unbounded_and_differ(name: str) -> None:
    tasks = [load_task(name, seed) for seed in SEEDS]
    assert [t.instruction for t in tasks] == [load_task(name, s).instruction for s in SEEDS]
    assert len({t.instruction for t in tasks}) > 0.98 * len(SEEDS)
    assert load_task(name, 10**12).instruction
    assert len({t.task_id for t in tasks}) == len(SEEDS)
    with pytest.raises(ConfigError):
        load_task(name, -1)


def test_a_seed_says_the_same_everywhere() -> None:
    """Pinned: a changed draw would silently change every recorded variant."""
    assert load_task("edit_text", 0).instruction.startswith("The file workshop-56.txt is open")
    assert load_task("file_manager", 0).instruction.startswith('The folder "Transfer" is open')
    assert load_task("settings_tabs", 0).instruction.startswith('The browser shows "Quayside')


@pytest.mark.parametrize("name", ["edit_text", "file_manager"])
@pytest.mark.parametrize("seed", range(20))
def test_doing_nothing_earns_nothing(name: str, seed: int, machine: DiskMachine) -> None:
    task = load_task(name, seed)
    task.setup(machine)
    score = task.grade(machine)
    assert score.reward == 0.0
    assert not any(check.passed for check in score.checks if check.kind == "progress")
    assert all(check.passed for check in score.checks if check.kind == "guard")
    assert machine.frozen


# --- edit_text ---------------------------------------------------------------------------------


def edited(task: EditText, *kinds: str) -> list[str]:
    """The file with the changes of these kinds made (all without any)."""
    lines = list(task.lines)
    for change in task.changes:
        if kinds and change.kind not in kinds:
            continue
        if change.kind == "set":
            lines[lines.index(change.old or "")] = change.new or ""
        elif change.kind == "remove":
            lines.remove(change.old or "")
        else:
            lines.append(change.new or "")
    return lines


def grade_text(task: EditText, machine: DiskMachine, data: list[str] | bytes | None) -> Score:
    task.setup(machine)
    path = machine.root / "Documents" / task.file
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data if isinstance(data, bytes) else ("\n".join(data) + "\n").encode())
    return task.grade(machine)


def with_kinds(*kinds: str) -> EditText:
    for seed in SEEDS:
        task = load_task("edit_text", seed)
        assert isinstance(task, EditText)
        if sorted(c.kind for c in task.changes) == sorted(kinds):
            return task
    raise AssertionError(kinds)


@pytest.mark.parametrize("seed", range(20))
def test_the_edited_file_earns_all(seed: int, machine: DiskMachine) -> None:
    task = load_task("edit_text", seed)
    assert isinstance(task, EditText)
    assert grade_text(task, machine, edited(task)).reward == 1.0


def test_one_of_three_edits_earns_a_third(machine: DiskMachine) -> None:
    task = with_kinds("add", "remove", "set")
    score = grade_text(task, machine, edited(task, "set"))
    assert score.reward == pytest.approx(1 / 3)
    assert score.output == "1/3 changes made"


def test_a_wrong_value_misses_only_its_own_change(machine: DiskMachine) -> None:
    task = with_kinds("add", "remove", "set")
    wanted = next(c.new for c in task.changes if c.kind == "set")
    wrong = [f"{line}x" if line == wanted else line for line in edited(task)]
    assert grade_text(task, machine, wrong).reward == pytest.approx(2 / 3)


def test_a_line_added_elsewhere_misses_only_its_own_change(machine: DiskMachine) -> None:
    task = with_kinds("add", "remove", "set")
    lines = edited(task)
    assert grade_text(task, machine, [lines[-1], *lines[:-1]]).reward == pytest.approx(2 / 3)


BROKEN: dict[str, Callable[[list[str]], list[str] | bytes | None]] = {
    "deleted": lambda lines: None,
    "emptied": lambda lines: b"",
    "another line lost": lambda lines: lines[1:],
    "a line too many": lambda lines: [*lines[:1], "hello", *lines[1:]],
    "a line twice": lambda lines: [lines[0], *lines],
    "two lines swapped": lambda lines: [lines[1], lines[0], *lines[2:]],
    "letter case": lambda lines: [lines[0].upper(), *lines[1:]],
    "everything twice": lambda lines: lines + lines,
    "not UTF-8": lambda lines: "\n".join(lines).encode() + b"\xff\xfe",
    "UTF-16": lambda lines: "\n".join(lines).encode("utf-16"),
    "binary": lambda lines: bytes(range(256)) * 100,
    "zeros": lambda lines: b"\0" * 100_000,
    "huge": lambda lines: b"x" * (8 * 2**20),
    "very many lines": lambda lines: b"a\n" * 500_000,
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_earns_nothing(how: str, machine: DiskMachine) -> None:
    task = with_kinds("add", "remove", "set")
    assert grade_text(task, machine, BROKEN[how](edited(task))).reward == 0.0


def test_touching_the_file_beside_it_earns_nothing(machine: DiskMachine) -> None:
    task = with_kinds("add", "set")
    task.setup(machine)
    folder = machine.root / "Documents"
    (folder / task.file).write_text("\n".join(edited(task)) + "\n")
    next(folder / name for name in task.others).write_text("gone")
    assert task.grade(machine).reward == 0.0


def test_saving_under_another_name_earns_nothing(machine: DiskMachine) -> None:
    task = with_kinds("add", "set")
    task.setup(machine)
    (machine.root / "Documents" / f"copy-{task.file}").write_text("\n".join(edited(task)))
    assert task.grade(machine).reward == 0.0


def test_a_link_or_a_folder_in_place_of_the_file_earns_nothing(machine: DiskMachine) -> None:
    task = with_kinds("add", "set")
    task.setup(machine)
    path = machine.root / "Documents" / task.file
    path.unlink()
    path.mkdir()
    assert task.grade(machine).reward == 0.0


# --- file_manager --------------------------------------------------------------------------------


def tidied(task: FileManager, folder: Path, *kinds: str) -> None:
    for rule in task.rules:
        if kinds and rule.kind not in kinds:
            continue
        for source, target in rule.moves:
            if target is None:
                (folder / source).unlink()
                continue
            (folder / target).parent.mkdir(exist_ok=True)
            (folder / source).rename(folder / target)


def ready(machine: DiskMachine, *kinds: str) -> tuple[FileManager, Path]:
    for seed in SEEDS:
        task = load_task("file_manager", seed)
        assert isinstance(task, FileManager)
        if sorted(rule.kind for rule in task.rules) == sorted(kinds):
            task.setup(machine)
            return task, machine.root / task.folder
    raise AssertionError(kinds)


@pytest.mark.parametrize("seed", range(20))
def test_the_tidied_folder_earns_all(seed: int, machine: DiskMachine) -> None:
    task = load_task("file_manager", seed)
    assert isinstance(task, FileManager)
    task.setup(machine)
    tidied(task, machine.root / task.folder)
    assert task.grade(machine).reward == 1.0


@pytest.mark.parametrize("kind", ["collect", "rename"])
def test_one_of_three_rules_earns_a_third(kind: str, machine: DiskMachine) -> None:
    task, folder = ready(machine, "collect", "delete", "rename")
    tidied(task, folder, kind)
    assert task.grade(machine).reward == pytest.approx(1 / 3)


def test_what_takes_no_typing_earns_only_beside_what_does(machine: DiskMachine) -> None:
    task, folder = ready(machine, "delete", "file", "rename")
    tidied(task, folder, "delete", "file")
    assert task.grade(machine).reward == 0.0
    tidied(task, folder, "rename")
    assert task.grade(machine).reward == 1.0


def test_a_new_folder_alone_earns_nothing(machine: DiskMachine) -> None:
    task, folder = ready(machine, "collect", "delete", "rename")
    (folder / str(next(r.creates for r in task.rules if r.creates))).mkdir()
    score = task.grade(machine)
    assert score.reward == 0.0
    assert all(check.passed for check in score.checks if check.kind == "guard")


def test_copying_instead_of_moving_is_not_moving(machine: DiskMachine) -> None:
    task, folder = ready(machine, "file", "rename")
    rule = next(rule for rule in task.rules if rule.kind == "file")
    ((source, target),) = rule.moves
    (folder / str(target)).write_bytes((folder / source).read_bytes())
    assert task.grade(machine).reward == 0.0


def test_hiding_is_not_deleting(machine: DiskMachine) -> None:
    task, folder = ready(machine, "delete", "rename")
    rule = next(rule for rule in task.rules if rule.kind == "delete")
    source = rule.moves[0][0]
    (machine.root / "Elsewhere").mkdir()
    (folder / source).rename(machine.root / "Elsewhere" / "x.txt")
    assert task.grade(machine).reward == 0.0


def test_the_trash_counts_as_deleted(machine: DiskMachine) -> None:
    task, folder = ready(machine, "delete", "rename")
    trash = machine.root / ".local/share/Trash/files"
    trash.mkdir(parents=True)
    source = next(rule for rule in task.rules if rule.kind == "delete").moves[0][0]
    (folder / source).rename(trash / source)
    tidied(task, folder, "rename")
    assert task.grade(machine).reward == 1.0


@pytest.mark.parametrize("place", [".budget.txt", "../.config/x", "../.x", "/tmp/x"])
def test_a_file_under_a_hidden_name_is_not_deleted(place: str, machine: DiskMachine) -> None:
    task, folder = ready(machine, "delete", "rename")
    tidied(task, folder, "rename")
    source = folder / next(rule for rule in task.rules if rule.kind == "delete").moves[0][0]
    target = machine.outside / place[1:] if place.startswith("/") else folder / place
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    score = task.grade(machine)
    assert score.reward == 0.0
    assert [c.passed for c in score.checks if c.kind == "progress" and c.name == "delete"] == [
        False
    ]


WRECKED: dict[str, Callable[[FileManager, Path], object]] = {
    "another file deleted": lambda t, f: (f / untouched(t)).unlink(),
    "another file renamed": lambda t, f: (f / untouched(t)).rename(f / "other.txt"),
    "another file changed": lambda t, f: (f / untouched(t)).write_text("changed"),
    "another file hidden": lambda t, f: (f / untouched(t)).rename(f / ".hidden"),
    "a file too many": lambda t, f: (f / "new.txt").write_text("new"),
    "a hidden file too many": lambda t, f: (f / ".new").write_text("new"),
    "a folder too many": lambda t, f: (f / "New Folder").mkdir(),
    "everything deleted": lambda t, f: [p.unlink() for p in f.rglob("*.txt")],
    "a huge file": lambda t, f: (f / untouched(t)).write_bytes(b"x" * (4 * 2**20)),
    "a link in its place": lambda t, f: relink(f / untouched(t)),
    "more than we read": lambda t, f: [
        (f / f"{i}.txt").write_bytes(b"x" * 2**20) for i in range(40)
    ],
    "a thousand files": lambda t, f: [(f / f"{i}.txt").write_text("") for i in range(1000)],
    "bytes that are no name": lambda t, f: Path(os.fsdecode(bytes(f) + b"/\xff")).write_text(""),
}


def untouched(task: FileManager) -> str:
    moved = {source for rule in task.rules for source, _ in rule.moves}
    return next(name for name in task.files if name not in moved)


def relink(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/hostname")


@pytest.mark.parametrize("how", WRECKED)
def test_a_wrecked_folder_earns_nothing_though_all_rules_were_followed(
    how: str, machine: DiskMachine
) -> None:
    task, folder = ready(machine, "collect", "delete", "rename")
    tidied(task, folder)
    WRECKED[how](task, folder)
    score = task.grade(machine)
    assert score.reward == 0.0
    assert "guard failed" in score.output


# --- calc_sheet ------------------------------------------------------------------------------


class Deaf(DiskMachine):
    """Its programs do not take notice of being asked to close."""

    def close_window(self, window_id: int) -> bool:
        raise EnvFailure("the program does not answer")


def test_a_spreadsheet_that_does_not_answer_is_not_saved(tmp_path: Path) -> None:
    """Which is the agent's doing, and no failure of the desktop's."""
    task, machine = load_task("calc_sheet", 1), Deaf(tmp_path)
    task.setup(machine)
    machine.window_list = [replace(w, wm_class="libreoffice-calc") for w in machine.window_list]
    score = task.grade(machine)
    assert score.reward == 0.0
    assert "nothing is unsaved or still edited" in score.output


# --- whatever an agent may leave behind --------------------------------------------------------


def judged(name: str, evidence: dict[str, Any]) -> list[dict[str, Any]]:
    home = load_task(name).suite
    judge = importlib.import_module(f"legato.tasks.{home}.{name}_judge").judge
    checks: list[dict[str, Any]] = judge(evidence)
    return checks


left_behind = st.one_of(
    st.none(),
    st.just({"too_large": True}),
    st.binary(max_size=200).map(lambda data: {"data": pack_bytes(data)}),
)


@given(
    name=st.sampled_from(["edit_text", "file_manager"]),
    seed=st.integers(0, 1000),
    found=st.none() | st.dictionaries(st.text(max_size=20), left_behind, max_size=5),
    instead=left_behind,
)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_end_state_crashes_a_judge(
    name: str, seed: int, found: Any, instead: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    machine = DiskMachine(tmp_path_factory.mktemp("machine"))
    task = load_task(name, seed)
    task.setup(machine)
    evidence = task.evidence(machine)
    true_files = evidence["found"]["folder"]["files"]
    evidence["found"]["folder"] = {"files": None if found is None else {**true_files, **found}}
    if found is not None:
        evidence["found"]["folder"]["files"][next(iter(true_files))] = instead
    checks = judged(name, evidence)
    assert all(set(check) <= {"name", "kind", "passed", "detail"} for check in checks)
    if found is None:
        assert not any(check["passed"] for check in checks if check["kind"] == "progress")
