"""Judge of ``todo_list``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.web import saved_state, strangers, trust

Row = Mapping[str, Any]


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    before, now = evidence["app"]["state"]["todos"], saved_state(evidence)["todos"]
    changes = evidence["wanted"]["changes"]
    old = {row["id"] for row in before}
    checks = [
        progress(
            change["name"],
            _made(change, now, old),
            cheap=change["kind"] in ("tick", "delete"),
        )
        for change in changes
    ]
    problems = strangers(
        before,
        now,
        free={c["id"]: ["text"] if c["kind"] == "rename" else ["done"] for c in changes},
        gone=[c["id"] for c in changes if c["kind"] == "delete"],
        new=sum(c["kind"] == "add" for c in changes),
    )
    texts = [row["text"] for row in now]
    twice = sorted({text for text in texts if texts.count(text) > 1})
    checks.append(guard("the other entries are as they were", not problems, "; ".join(problems)))
    checks.append(guard("no entry stands there twice", not twice, "; ".join(twice)))
    return settled(checks + trust(evidence))


def _made(change: Mapping[str, Any], now: Sequence[Row], old: set[int]) -> bool:
    if change["kind"] == "add":
        new = [row for row in now if row["id"] not in old]
        return any(row["text"] == change["text"] and not row["done"] for row in new)
    row = next((row for row in now if row["id"] == change["id"]), None)
    if change["kind"] == "delete":
        return row is None
    if row is None:
        return False
    return bool(row["done"]) if change["kind"] == "tick" else row["text"] == change["new"]
