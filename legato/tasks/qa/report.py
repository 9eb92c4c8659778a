"""What the gate found: one line a check, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

SCHEMA = "legato.qa/v0"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check on one variant."""

    task: str
    seed: int
    check: str
    passed: bool
    detail: str
    seconds: float
    error: bool = False
    """The check could not be made: a failure of ours, not of the task."""
    retried: str = ""
    """Why it was made once more: a desktop failed under it the first time."""


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]
    total: int
    """Checks that were to be made; of an interrupted gate more than there are findings."""

    @property
    def complete(self) -> bool:
        return len(self.findings) == self.total

    @property
    def exit_code(self) -> int:
        """0: all passed; 1: a check failed; 2: a check was not or could not be made."""
        if not self.findings or not self.complete or any(f.error for f in self.findings):
            return 2
        return 0 if all(f.passed for f in self.findings) else 1

    def write(self, path: Path) -> None:
        """As JSON. Raises ``OSError``."""
        text = json.dumps(
            {
                "schema": SCHEMA,
                "complete": self.complete,
                "exit_code": self.exit_code,
                "findings": [asdict(finding) for finding in self.findings],
            },
            indent=1,
        )
        part = path.with_name(f".{path.name}.part")
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(path)

    def table(self) -> Table:
        """One line a check of a task, over all its variants."""
        table = Table(box=None, pad_edge=False)
        for heading in ("task", "check", "variants", "what"):
            table.add_column(heading, overflow="fold")
        for (task, check), found in _grouped(self.findings):
            good = sum(f.passed for f in found)
            wrong = next((f for f in found if not f.passed), None)
            style = None if wrong is None else "yellow" if wrong.error else "red"
            what = "" if wrong is None else f"variant {wrong.seed}: {wrong.detail}"
            cells = (task, check, f"{good}/{len(found)}", what)
            table.add_row(*(Text(cell) for cell in cells), style=style)
        return table


def _grouped(findings: Iterable[Finding]) -> list[tuple[tuple[str, str], list[Finding]]]:
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.task, finding.check), []).append(finding)
    return list(groups.items())
