"""Judge of ``unpack_archive``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.files import Files, nothing_elsewhere, packed


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    found = evidence["found"]
    listed: Files | None = found["targets"]["files"]
    targets = listed or {}
    archives: Files | None = found["archives"]["files"]
    files = {name: packed(data) for name, data in evidence["files"].items()}
    whole = {folder: _places(evidence, folder) for folder in evidence["folders"]}
    checks = [
        progress(
            f"unpacked into {folder}",
            any(all(targets.get(f"{p}{n}") == file for n, file in files.items()) for p in places),
        )
        for folder, places in whole.items()
    ]
    allowed = {
        f"{p}{n}": file for places in whole.values() for p in places for n, file in files.items()
    }
    strange = [
        name
        for name, file in targets.items()
        if not name.endswith("/") and allowed.get(name, {}) != file
    ]
    empty = [
        name
        for name in targets
        if name.endswith("/")
        and not any(name.startswith(f"{f}/") or name == f"{f}/" for f in evidence["folders"])
    ]
    twice = [
        folder
        for folder, places in whole.items()
        if sum(any(t.startswith(p + n) for t in targets for n in files) for p in places) > 1
    ]
    same = archives == {f"{evidence['archive']}.zip": packed(evidence["packed"])}
    problems = ["too many files"] if listed is None else []
    problems += strange + empty + [f"{folder} holds it twice" for folder in twice]
    checks.append(guard("nothing else was unpacked", not problems, "; ".join(problems)))
    checks.append(guard("the archive is as it was", same))
    checks.append(nothing_elsewhere(found["elsewhere"]))
    return settled(checks)


def _places(evidence: Mapping[str, Any], folder: str) -> tuple[str, str]:
    """Where its files may lie: in the folder, or in one named after the archive inside it."""
    return f"{folder}/", f"{folder}/{evidence['archive']}/"
