"""Findings as they come: lines for a log, and a report on disk that is never far behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from legato.tasks.qa.report import Finding, Report

EVERY_S = 10.0
"""Seconds between two lines that only say how far it is; a failure is told at once."""


@dataclass
class Tally:
    """Takes one finding after the other; one thread at a time.

    ``write`` has the report so far written whenever a line is due, so that no end of the
    program loses more than :data:`EVERY_S` seconds of it.
    """

    total: int
    """Checks that are to be made."""
    say: Callable[[str], None]
    write: Path | None = None
    quiet: bool = False
    """Say nothing but what failed: something else shows how far it is."""
    findings: list[Finding] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._began = self._told = self.clock()

    def add(self, finding: Finding) -> None:
        self.findings.append(finding)
        if not finding.passed:
            self.say(f"{finding.task} {finding.seed}: {finding.check}: {finding.detail}")
        if finding.retried:
            self.say(f"{finding.task} {finding.seed}: {finding.check}: again: {finding.retried}")
        now = self.clock()
        if now - self._told < EVERY_S and len(self.findings) < self.total:
            return
        self._told = now
        if not self.quiet:
            self.say(
                f"{len(self.findings)} of {self.total} checks, {self.failed} failed, "
                f"{(now - self._began) / 60:.1f} min: {finding.task} {finding.seed}"
            )
        if self.write is not None:
            Report(tuple(self.findings), self.total).write(self.write)

    @property
    def failed(self) -> int:
        return sum(not finding.passed for finding in self.findings)


@contextmanager
def ended_like_interrupted() -> Iterator[None]:
    """Within, being told to end (SIGTERM) is a ``KeyboardInterrupt``, as Ctrl-C is."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
