"""How a judge words its checks, and when a cheap change counts. Stdlib only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Check = dict[str, Any]


def progress(name: str, passed: bool, *, cheap: bool = False, detail: str = "") -> Check:
    """A change that was asked for. ``cheap``: one that a few blind clicks or keys can make."""
    return {
        "name": name[:200],
        "kind": "progress",
        "passed": passed,
        "detail": detail[:500],
        "cheap": cheap,
    }


def guard(name: str, passed: bool, detail: str = "") -> Check:
    """Something that must hold whatever else was done; failed, it voids the score."""
    return {"name": name[:200], "kind": "guard", "passed": passed, "detail": detail[:500]}


def settled(checks: Sequence[Check]) -> list[Check]:
    """The checks as the verifier wants them: a cheap change counts only beside one that is not.

    Without this, ticking boxes and deleting rows at random would be paid.
    """
    earned = any(c["passed"] for c in checks if c["kind"] == "progress" and not c["cheap"])
    result = []
    for check in checks:
        line = dict(check)
        if line.pop("cheap", False) and line["passed"] and not earned:
            line["passed"] = False
            line["detail"] = "made, but it counts only beside a change that takes more"
        result.append(line)
    return result
