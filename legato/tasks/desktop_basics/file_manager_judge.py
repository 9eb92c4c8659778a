"""Judge of ``file_manager``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.files import Copies, Files, kept, nothing_elsewhere, packed


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    before = {name: packed(data) for name, data in evidence["before"].items()}
    rules, found = evidence["rules"], evidence["found"]
    files: Files | None = found["folder"]["files"]
    now = files or {}
    checks = [
        progress(
            rule["kind"],
            files is not None and _done(rule, before, now, found["copies"]),
            cheap=rule["cheap"],
        )
        for rule in rules
    ]
    wrong = ["too many files"] if files is None else list(_wrong(before, rules, now))
    checks.append(guard("nothing else in the folder changed", not wrong, "; ".join(wrong)))
    checks.append(nothing_elsewhere(found["elsewhere"], found["copies"]))
    return settled(checks)


def _done(rule: Mapping[str, Any], before: Files, now: Files, copies: Copies) -> bool:
    """Every file is where the rule wants it and no longer where it was.

    A deleted file is nowhere: one that was only put elsewhere is not deleted.
    """
    for source, target in rule["moves"]:
        if source in now:
            return False
        if target is None and (before[source] in now.values() or kept(source, copies)):
            return False
        if target is not None and now.get(target) != before[source]:
            return False
    return True


def _wrong(before: Files, rules: list[Mapping[str, Any]], now: Files) -> Iterator[str]:
    """Losses and additions that no rule accounts for, whether or not the rules were followed."""
    moves = {source: target for rule in rules for source, target in rule["moves"]}
    for name, file in before.items():
        target = moves.get(name, name)
        if target is not None and file not in (now.get(name), now.get(target)):
            yield f"{name} is lost or changed"
    allowed = {*before, *(t for t in moves.values() if t is not None)}
    allowed |= {f"{rule['creates']}/" for rule in rules if rule["creates"]}
    for name in sorted(set(now) - allowed):
        yield f"{name} is new"
