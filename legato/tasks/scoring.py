"""The one rule that turns checks into a reward."""

from __future__ import annotations

from collections.abc import Sequence

from legato.desktop.contract import Check, Score
from legato.errors import GradeFailure


def score_checks(checks: Sequence[Check]) -> Score:
    """The mean credit of the ``progress`` checks, or 0 if any ``guard`` failed.

    Raises :class:`~legato.errors.GradeFailure` without a progress check: such a verifier could
    not tell a solved task from an untouched one.
    """
    progress = [check for check in checks if check.kind == "progress"]
    if not progress:
        raise GradeFailure("the verifier returned no progress check", transient=False)
    passed = sum(check.passed for check in progress)
    earned = sum(credit(check) for check in progress)
    broken = [check.name for check in checks if check.kind == "guard" and not check.passed]
    output = f"{passed}/{len(progress)} changes made"
    if broken:
        output += f"; guard failed: {', '.join(broken)}"
    return Score(
        reward=0.0 if broken else earned / len(progress), checks=tuple(checks), output=output
    )


def credit(check: Check) -> float:
    """What one ``progress`` check earns, in [0, 1]."""
    return float(check.passed) if check.share is None else check.share
