"""Judge of ``file_manager``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.files import Files, packed


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    before = {name: packed(data) for name, data in evidence["before"].items()}
    rules, prefix = evidence["rules"], evidence["folder"] + "/"
    home: Files | None = evidence["found"]["home"]["files"]
    now = {n.removeprefix(prefix): f for n, f in (home or {}).items() if n.startswith(prefix)}
    checks = [
        progress(
            rule["kind"], bool(home) and _done(rule, before, now, home or {}), cheap=rule["cheap"]
        )
        for rule in rules
    ]
    wrong = ["too many files"] if home is None else list(_wrong(before, rules, now))
    strangers = [] if home is None else list(_elsewhere(before, home, prefix))
    checks.append(guard("nothing else in the folder changed", not wrong, "; ".join(wrong)))
    checks.append(guard("nothing was put elsewhere", not strangers, "; ".join(strangers)))
    return settled(checks)


def _elsewhere(before: Files, home: Files, prefix: str) -> Iterator[str]:
    """Files outside of the folder; there were none."""
    for name, file in home.items():
        if not name.startswith(prefix) and not name.endswith("/"):
            same = next((old for old, data in before.items() if data == file), None)
            yield name if same is None else f"{name} (the file {same})"


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
