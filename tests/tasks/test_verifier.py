"""The verifier process: what a judge may do, and what happens when it breaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from legato.desktop.contract import Check
from legato.errors import GradeFailure
from legato.tasks import confined, list_tasks, load_task
from legato.tasks.host_process import Limits
from legato.tasks.scoring import score_checks
from legato.tasks.verifier import UNREADABLE, run_judge

QUICK = Limits(wall_s=60.0, cpu_s=1, memory_bytes=256 * 2**20, output_bytes=2**16)


def write_judge(folder: Path, body: str) -> Path:
    path = folder / "judge.py"
    source = textwrap.dedent(body)
    if "def judge" not in source:
        source = "def judge(evidence):\n" + textwrap.indent(source, "    ")
    path.write_text(source)
    return path


def test_a_verdict_comes_back_as_checks(tmp_path: Path) -> None:
    judge = write_judge(
        tmp_path,
        """
        return [{"name": n, "kind": "progress", "passed": n == "b"} for n in evidence["names"]]
        """,
    )
    assert run_judge(judge, {"names": ["a", "b"]}, limits=QUICK) == [
        Check("a", "progress", False),
        Check("b", "progress", True),
    ]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise RuntimeError('boom')", "boom"),
        ("import os; os._exit(0)", "valid verdict"),
        ("import os; os.kill(os.getpid(), 11)", "signal 11"),
        ("x = bytearray(2**30)", "MemoryError"),
        ("x = [0]\nwhile True: x = x + x", "MemoryError"),
        ("while True: pass", "signal 24"),
        ("import time; time.sleep(60)", "deadline"),
        ("import sys; sys.stdout.write('x' * 2**20); sys.stdout.flush()", "File too large"),
        ("print('noise'); return []", "noise"),
        ("return []", "checks"),
        ("return [{'name': 'a', 'kind': 'bonus', 'passed': True}]", "kind"),
        ("return [{'name': 'a', 'kind': 'progress', 'passed': 'yes'}]", "passed"),
        ("return [{'name': 'a', 'kind': 'progress', 'passed': True, 'reward': 1}]", "reward"),
        ("return [{'name': 'a', 'kind': 'guard', 'passed': True}] * 2", "twice"),
        ("return {'reward': 1.0}", "checks"),
        ("import os; os.fork()", "BlockingIOError"),
        ("import numpy", "numpy"),
        ("def judge(", "SyntaxError"),
    ],
)
def test_a_broken_judge_is_a_grade_failure_and_no_verdict(
    tmp_path: Path, body: str, says: str
) -> None:
    limits = Limits(wall_s=1.0) if says == "deadline" else QUICK
    with pytest.raises(GradeFailure, match=says):
        run_judge(write_judge(tmp_path, body), {}, limits=limits)


def test_a_missing_judge_is_a_grade_failure(tmp_path: Path) -> None:
    with pytest.raises(GradeFailure, match=r"gone\.py"):
        run_judge(tmp_path / "gone.py", {}, limits=QUICK)


def test_the_judge_is_confined(tmp_path: Path) -> None:
    judge = write_judge(
        tmp_path,
        """
        import json, os, sys
        seen = {
            "uid": os.geteuid(),
            "routes": open("/proc/self/net/route").read().count("\\n"),
            "environ": sorted(os.environ),
            "isolated": [sys.flags.isolated, sys.flags.no_site],
        }
        return [{"name": "seen", "kind": "progress", "passed": True, "detail": json.dumps(seen)}]
        """,
    )
    seen = json.loads(run_judge(judge, {}, limits=QUICK)[0].detail)
    assert seen["isolated"] == [1, 1]
    assert set(seen["environ"]) <= {"LC_ALL", "LC_CTYPE"}
    if os.geteuid() == 0:
        assert seen["uid"] != 0
        assert seen["routes"] <= 1, "only the header line: no route leads out"


def confined_under(wrapper: list[str], judge: Path) -> subprocess.CompletedProcess[str]:
    limits = {"cpu_s": 5, "memory_bytes": 2**28, "output_bytes": 2**16, "parent": os.getpid()}
    job = [sys.executable, "-I", "-S", confined.__file__, "judge", str(judge), json.dumps(limits)]
    return subprocess.run(
        [*wrapper, *job], input="{}", capture_output=True, text=True, timeout=60, cwd="/"
    )


def test_a_judge_that_keeps_the_network_does_nothing(tmp_path: Path) -> None:
    """A kernel that gives no network namespaces, to a user who has other rights."""
    mark = tmp_path / "ran"
    judge = write_judge(tmp_path, f"open({str(mark)!r}, 'w'); return []")
    deny = 'echo 0 > /proc/sys/user/max_net_namespaces && exec unshare -U --map-user=1000 "$@"'
    done = confined_under(["unshare", "-r", "sh", "-c", deny, "-"], judge)
    assert "could not leave the network" in done.stderr
    assert (done.returncode, done.stdout) == (confined.NETWORKED, "")
    assert not mark.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="it is about root")
def test_root_without_its_rights_leaves_the_network_as_any_user_does(tmp_path: Path) -> None:
    shown = "open('/proc/self/net/route').read().count('\\n'), os.stat('/proc/self/ns/net').st_ino"
    judge = write_judge(
        tmp_path,
        f"""
        import json, os
        seen = json.dumps([{shown}])
        return [{{"name": "seen", "kind": "progress", "passed": True, "detail": seen}}]
        """,
    )
    done = confined_under(["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all"], judge)
    assert done.returncode == 0, done.stderr
    routes, namespace = json.loads(json.loads(done.stdout)["checks"][0]["detail"])
    assert routes <= 1
    assert namespace != os.stat("/proc/self/ns/net").st_ino


def test_the_verdict_of_a_networked_judge_is_no_verdict(
    tmp_path: Path,
) -> None:
    """Not even when the untouched start can be judged: the agent has nothing to do with it."""
    judge = write_judge(tmp_path, "import os, sys\nif evidence: os._exit(77)\nreturn []")
    assert confined.NETWORKED == 77
    with pytest.raises(GradeFailure, match="exit status 77"):
        run_judge(judge, {"a": 1}, limits=QUICK, untouched=dict)


def test_hostile_evidence_reaches_the_judge_unharmed(tmp_path: Path) -> None:
    judge = write_judge(
        tmp_path,
        """
        ok = evidence["text"] == "\\ud800 \\0 </script>" and len(evidence["long"]) == 10**6
        return [{"name": "same", "kind": "progress", "passed": ok}]
        """,
    )
    checks = run_judge(judge, {"text": "\ud800 \0 </script>", "long": "x" * 10**6}, limits=QUICK)
    assert checks[0].passed


def test_the_score_is_the_share_of_progress_unless_a_guard_fails() -> None:
    half = [Check("a", "progress", True), Check("b", "progress", False), Check("g", "guard", True)]
    assert score_checks(half).reward == 0.5
    broken = [*half, Check("h", "guard", False)]
    assert score_checks(broken).reward == 0.0
    assert "h" in score_checks(broken).output
    with pytest.raises(GradeFailure):
        score_checks([Check("g", "guard", True)])


# --- whose doing a crash is ----------------------------------------------------------------------

PICKY = """
def judge(evidence):
    if evidence["file"] == "bomb":
        {how}
    return [{{"name": "made", "kind": "progress", "passed": evidence["file"] == "good"}}]
"""


@pytest.mark.parametrize(
    "how",
    [
        "raise RecursionError",
        "bytearray(2**40)",
        "import os; os.kill(os.getpid(), 9)",
        "while True: pass",
        "print('not a verdict'); raise SystemExit(0)",
    ],
    ids=["raises", "memory", "killed", "time", "nonsense"],
)
def test_a_crash_that_the_agents_files_provoke_is_its_0(how: str, tmp_path: Path) -> None:
    judge = tmp_path / "picky.py"
    judge.write_text(PICKY.format(how=how))
    limits = Limits(cpu_s=1, wall_s=20.0)
    start = {"file": "start"}
    checks = run_judge(judge, {"file": "bomb"}, untouched=lambda: start, limits=limits)
    assert [check.passed for check in checks] == [False, False]
    assert checks[-1].name == UNREADABLE
    assert score_checks(checks).reward == 0.0
    good = run_judge(judge, {"file": "good"}, untouched=lambda: start, limits=limits)
    assert score_checks(good).reward == 1.0


@pytest.mark.parametrize("left", ["bomb", "good"])
def test_a_judge_that_breaks_on_the_start_as_well_is_broken(left: str, tmp_path: Path) -> None:
    """Whatever it is that breaks it: a fault of ours must not become an agent's 0."""
    judge = tmp_path / "broken.py"
    judge.write_text("def judge(evidence):\n    raise LookupError('unknown encoding: cp437')\n")
    with pytest.raises(GradeFailure, match="cp437"):
        run_judge(judge, {"file": left}, untouched=lambda: {"file": "start"})


def test_a_fault_that_passes_is_nobodys(tmp_path: Path) -> None:
    judge = tmp_path / "once.py"
    judge.write_text(
        "import os, sys\n"
        f"flag = {str(tmp_path / 'flag')!r}\n"
        "if not os.path.exists(flag):\n"
        "    open(flag, 'w').close()\n"
        "    sys.exit(3)\n"
        "def judge(evidence):\n"
        "    return [{'name': 'made', 'kind': 'progress', 'passed': True}]\n"
    )
    assert score_checks(run_judge(judge, {}, untouched=dict)).reward == 1.0


SHIPPED_TASKS = [info.name for info in list_tasks()]


@pytest.mark.parametrize("name", SHIPPED_TASKS)
def test_every_judge_reads_its_tasks_start(name: str) -> None:
    """What the control run stands on: all of them can be asked about it, and find nothing done."""
    for seed in range(3):
        task = load_task(name, seed)
        checks = run_judge(task.judge, task._untouched())
        assert score_checks(checks).reward == 0.0
        assert all(check.passed for check in checks if check.kind == "guard"), checks
