"""OSWorld's steps, getters and metrics against files and commands of a plain folder."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.actions import Done, Fail
from legato.desktop.contract import Score, Task, Window
from legato.errors import EnvFailure
from legato.tasks import parse_tasks
from legato.tasks.osworld import fetch as fetching
from legato.tasks.osworld.steps import opener
from tests.tasks.disk_machine import DiskMachine


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def task_of(evaluator: dict[str, Any], *steps: dict[str, Any], base: Path | None = None) -> Task:
    config = {"instruction": "Do it.", "config": list(steps), "evaluator": evaluator}
    return parse_tasks([{"task_id": "t", "config": config}], backend="local", base=base)[0]


def step(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"type": kind, "parameters": parameters}


INFEASIBLE = {"func": "infeasible"}


def grade(machine: DiskMachine, evaluator: dict[str, Any], base: Path | None = None) -> Score:
    task = task_of(evaluator, base=base)
    task.setup(machine)
    machine.ended_by = Done()
    return task.grade(machine)


def output_of(command: Any, func: str = "exact_match", **more: Any) -> dict[str, Any]:
    options = more.pop("options", {})
    shell = more.pop("shell", False)
    return {
        "func": func,
        "result": {"type": "vm_command_line", "command": command, "shell": shell},
        "expected": {"type": "rule", "rules": more["rules"]},
        "options": options,
    }


# --- metrics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "func", "rules", "options", "reward"),
    [
        ("1", "exact_match", {"expected": "1"}, {}, 1.0),
        ("1\n", "exact_match", {"expected": "1"}, {}, 0.0),
        ("b", "match_in_list", {"expected": ["a", "b"]}, {}, 1.0),
        ("c", "match_in_list", {"expected": ["a", "b"]}, {}, 0.0),
        ("a b c", "is_in_list", {"expected": "b"}, {}, 1.0),
        ("a c", "is_in_list", {"expected": "b"}, {}, 0.0),
        ("spotify", "check_include_exclude", {"include": ["spot"], "exclude": ["no"]}, {}, 1.0),
        ("no spot", "check_include_exclude", {"include": ["spot"], "exclude": ["no"]}, {}, 0.0),
        ("x", "check_include_exclude", {"include": ["spot"]}, {}, 0.0),
        ("Yes", "literal_match", "Yes", {}, 1.0),
        ("yes", "literal_match", "Yes", {}, 0.0),
        ("yes", "literal_match", "Yes", {"ignore_case": True}, 1.0),
        ("kitten", "fuzzy_match", {"expected": "sitting"}, {}, 8 / 13),
        ("", "fuzzy_match", {"expected": ""}, {}, 1.0),
        ("abc", "fuzzy_match", {"expected": "xyz"}, {}, 0.0),
        ("naïve 😀", "fuzzy_match", {"expected": "naïve 😀"}, {}, 1.0),
    ],
)
def test_metrics_on_output(
    text: str,
    func: str,
    rules: Any,
    options: dict[str, Any],
    reward: float,
    machine: DiskMachine,
) -> None:
    score = grade(
        machine, output_of(["printf", "%s", text], func=func, rules=rules, options=options)
    )
    assert score.reward == pytest.approx(reward)


@pytest.mark.parametrize(
    ("result", "gold", "func", "options", "reward"),
    [
        (b"a\nb\n", b"a\nb\n", "compare_text_file", {}, 1.0),
        (b"a\r\nb\r\n", b"a\nb\n", "compare_text_file", {}, 1.0),
        (b"a  b\n", b"a b", "compare_text_file", {}, 0.0),
        (b"a  b\n\n", b"a\tb", "compare_text_file", {"ignore_blanks": True}, 1.0),
        (b"A", b"a", "compare_text_file", {"ignore_case": True}, 1.0),
        (None, b"a", "compare_text_file", {}, 0.0),
        (b"\xff\xfe", b"a", "compare_text_file", {}, 0.0),
        (b"x" * (5 * 2**20), b"a", "compare_text_file", {}, 0.0),
        (b"a\nb\nc\nd\n", b"a\nb\nc\nx\n", "diff_text_file", {}, 0.75),
        (b"z\n" * 400_000, b"a\n", "diff_text_file", {}, 0.0),
    ],
)
def test_metrics_on_files(
    result: bytes | None,
    gold: bytes,
    func: str,
    options: dict[str, Any],
    reward: float,
    machine: DiskMachine,
    tmp_path: Path,
) -> None:
    (tmp_path / "gold.txt").write_bytes(gold)
    if result is not None:
        (machine.root / "out.txt").write_bytes(result)
    evaluator = {
        "func": func,
        "result": {"type": "vm_file", "path": "~/out.txt", "dest": "out.txt"},
        "expected": {"type": "cloud_file", "path": f"file://{tmp_path}/gold.txt", "dest": "g"},
        "options": options,
    }
    assert grade(machine, evaluator).reward == pytest.approx(reward)


@pytest.mark.parametrize(
    ("expect", "unexpect", "reward"),
    [(["^a", "b$"], ["z"], 1.0), (["^b$"], [], 0.0), (["a"], ["a b"], 0.0)],
)
def test_check_list(
    expect: list[str], unexpect: list[str], reward: float, machine: DiskMachine
) -> None:
    (machine.root / "list.txt").write_text("a b\nc\n")
    evaluator = {
        "func": "check_list",
        "result": {"type": "vm_file", "path": f"{machine.home}/list.txt"},
        "expected": {"type": "rule", "rules": {"expect": expect, "unexpect": unexpect}},
    }
    assert grade(machine, evaluator).reward == reward


@pytest.mark.parametrize(
    ("conj", "outputs", "reward"),
    [
        ("and", "11", 1.0),
        ("and", "10", 0.0),
        ("or", "10", 1.0),
        ("or", "00", 0.0),
    ],
)
def test_lists_of_metrics(conj: str, outputs: str, reward: float, machine: DiskMachine) -> None:
    single = [output_of(["printf", text], rules={"expected": "1"}) for text in outputs]
    evaluator = {
        "func": [one["func"] for one in single],
        "conj": conj,
        "result": [one["result"] for one in single],
        "expected": [one["expected"] for one in single],
    }
    assert grade(machine, evaluator).reward == reward


@pytest.mark.parametrize(("conj", "reward"), [("and", (8 / 13 + 1) / 2), ("or", 1.0)])
def test_partial_credit_is_averaged_by_and_and_the_best_counts_by_or(
    conj: str, reward: float, machine: DiskMachine
) -> None:
    one = output_of(["printf", "kitten"], func="fuzzy_match", rules={"expected": "sitting"})
    two = output_of(["printf", "1"], rules={"expected": "1"})
    evaluator = {name: [one[name], two[name]] for name in ("func", "result", "expected")}
    assert grade(machine, {**evaluator, "conj": conj}).reward == pytest.approx(reward)


# --- getters -----------------------------------------------------------------------------------


def test_output_comes_before_the_freeze_and_files_after(machine: DiskMachine) -> None:
    grade(machine, output_of("cat x", rules={"expected": ""}))
    assert machine.frozen


@pytest.mark.parametrize("command", ["no-such-thing --version", ["no-such-thing"]])
def test_a_program_that_is_not_there_gives_no_output_at_all(
    command: Any, machine: DiskMachine
) -> None:
    rules = {"exclude": ["anything"]}
    evaluator = output_of(command, func="check_include_exclude", rules=rules)
    assert grade(machine, evaluator).reward == 0.0


def test_a_shells_own_complaint_is_output(machine: DiskMachine) -> None:
    evaluator = output_of("no-such-thing", rules={"include": ["not found"]}, shell=True)
    evaluator["func"] = "check_include_exclude"
    evaluator["result"]["type"] = "vm_command_error"
    assert grade(machine, evaluator).reward == 1.0


def test_a_command_that_hangs_is_a_verdict_of_0(
    machine: DiskMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("legato.tasks.osworld.commands.COMMAND_S", 0.5)
    assert grade(machine, output_of("sleep 30", rules={"expected": ""})).reward == 0.0


# --- how the episode ended ---------------------------------------------------------------------


@pytest.mark.parametrize(("ended_by", "reward"), [(Fail(), 1.0), (Done(), 0.0), (None, 0.0)])
def test_an_infeasible_task_is_won_by_fail_alone(
    ended_by: Any, reward: float, machine: DiskMachine
) -> None:
    task = task_of(INFEASIBLE)
    task.setup(machine)
    machine.ended_by = ended_by
    assert task.grade(machine).reward == reward


def test_fail_loses_a_feasible_task_even_when_its_state_is_right(machine: DiskMachine) -> None:
    task = task_of(output_of(["printf", "1"], rules={"expected": "1"}))
    task.setup(machine)
    machine.ended_by = Fail()
    assert task.grade(machine).reward == 0.0


# --- set-up steps ------------------------------------------------------------------------------


def test_commands_run_as_lists_as_words_and_in_a_shell(machine: DiskMachine) -> None:
    steps = [
        step("execute", command=["touch", "~/a b.txt"]),
        step("command", command="touch c.txt"),
        step("execute", command="echo {SCREEN_WIDTH}x{SCREEN_HEIGHT_HALF} > d.txt", shell=True),
        step("execute", command=["false"]),
        step("sleep", seconds=0),
    ]
    task_of(INFEASIBLE, *steps).setup(machine)
    assert {p.name for p in machine.root.iterdir()} == {"a b.txt", "c.txt", "d.txt"}
    assert (machine.root / "d.txt").read_text() == "1280x360\n"


def test_a_set_up_command_that_cannot_run_or_end_is_an_env_failure(
    machine: DiskMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EnvFailure, match="could not run"):
        task_of(INFEASIBLE, step("execute", command=["~/nothing"])).setup(machine)
    monkeypatch.setattr("legato.tasks.osworld.commands.COMMAND_S", 0.2)
    with pytest.raises(EnvFailure, match="took longer"):
        task_of(INFEASIBLE, step("execute", command=["sleep", "20"])).setup(machine)


def test_uploads_start_at_the_tasks_folder(machine: DiskMachine, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.bin").write_bytes(b"\0\1")
    files = [{"local_path": "data/x.bin", "path": "~/deep/x.bin"}]
    task_of(INFEASIBLE, step("upload_file", files=files), base=tmp_path).setup(machine)
    assert (machine.root / "deep" / "x.bin").read_bytes() == b"\0\1"


@pytest.fixture
def web() -> Iterator[tuple[str, list[str]]]:
    """A server that answers ``/ok`` and logs what is asked."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/ok")
            else:
                self.send_response({"/ok": 200, "/busy": 503}.get(self.path, 404))
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_downloads_follow_redirects_and_are_fetched_once(
    web: tuple[str, list[str]], machine: DiskMachine
) -> None:
    url, asked = web
    files = [{"url": f"{url}/moved", "path": f"{machine.home}/got.txt"}]
    for _ in range(3):
        task_of(INFEASIBLE, step("download", files=files)).setup(machine)
    assert (machine.root / "got.txt").read_bytes() == b"hello"
    assert asked == ["/moved", "/ok"]


@pytest.mark.parametrize(("path", "transient"), [("/busy", True), ("/gone", False)])
def test_a_failed_download_is_an_env_failure(
    path: str, transient: bool, web: tuple[str, list[str]], machine: DiskMachine
) -> None:
    files = [{"url": web[0] + path, "path": "/x"}]
    with pytest.raises(EnvFailure, match="HTTP") as caught:
        task_of(INFEASIBLE, step("download", files=files)).setup(machine)
    assert caught.value.transient is transient


def test_a_gold_file_that_cannot_be_fetched_fails_at_set_up(machine: DiskMachine) -> None:
    evaluator = {
        "func": "compare_text_file",
        "result": {"type": "vm_file", "path": "/x"},
        "expected": {"type": "cloud_file", "path": "http://127.0.0.1:9/gold"},
    }
    with pytest.raises(EnvFailure, match="could not download"):
        task_of(evaluator).setup(machine)


def test_a_download_over_the_limit_is_refused(
    web: tuple[str, list[str]], machine: DiskMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MAX_BYTES", 3)
    files = [{"url": web[0] + "/ok", "path": "/x"}]
    with pytest.raises(EnvFailure, match="larger than 3 bytes"):
        task_of(INFEASIBLE, step("download", files=files)).setup(machine)


@pytest.mark.parametrize(
    ("path", "program"),
    [
        ("/home/user/a.txt", "mousepad"),
        ("/home/user/a.py", "mousepad"),
        ("notes.md", "mousepad"),
        ("/home/user/Desktop", "pcmanfm"),
        ("/home/user/v1.2/", "pcmanfm"),
        ("a.html", "chromium"),
        ("a.pdf", "chromium"),
        ("A.PNG", "chromium"),
        ("a.xlsx", "libreoffice"),
        ("a.weird", "xdg-open"),
    ],
)
def test_what_opens_what(path: str, program: str) -> None:
    assert opener(path) == program


def window(number: int, title: str) -> Window:
    return Window(number, title, "app.App", 1, 0, 0, 10, 10)


def test_windows_are_found_by_part_or_by_the_whole_title(machine: DiskMachine) -> None:
    machine.window_list = [window(1, "Notes - Mousepad"), window(2, "notes")]
    steps = [
        step("activate_window", window_name="mousepad"),
        step("activate_window", window_name="notes", strict=True),
        step("activate_window", window_name="App", by_class=True),
        step("close_window", window_name="Notes - M"),
    ]
    task_of(INFEASIBLE, *steps).setup(machine)
    assert machine.activated == [1, 2, 1]
    assert [w.id for w in machine.window_list] == [2]


def test_a_missing_window_fails_set_up_but_not_grading(
    machine: DiskMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("legato.tasks.osworld.steps.WINDOW_S", 0.2)
    missing = step("activate_window", window_name="Nowhere")
    with pytest.raises(EnvFailure, match="no window named 'Nowhere'; there are: none"):
        task_of(INFEASIBLE, missing).setup(machine)
    evaluator = output_of(["printf", "1"], rules={"expected": "1"})
    failing = step("execute", command=["false"])
    assert grade(machine, {**evaluator, "postconfig": [missing, failing]}).reward == 1.0
