"""The gate a task passes before anyone trains on it: solvable, repeatable, and not to be fooled."""

from legato.tasks.qa.gate import Gate, run_gate
from legato.tasks.qa.report import Finding, Report

__all__ = ["Finding", "Gate", "Report", "run_gate"]
