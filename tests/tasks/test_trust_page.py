"""The page about trust lists every attack and every step of the lockdown, and no other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from legato.desktop.lockdown import STEPS

REPO = Path(__file__).resolve().parents[2]
ATTACKS = "tests/tasks/test_attacks.py"


def rows(heading: str) -> list[str]:
    """First cells of the table below a heading of the page."""
    page = (REPO / "docs" / "trust.md").read_text()
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)[1:]


def test_every_attack_is_listed_with_the_test_that_performs_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", ATTACKS],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=REPO,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
    )
    collected = [line for line in done.stdout.splitlines() if line.startswith(ATTACKS)]
    tests = [test for test in collected if not test.endswith("is_no_attack")]
    numbers = [re.findall(r"(?:test_|\[)(\d+[a-z]?)[_-]", test)[0] for test in tests]
    assert len(numbers) >= 20, done.stdout + done.stderr
    assert rows("Attacks") == sorted(numbers)


def test_every_step_of_the_lockdown_is_listed() -> None:
    assert set(rows("Lockdown")) == STEPS
