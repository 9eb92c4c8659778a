"""The whole gate: every task, the eight fixed variants, every check, on real local desktops.

It takes the better part of an hour, so it runs only when named: ``tools/bench.py qa``. Findings go
to the file that is named as argument.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from legato.desktop.local import check_requirements, make_desktop
from legato.tasks import list_tasks, load_task
from legato.tasks.qa import Gate, Report, Tally, count_checks, ended_like_interrupted, run_gate
from legato.tasks.reference import SHIPPED
from legato.tasks.suites import VARIANTS

DESKTOPS = 2 * (os.cpu_count() or 1)


def main() -> None:
    check_requirements()
    names = [info.name for info in list_tasks() if info.suite in SHIPPED]
    tasks = [load_task(name, seed) for seed in range(VARIANTS) for name in names]

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    path = Path(sys.argv[1]) if sys.argv[1:] else None
    tally = Tally(count_checks(tasks, Gate()), say, path)
    started = time.monotonic()
    try:
        with ended_like_interrupted():
            report = run_gate(tasks, make_desktop, desktops=DESKTOPS, progress=tally.add)
    except KeyboardInterrupt:
        report = Report(tuple(tally.findings), tally.total)
    minutes = (time.monotonic() - started) / 60
    if path is not None:
        report.write(path)
    if not report.complete:
        sys.exit(f"interrupted after {len(report.findings)} of {report.total} checks")
    failed = sum(not finding.passed for finding in report.findings)
    print(f"qa: tasks x variants: {len(names)} x {VARIANTS}")
    print(f"qa: checks that failed: {failed} of {len(report.findings)} (bar 0)")
    again = sum(bool(finding.retried) for finding in report.findings)
    print(f"qa: checks made again because a desktop failed under them: {again}")
    print(f"qa: all of it on {DESKTOPS} desktops: {minutes:.1f} min")


if __name__ == "__main__":
    main()
