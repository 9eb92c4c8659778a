"""``python -m legato.tasks new`` and ``qa`` as commands, on real desktops, with tasks of others."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from legato.tasks import load_task
from legato.tasks.qa import Gate

REPO = Path(__file__).resolve().parents[3]

BAD = '''
from unittest import mock

from legato.errors import EnvFailure
from legato.tasks.desktop_basics.settings_tabs import SettingsTabs
from legato.tasks.seeded import SeededTask


class Unkeyed(SettingsTabs):
    """Its page's secret is known to everyone."""

    suite, name = "bad", "unkeyed"

    def setup(self, machine):
        with mock.patch("secrets.token_hex", return_value=""):
            super().setup(machine)


class Unready(SettingsTabs):
    """Its set-up does not work."""

    suite, name = "bad", "unready"

    def setup(self, machine):
        machine.launch(["no-such-program"])


TASKS = {task.name: task for task in (Unkeyed, Unready)}
'''


@dataclass(frozen=True)
class Place:
    """Where packages are installed, for programs that are given it."""

    site: Path

    def run(self, *arguments: str, cwd: Path | None = None) -> tuple[int, str, str]:
        """Exit code, standard output, and what a terminal shows of standard error."""
        ours, theirs = pty.openpty()
        environment = os.environ | {
            "PYTHONPATH": f"{REPO}:{self.site}",
            "COLUMNS": "200",
            "TERM": "xterm",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=subprocess.PIPE,
            stderr=theirs,
            cwd=cwd or self.site,
            env=environment,
        )
        os.close(theirs)
        shown = b"".join(_read_terminal(ours))
        os.close(ours)
        out, _ = process.communicate(timeout=60)
        return process.returncode, out.decode(), shown.decode()


def _read_terminal(terminal: int) -> Iterator[bytes]:
    """Until the last program on it has ended."""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # how Linux says so
            return
        if not chunk:
            return
        yield chunk


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "site").mkdir()
    return Place(tmp_path / "site")


@pytest.mark.desktop
def test_a_scaffold_passes_the_gate_as_it_stands(place: Place, tmp_path: Path) -> None:
    code, out, shown = place.run("legato.tasks", "new", "my_note", "--into", str(tmp_path))
    assert code == 0, shown[-500:]
    package = tmp_path / "my_note"
    assert sorted(out.split()) == sorted(str(p) for p in package.rglob("*.*"))
    options = ("-q", "--no-index", "--no-deps", "--no-build-isolation")
    code, _, shown = place.run("pip", "install", *options, "--target", str(place.site), package)
    assert code == 0, shown[-500:]

    report = tmp_path / "report.json"
    code, out, shown = place.run(
        *("legato.tasks", "qa", "my_note", "--variants", "1", "--report", str(report))
    )
    assert code == 0, out
    number = len(Gate().checks(load_task("edit_text")))  # no task of the web, either
    assert f"{number} of {number} checks passed" in out
    assert "my_note 0" in shown
    assert len(set(re.findall(rf"\d+/{number}", shown))) > 2, "a bar that moves"
    told = json.loads(report.read_text())
    assert told["exit_code"] == 0
    assert {(f["task"], f["seed"], f["passed"]) for f in told["findings"]} == {("my_note", 0, True)}

    code, out, shown = place.run("pytest", "-q", "-m", "not desktop", cwd=package)
    assert code == 0, out


@pytest.mark.parametrize("name", ["my-note", "Note", "class", "settings_tabs", "buttons", "legato"])
def test_a_name_that_cannot_be_had(name: str, place: Place, tmp_path: Path) -> None:
    code, _, shown = place.run("legato.tasks", "new", name, "--into", str(tmp_path / "into"))
    assert code == 2
    assert name in shown
    assert not (tmp_path / "into").exists()


def test_what_is_there_is_not_written_over(place: Place, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("x")
    code, _, shown = place.run("legato.tasks", "new", "mine", "--into", str(tmp_path))
    assert code == 2
    assert "exists already" in shown
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["precious"]


def install(place: Place, source: str) -> None:
    (place.site / "bad.py").write_text(textwrap.dedent(source))
    metadata = place.site / "bad-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[legato.suites]\nbad = bad:TASKS\n")


@pytest.mark.desktop
def test_a_task_that_can_be_fooled_ends_in_1_and_a_broken_one_in_2(place: Place) -> None:
    install(place, BAD)
    options = ("--variants", "1", "--only", "requests straight")
    code, out, shown = place.run("legato.tasks", "qa", "unkeyed", *options)
    assert code == 1, shown[-500:]
    (line,) = [line for line in out.splitlines() if "requests straight" in line]
    assert line.split()[0] == "unkeyed"
    assert "0/1" in line
    assert "it earned 1" in line
    assert "1 of 2 checks passed" in out

    code, out, shown = place.run("legato.tasks", "qa", "unready", *options)
    assert code == 2, shown[-500:]
    assert "no-such-program" in out


@pytest.mark.desktop
def test_an_interrupted_gate_leaves_its_report(place: Place, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "legato.tasks", "qa", "settings_tabs", "--variants", "1"]
    process = subprocess.Popen(
        [*command, "--report", str(report)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(REPO)},
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    process.terminate()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    found = re.fullmatch(r"(\d+) of (\d+) checks, 0 failed, .* min: settings_tabs 0\n", first)
    assert found is not None, first
    told = json.loads(report.read_text())
    assert told["complete"] is False
    assert int(found[1]) <= len(told["findings"]) < int(found[2])
    assert f"INCOMPLETE: interrupted after {len(told['findings'])} of {found[2]} checks" in out


def test_a_package_that_does_not_load_is_named(place: Place) -> None:
    install(place, "import nothing_like_it")
    code, _, shown = place.run("legato.tasks", "list")
    assert code == 2
    assert "suite 'bad' (bad:TASKS) does not load" in " ".join(shown.split())


def test_a_suite_does_not_take_the_name_of_another(place: Place) -> None:
    install(place, "TASKS = {}")
    (place.site / "bad-0.dist-info" / "entry_points.txt").write_text(
        "[legato.suites]\nbuttons = bad:TASKS\n"
    )
    code, _, shown = place.run("legato.tasks", "list")
    assert code == 2
    assert "has the name of another one" in " ".join(shown.split())
