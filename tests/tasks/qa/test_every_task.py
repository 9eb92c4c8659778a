"""All tasks through the short gate on real desktops; the benchmark puts them through all of it."""

from __future__ import annotations

import pytest

from legato.desktop.local import make_desktop
from legato.tasks import list_tasks, load_task
from legato.tasks.qa import Gate, run_gate
from legato.tasks.reference import SHIPPED
from legato.tasks.suites import VARIANTS

NAMES = [info.name for info in list_tasks() if info.suite in SHIPPED]


@pytest.mark.desktop
@pytest.mark.timeout(900)
def test_every_task_passes_the_short_gate() -> None:
    """Each with another variant, and so with other agents and attackers."""
    tasks = [load_task(name, number % VARIANTS) for number, name in enumerate(NAMES)]
    report = run_gate(tasks, make_desktop, gate=Gate(short=True), desktops=4)
    assert report.exit_code == 0, [f for f in report.findings if not f.passed]
    assert {f.task for f in report.findings} == set(NAMES)
