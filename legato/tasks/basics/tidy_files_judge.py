"""Judge of ``tidy_files``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Files = Mapping[str, Any]


def judge(evidence: Mapping[str, Any]) -> list[dict[str, Any]]:
    home: Files | None = evidence["home"]["files"]
    before = {name: {"data": data} for name, data in evidence["before"].items()}
    rules = evidence["rules"]
    prefix = evidence["folder"] + "/"
    now = {n.removeprefix(prefix): f for n, f in (home or {}).items() if n.startswith(prefix)}
    checks: list[dict[str, Any]] = [
        {
            "name": rule["kind"],
            "kind": "progress",
            "passed": home is not None and _done(rule, before, now, home),
        }
        for rule in rules
    ]
    wrong = ["too many files"] if home is None else list(_wrong(before, rules, now))
    checks.append(
        {
            "name": "nothing else changed",
            "kind": "guard",
            "passed": not wrong,
            "detail": "; ".join(wrong)[:500],
        }
    )
    return checks


def _done(rule: Mapping[str, Any], before: Files, now: Files, home: Files) -> bool:
    """Every file is where the rule wants it and no longer where it was.

    A deleted file is nowhere in the home: one that was only put elsewhere is not deleted.
    """
    for source, target in rule["moves"]:
        if source in now:
            return False
        if target is None and before[source] in home.values():
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
