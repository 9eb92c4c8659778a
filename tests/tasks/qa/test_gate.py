"""The gate itself: what is wrong with a task is found, and said on the line where it belongs."""

from __future__ import annotations

import io
import itertools
import json
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from legato.desktop.actions import AnyAction, Done, Key, Type
from legato.desktop.contract import DesktopOptions, Machine
from legato.errors import ConfigError, EnvFailure
from legato.tasks import load_task
from legato.tasks.qa import Finding, Gate, Report, Tally, run_gate
from legato.tasks.qa.attacks import ATTACKS
from tests.tasks.qa.paper import SAVED, Note, PaperDesktop

SOUND = """
def judge(evidence):
    return [{"name": "typed", "kind": "progress", "passed": evidence["saved"] == evidence["word"]}]
"""


@pytest.fixture
def judged(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a judge."""
    numbers = itertools.count()

    def write(source: str) -> Path:
        path = tmp_path / f"judge_{next(numbers)}.py"
        path.write_text(textwrap.dedent(source))
        return path

    return write


def wrong_lines(report: Report) -> list[str]:
    return [f.check for f in report.findings if not f.passed]


def test_a_sound_task_passes(judged: Callable[[str], Path]) -> None:
    ticks: list[Finding] = []
    task = Note(3, "t", verifier=judged(SOUND))
    report = run_gate([task], PaperDesktop, progress=ticks.append)
    assert (report.exit_code, wrong_lines(report)) == (0, [])
    assert ticks == list(report.findings)
    assert [f.check for f in report.findings] == [name for name, _ in Gate().checks(task)]


JUDGES = {
    "the initial state earns nothing": """
        def judge(evidence):
            good = evidence["saved"] in ("", evidence["word"])
            return [{"name": "right", "kind": "progress", "passed": good}]
    """,
    "quitting at once earns nothing": """
        def judge(evidence):
            good = evidence["saved"] == evidence["word"] or evidence["ended"] == "done"
            return [{"name": "right", "kind": "progress", "passed": good}]
    """,
    "saying FAIL earns nothing": """
        def judge(evidence):
            good = evidence["saved"] == evidence["word"] or evidence["ended"] == "fail"
            return [{"name": "right", "kind": "progress", "passed": good}]
    """,
    "the reference episode earns 1": """
        def judge(evidence):
            return [{"name": "right", "kind": "progress", "passed": evidence["saved"] == "another"}]
    """,
    "every action once earns nothing": """
        def judge(evidence):
            good = bool(evidence["saved"]) and not evidence["saved"].startswith("x")
            return [{"name": "right", "kind": "progress", "passed": good}]
    """,
    "scoring again gives the same": """
        import os
        def judge(evidence):
            good = evidence["saved"] == evidence["word"]
            detail = str(os.getpid())
            return [{"name": "right", "kind": "progress", "passed": good, "detail": detail}]
    """,
}  # fmt: skip


@pytest.mark.parametrize("line", JUDGES)
def test_a_judge_that_can_be_had(line: str, judged: Callable[[str], Path]) -> None:
    report = run_gate([Note(3, "t", verifier=judged(JUDGES[line]))], PaperDesktop)
    assert report.exit_code == 1
    assert line in wrong_lines(report)
    assert not any(f.error for f in report.findings)


class Farmable(Note):
    """Half of it is paid for a save, which takes one key."""

    def cheap_actions(self, machine: Machine) -> Iterator[AnyAction]:
        yield from (Type(text="anything"), Key(key="ctrl+s"), Done())


def test_partial_credit_that_a_cheap_policy_farms(judged: Callable[[str], Path]) -> None:
    judge = judged("""
        def judge(evidence):
            saved, word = evidence["saved"], evidence["word"]
            return [
                {"name": "typed", "kind": "progress", "passed": saved == word},
                {"name": "saved", "kind": "progress", "passed": saved != ""},
            ]
    """)
    report = run_gate([Farmable(3, "t", verifier=judge)], PaperDesktop)
    assert report.exit_code == 1
    assert "cheap credit alone earns nothing" in wrong_lines(report)
    found = next(f for f in report.findings if f.check.startswith("cheap"))
    assert found.detail.startswith("it earned 0.5: 1/2 changes made")


class Clocked(Note):
    def setup(self, machine: Machine) -> None:
        super().setup(machine)
        machine.write_file("/home/user/clock", str(time.monotonic_ns()).encode())


def test_a_clock_on_the_screen(judged: Callable[[str], Path]) -> None:
    report = run_gate([Clocked(3, "t", verifier=judged(SOUND))], PaperDesktop)
    assert report.exit_code == 1
    assert wrong_lines(report) == ["every reset shows the same screen"]


class Unguarded(Note):
    """Its saved state lies where every program of the agent can write, and nothing checks it."""

    def cheap_actions(self, machine: Machine) -> Iterator[AnyAction]:
        machine.write_file(SAVED, self.word.encode())
        yield Done()


def test_a_state_that_was_forged(judged: Callable[[str], Path]) -> None:
    report = run_gate([Unguarded(3, "t", verifier=judged(SOUND))], PaperDesktop)
    assert report.exit_code == 1
    assert wrong_lines(report) == ["cheap credit alone earns nothing"]


class Unready(Note):
    def setup(self, machine: Machine) -> None:
        raise EnvFailure("there is no such program")


class Mistaken(Note):
    def setup(self, machine: Machine) -> None:
        raise KeyError("a mistake")


@pytest.mark.parametrize(
    ("kind", "says"),
    [(Unready, "EnvFailure: there is no such"), (Mistaken, "KeyError: 'a mistake")],
)
def test_a_set_up_that_is_broken_is_no_fault_of_the_verifier(
    kind: type[Note], says: str, judged: Callable[[str], Path]
) -> None:
    report = run_gate([kind(3, "t", verifier=judged(SOUND))], PaperDesktop)
    assert report.exit_code == 2
    assert report.findings[0].error
    assert report.findings[0].detail.startswith(says)


def test_a_verifier_that_crashes_is_a_check_that_could_not_be_made(
    judged: Callable[[str], Path],
) -> None:
    judge = judged("def judge(evidence):\n    raise RuntimeError('boom')\n")
    report = run_gate([Note(3, "t", verifier=judge)], PaperDesktop)
    assert report.exit_code == 2
    assert "boom" in report.findings[0].detail


def test_no_desktop_and_no_task_are_errors(judged: Callable[[str], Path]) -> None:
    def none(options: DesktopOptions, slot: int) -> PaperDesktop:
        raise ConfigError("no such option")

    with pytest.raises(ConfigError, match="no such option"):
        run_gate([Note(3, "t", verifier=judged(SOUND))], none)
    with pytest.raises(ConfigError, match="no task"):
        run_gate([], PaperDesktop)


def test_variants_are_checked_side_by_side_and_reported_in_order(
    judged: Callable[[str], Path],
) -> None:
    meeting = threading.Barrier(2, timeout=60.0)

    @dataclass(frozen=True)
    class Met(Note):
        def setup(self, machine: Machine) -> None:
            super().setup(machine)
            meeting.wait()

    judge = judged(SOUND)
    gate = Gate(only=("FAIL", "initial"))
    report = run_gate([Met(n, "t", verifier=judge) for n in (5, 4)], PaperDesktop, gate=gate)
    assert report.exit_code == 0
    lines = ["the reference episode earns 1", "the initial state earns nothing"]
    lines.append("saying FAIL earns nothing")
    assert [(f.seed, f.check) for f in report.findings] == [(n, c) for n in (5, 4) for c in lines]


def test_the_short_form_leaves_no_agent_and_no_attacker_out_in_turn() -> None:
    task = load_task("settings_tabs")
    every = {name for name, _ in Gate().checks(task)}
    seen: set[str] = set()
    for seed in range(70):
        names = [name for name, _ in Gate(short=True).checks(load_task("settings_tabs", seed))]
        assert sum(name.startswith("attack: ") for name in names) == 1
        seen |= set(names)
    assert seen == every
    assert sum(name.startswith("attack: ") for name in every) == len(ATTACKS)


def test_the_report_says_all_of_it_as_json_and_as_one_line_a_check(tmp_path: Path) -> None:
    good = Finding("note", 0, "a", True, "", 1.5)
    bad = Finding("note", 1, "a", False, "it earned 1: [red]all[/red]", 2.0)
    report = Report((good, bad), 2)
    report.write(tmp_path / "report.json")
    told = json.loads((tmp_path / "report.json").read_text())
    assert told["schema"] == "legato.qa/v0"
    assert (told["exit_code"], told["complete"]) == (1, True)
    keys = {"task", "seed", "check", "passed", "detail", "seconds", "error", "retried"}
    assert [set(finding) for finding in told["findings"]] == [keys, keys]
    assert told["findings"][1]["detail"] == bad.detail
    assert list(tmp_path.iterdir()) == [tmp_path / "report.json"]
    shown = io.StringIO()
    Console(file=shown, width=120).print(report.table())
    (line,) = [text for text in shown.getvalue().splitlines() if text.startswith("note")]
    assert " ".join(line.split()) == "note a 1/2 variant 1: it earned 1: [red]all[/red]"


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([], 2),
        ([(True, False)], 0),
        ([(True, False), (False, False)], 1),
        ([(False, True), (False, False)], 2),
    ],
)
def test_the_exit_code(findings: list[tuple[bool, bool]], code: int) -> None:
    made = [Finding("t", 0, "c", passed, "", 0.0, error) for passed, error in findings]
    assert Report(tuple(made), len(made)).exit_code == code


class Killable(PaperDesktop):
    """Its machine can be taken away while something hangs on it."""

    def __init__(self, options: DesktopOptions, slot: int) -> None:
        super().__init__(options, slot)
        self.gone = threading.Event()

    def kill(self) -> None:
        self.gone.set()

    def close(self) -> None:
        super().close()
        closed.append(self)


closed: list[Killable] = []


def test_an_interrupt_keeps_what_was_found_and_closes_the_desktops(
    judged: Callable[[str], Path],
) -> None:
    made: list[Killable] = []
    closed.clear()

    def make(options: DesktopOptions, slot: int) -> Killable:
        made.append(Killable(options, slot))
        return made[-1]

    @dataclass(frozen=True)
    class Hanging(Note):
        """Its third set-up ends only with its desktop."""

        def setup(self, machine: Machine) -> None:
            super().setup(machine)
            if len(ticks) == 2:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                assert made[0].gone.wait(60.0)
                raise EnvFailure("the desktop was killed")

    ticks: list[Finding] = []
    task = Hanging(3, "t", verifier=judged(SOUND))
    with pytest.raises(KeyboardInterrupt):
        run_gate([task], make, progress=ticks.append)
    assert [f.check for f in ticks] == [name for name, _ in Gate().checks(task)][:2]
    assert all(finding.passed for finding in ticks)
    assert closed == made
    for worker in [t for t in threading.enumerate() if t.name.startswith("qa-")]:
        worker.join(10.0)
        assert not worker.is_alive()


def test_a_long_gate_tells_now_and_then_how_far_it_is_and_keeps_the_report_up(
    tmp_path: Path,
) -> None:
    now, lines = 0.0, []
    path = tmp_path / "report.json"
    tally = Tally(4, lines.append, path, clock=lambda: now)
    good = Finding("note", 0, "a", True, "", 1.5)
    now = 9.0
    tally.add(good)
    assert (lines, path.exists()) == ([], False)
    now = 12.0
    tally.add(Finding("note", 1, "a", False, "it earned 1", 2.0))
    assert lines == ["note 1: a: it earned 1", "2 of 4 checks, 1 failed, 0.2 min: note 1"]
    told = json.loads(path.read_text())
    assert (told["complete"], told["exit_code"], len(told["findings"])) == (False, 2, 2)
    now = 13.0
    tally.add(good)
    assert len(lines) == 2
    tally.add(good)
    assert lines[2:] == ["4 of 4 checks, 1 failed, 0.2 min: note 0"]
    told = json.loads(path.read_text())
    assert (told["complete"], told["exit_code"], len(told["findings"])) == (True, 1, 4)


def test_a_check_that_a_desktop_failed_under_is_made_again_and_says_so(
    judged: Callable[[str], Path],
) -> None:
    failures = iter([EnvFailure("it was lost")])

    class Unsteady(Note):
        def setup(self, machine: Machine) -> None:
            super().setup(machine)
            for failure in failures:
                raise failure

    report = run_gate([Unsteady(3, "t", verifier=judged(SOUND))], PaperDesktop)
    assert report.exit_code == 0
    assert [f.retried for f in report.findings if f.retried] == ["EnvFailure: it was lost"]
    assert report.findings[0].retried
