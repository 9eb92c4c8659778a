"""Judge of ``expense_sheet``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.web import saved_state, strangers, trust

Row = Mapping[str, Any]


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    before, now = evidence["app"]["state"]["lines"], saved_state(evidence)["lines"]
    changes = evidence["wanted"]["changes"]
    old = {row["id"] for row in before}
    checks = [
        progress(c["name"], _made(c, now, old), cheap=c["action"] in ("kind", "delete"))
        for c in changes
    ]
    problems = strangers(
        before,
        now,
        free={c["line"]["id"]: [c["action"]] for c in changes},
        gone=[c["line"]["id"] for c in changes if c["action"] == "delete"],
        new=sum(c["action"] == "add" for c in changes),
    )
    checks.append(guard("the other lines are as they were", not problems, "; ".join(problems)))
    return settled(checks + trust(evidence))


def _made(change: Mapping[str, Any], now: Sequence[Row], old: set[int]) -> bool:
    action, line = change["action"], change["line"]
    if action == "add":
        return any(
            all(row[name] == line[name] for name in line if name != "id")
            for row in now
            if row["id"] not in old
        )
    row = next((row for row in now if row["id"] == line["id"]), None)
    if action == "delete":
        return row is None
    return row is not None and row[action] == change["new"]
