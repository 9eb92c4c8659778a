"""Reading tasks.json: every form, and every way to get it wrong."""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from legato.errors import ConfigError
from legato.tasks import load_tasks, parse_tasks
from legato.tasks.osworld.task import OsworldTask
from legato.tasks.seeded import SeededTask
from legato.tasks.tasks_file import CarriedTask

EVALUATOR: dict[str, Any] = {
    "func": "exact_match",
    "result": {"type": "vm_command_line", "command": "cat out.txt", "shell": True},
    "expected": {"type": "rule", "rules": {"expected": "1\n"}},
}


def config(**changes: Any) -> dict[str, Any]:
    return {"instruction": "Do it.", "config": [], "evaluator": EVALUATOR, **changes}


def step(kind: str, **parameters: Any) -> dict[str, Any]:
    return config(config=[{"type": kind, "parameters": parameters}])


def graded(**changes: Any) -> dict[str, Any]:
    return config(evaluator={**EVALUATOR, **changes})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """An OSWorld checkout with one task that runs here and one that does not."""
    examples = tmp_path / "checkout" / "evaluation_examples" / "examples"
    for domain, name, data in (
        ("os", "echo-1", config(id="echo-1")),
        ("os", "no-config", {"instruction": "Never.", "evaluator": {"func": "infeasible"}}),
        ("chrome", "tabs-1", step("chrome_open_tabs", urls_to_open=["x"])),
    ):
        (examples / domain).mkdir(parents=True, exist_ok=True)
        (examples / domain / f"{name}.json").write_text(json.dumps(data))
    (examples / "os" / "broken.json").write_text("{")
    return tmp_path / "checkout"


def test_all_forms_load_from_one_file(tmp_path: Path, checkout: Path) -> None:
    file = tmp_path / "tasks.json"
    entries = [
        {"task_id": "echo-1", "domain": "os"},
        {"task_id": "no-config", "domain": "os"},
        {"task_id": "mine", "config": config()},
        {"task_id": "mine-2", "config": config(), "domain": "files"},
        {"task_id": "edit", "task": "edit_text", "seed": 3},
        {"task_id": "tidy", "task": "file_manager", "suite": "desktop_basics"},
    ]
    file.write_text(json.dumps(entries))
    tasks = load_tasks(file, backend="local", osworld_path=checkout)
    assert [task.task_id for task in tasks] == [entry["task_id"] for entry in entries]
    domains = ["os", "os", "inline", "files", "desktop_apps", "desktop_basics"]
    assert [task.domain for task in tasks] == domains
    assert [type(task) for task in tasks[:4]] == [OsworldTask] * 4
    assert isinstance(tasks[4], SeededTask)
    assert tasks[4].seed == 3
    assert tasks[1].instruction == "Never."
    for task in tasks:
        json.dumps(task.config)
        assert pickle.loads(pickle.dumps(task)) == task
    assert parse_tasks([tasks[4].config], backend="local") == [tasks[4]]


def test_backends_that_grade_by_themselves_get_the_config_as_it_is(checkout: Path) -> None:
    entries = [
        {"task_id": "tabs-1", "domain": "chrome"},
        {
            "task_id": "form",
            "config": {
                "instruction": "Fill it.",
                "evaluator": {"func": "infeasible"},
                "fake": {"kind": "form"},
            },
        },
    ]
    tasks = parse_tasks(entries, backend="osworld", osworld_path=checkout)
    assert [type(task) for task in tasks] == [CarriedTask, CarriedTask]
    assert tasks[0].config["config"][0]["type"] == "chrome_open_tabs"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "could not read"),
        ("", "line 1, column 1"),
        ('[{"task_id": "a",}]', "line 1, column 18"),
        ('[\n{"task_id" "a"}]', "line 2, column 12"),
        ('{"task_id": "a"}', r"must hold a list .* an object"),
        ('"tasks"', "must hold a list"),
        ("[]", "no tasks"),
        ("[" * 100_000, "nested too deeply|valid JSON"),
        (b"[\xff]", "not UTF-8"),
        ('[{"task_id": "a", "task": "edit_text", "seed": ' + "9" * 5000 + "}]", "too many digits"),
    ],
)
def test_a_file_that_is_no_list_of_tasks(
    tmp_path: Path, text: str | bytes | None, says: str
) -> None:
    file = tmp_path / "tasks.json"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=says) as caught:
        load_tasks(file, backend="local")
    assert "tasks.json" in str(caught.value) or text == "[]"


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("x", "entry 1: must be an object, not a string"),
        (None, "entry 1: must be an object, not null"),
        ({}, "entry 1: 'task_id' must be a non-empty string"),
        ({"task_id": 7}, "entry 1: 'task_id'"),
        ({"task_id": "good"}, r"entry 1 \(good\): .*entry 0"),
        ({"task_id": "half \ud83d"}, "lone surrogate"),
        ({"task_id": "b"}, "needs either a 'domain', a 'config' or a 'task'"),
        ({"task_id": "b", "task": "edit_text", "config": config()}, "needs either"),
        ({"task_id": "b", "domain": "os", "task": "edit_text"}, "'domain' does not go"),
        ({"task_id": "b", "domain": 3}, "'domain' must be"),
        ({"task_id": "b", "domain": "os", "seed": 1}, "'seed' belongs to a 'task'"),
        ({"task_id": "b", "domain": "os", "sead": 1}, "unknown field.*sead"),
        ({"task_id": "b", "domain": "desk"}, "unknown domain 'desk'; there are: chrome, os"),
        ({"task_id": "b", "domain": "os"}, "there is no task file"),
        ({"task_id": "../chrome/tabs-1", "domain": "os"}, "there is no task file"),
        ({"task_id": "broken", "domain": "os"}, r"could not read .*broken\.json"),
        ({"task_id": "tabs-1", "domain": "chrome"}, "step 'chrome_open_tabs' is not supported"),
        ({"task_id": "b", "task": "edit"}, "unknown task 'edit'; known: .*edit_text"),
        ({"task_id": "b", "task": "edit_text", "suite": "more"}, "unknown suite 'more'"),
        ({"task_id": "b", "task": "edit_text", "seed": -1}, "seed must be"),
        ({"task_id": "b", "task": "edit_text", "seed": "1"}, "seed must be"),
        ({"task_id": "b", "task": "edit_text", "seed": True}, "seed must be"),
        ({"task_id": "b", "config": []}, "'config' must be an object, not a list"),
        ({"task_id": "b", "config": config(instruction="")}, "'instruction'"),
        ({"task_id": "b", "config": config(config={})}, "'config' must be a list of steps"),
        ({"task_id": "b", "config": config(config=["x"])}, r"config\[0\] must be an object"),
        ({"task_id": "b", "config": config(proxy=True)}, "proxy"),
        ({"task_id": "b", "config": config(evaluator=None)}, "'evaluator' must be"),
        ({"task_id": "b", "config": step("dance")}, "step 'dance' is not supported"),
        ({"task_id": "b", "config": step("sleep")}, "parameter 'seconds'"),
        ({"task_id": "b", "config": step("sleep", seconds=9999)}, "parameter 'seconds'"),
        ({"task_id": "b", "config": step("execute", command=[])}, "parameter 'command"),
        (
            {"task_id": "b", "config": step("execute", command=["true"], until={"returncode": 0})},
            "parameter 'until' is not supported",
        ),
        (
            {"task_id": "b", "config": step("execute", command="import pyautogui")},
            "pyautogui is not in the guest",
        ),
        (
            {"task_id": "b", "config": step("execute", command="a; sudo b", shell=True)},
            "sudo",
        ),
        (
            {"task_id": "b", "config": step("execute", command="echo {CLIENT_PASSWORD}")},
            "there is no password",
        ),
        (
            {"task_id": "b", "config": step("launch", command=["no-such-program", "-x"])},
            "program 'no-such-program' is not installed",
        ),
        (
            {"task_id": "b", "config": step("launch", command="A=1 no-such -x", shell=True)},
            "program 'no-such' is not installed",
        ),
        (
            {
                "task_id": "b",
                "config": step("upload_file", files=[{"local_path": "no", "path": "/x"}]),
            },
            "there is no file .*no",
        ),
        (
            {
                "task_id": "b",
                "config": step("download", files=[{"url": "ftp://x/y", "path": "/x"}]),
            },
            r"'ftp://x/y' is neither an http",
        ),
        (
            {
                "task_id": "b",
                "config": step("download", files=[{"url": "file:///no/x", "path": "/x"}]),
            },
            "there is no file /no/x",
        ),
        ({"task_id": "b", "config": graded(func="compare_table")}, "'compare_table' is not supp"),
        ({"task_id": "b", "config": graded(func=[])}, "must not be an empty list"),
        ({"task_id": "b", "config": graded(func=["exact_match"])}, "result must be a list of 1"),
        ({"task_id": "b", "config": graded(conj="xor")}, "'and' or 'or', got 'xor'"),
        ({"task_id": "b", "config": graded(result=None)}, "result must be an object"),
        ({"task_id": "b", "config": graded(result={"type": "vlc_config"})}, "getter 'vlc_config'"),
        (
            {"task_id": "b", "config": graded(result={"type": "vm_file", "path": "/x"})},
            "exact_match takes a text, not a file",
        ),
        (
            {"task_id": "b", "config": graded(expected={"type": "rule", "rules": {}})},
            "rules of exact_match must have 'expected'",
        ),
        (
            {"task_id": "b", "config": graded(result={"type": "vm_file", "multi": True})},
            "several files at once is not supported",
        ),
        ({"task_id": "b", "config": graded(options={"fuzz": 1})}, "supported here: none; got"),
        (
            {"task_id": "b", "config": graded(postconfig=[{"type": "login", "parameters": {}}])},
            r"evaluator\.postconfig\[0\]: step 'login' is not supported",
        ),
    ],
)
def test_a_bad_entry_is_named_with_what_to_change(checkout: Path, entry: Any, says: str) -> None:
    entries = [{"task_id": "good", "task": "edit_text"}, entry]
    with pytest.raises(ConfigError, match=says) as caught:
        parse_tasks(entries, backend="local", osworld_path=checkout)
    assert "entry 1" in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    entries = [{"task_id": "a", "task": "edit_text", "seed": 1}]
    file.write_text(json.dumps(entries), encoding="utf-8-sig")
    assert [task.task_id for task in load_tasks(file, backend="local")] == ["a"]


def test_all_problems_are_told_at_once() -> None:
    bad = config(
        config=[{"type": "dance"}, {"type": "execute", "parameters": {"command": "sudo x"}}],
        evaluator={"func": "guess", "result": {"type": "wish"}, "expected": None},
    )
    entries = [
        {"task_id": "a", "config": bad},
        {"task_id": "b"},
        3,
        {"task_id": "c", "domain": "os"},
    ]
    with pytest.raises(ConfigError) as caught:
        parse_tasks(entries, backend="local")
    told = str(caught.value)
    for word in (
        "dance",
        "sudo",
        "guess",
        "wish",
        "expected",
        "entry 1 (b)",
        "entry 2:",
        "--osworld",
    ):
        assert word in told


def test_very_many_problems_are_cut_and_counted() -> None:
    with pytest.raises(ConfigError, match="500 problem") as caught:
        parse_tasks([{}] * 500, backend="local")
    assert len(str(caught.value)) < 5_000


def test_a_checkout_without_tasks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no folder evaluation_examples"):
        parse_tasks([{"task_id": "a", "domain": "os"}], backend="local", osworld_path=tmp_path)


def test_programs_are_only_looked_for_where_the_guest_is_this_host() -> None:
    entry = {"task_id": "a", "config": step("launch", command=["no-such-program"])}
    assert parse_tasks([entry], backend="elsewhere")


def test_every_task_of_an_osworld_checkout_loads_or_is_refused_by_name() -> None:
    """Set LEGATO_OSWORLD to a checkout; public task files, none of them ours to keep."""
    if not (root := os.environ.get("LEGATO_OSWORLD")):
        pytest.skip("LEGATO_OSWORLD does not name an OSWorld checkout")
    files = sorted(Path(root).glob("evaluation_examples/examples/*/*.json"))
    assert files
    ours = r"is not supported|is not installed|pyautogui|sudo|no password|a proxy|supported with"
    theirs = r"needs the package|a Google account|a proxy"
    for backend, named in (("local", ours), ("osworld", theirs)):
        runnable = 0
        for file in files:
            entry = {"task_id": file.stem, "domain": file.parent.name}
            try:
                runnable += len(parse_tasks([entry], backend=backend, osworld_path=Path(root)))
            except ConfigError as e:
                reasons = str(e).splitlines()[1:]
                assert reasons
                assert all(re.search(named, reason) for reason in reasons), reasons
        assert runnable > 0
