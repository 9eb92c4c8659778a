"""The gate a task passes before anyone trains on it: solvable, repeatable, and not to be fooled."""

from legato.tasks.qa.gate import Gate, count_checks, run_gate
from legato.tasks.qa.report import Finding, Report
from legato.tasks.qa.tally import Tally, ended_like_interrupted

__all__ = [
    "Finding",
    "Gate",
    "Report",
    "Tally",
    "count_checks",
    "ended_like_interrupted",
    "run_gate",
]
