"""Judge of ``edit_text``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.files import File, editor_closed, nothing_elsewhere, packed, text


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    found = evidence["found"]
    files = found["folder"]["files"] or {}
    lines = _lines(files.get(evidence["file"]))
    checks = [
        progress(_name(change), lines is not None and _made(change, lines), cheap=change["cheap"])
        for change in evidence["changes"]
    ]
    skeletons = [
        _skeleton(some, evidence["changes"], evidence["separator"])
        for some in (lines or [], evidence["before"])
    ]
    why = "" if lines is not None else "the file is missing, too large or not UTF-8"
    same = lines is not None and skeletons[0] == skeletons[1]
    checks.append(guard("the other lines are as they were", same, why))
    beside = {name: file for name, file in files.items() if name != evidence["file"]}
    others = {name: packed(data) for name, data in evidence["others"].items()}
    checks.append(guard("no other file was touched", beside == others))
    touched = {line for c in evidence["changes"] for line in (c["old"], c["new"]) if line}
    twice = sorted(line for line in touched if (lines or []).count(line) > 1)
    checks.append(guard("no line stands there twice", not twice, "; ".join(twice)))
    checks.append(nothing_elsewhere(found["elsewhere"]))
    return settled([*checks, editor_closed(found["titles"], "Mousepad")])


def _name(change: Mapping[str, Any]) -> str:
    return f"{change['kind']} {change['key']}"


def _lines(file: File) -> list[str] | None:
    """The lines of the text, newlines at the very end left out; ``None`` if it is none."""
    found = text(file)
    return None if found is None else found.rstrip("\n").split("\n")


def _made(change: Mapping[str, Any], lines: Sequence[str]) -> bool:
    if change["kind"] == "set":
        return change["old"] not in lines and lines.count(change["new"]) == 1
    if change["kind"] == "remove":
        return change["old"] not in lines
    return lines.count(change["new"]) == 1 and lines[-1] == change["new"]


def _skeleton(
    lines: Sequence[str], changes: Sequence[Mapping[str, Any]], separator: str
) -> list[str]:
    """The lines with what the changes may touch made alike, done or not.

    A line to be set counts by its key, whatever value it has; a line to be removed or added does
    not count.
    """
    ignored = {c["old"] for c in changes if c["kind"] == "remove"}
    ignored |= {c["new"] for c in changes if c["kind"] == "add"}
    starts = [c["key"] + separator.rstrip() for c in changes if c["kind"] == "set"]
    skeleton = []
    for line in lines:
        if line in ignored:
            continue
        start = next((start for start in starts if line.startswith(start)), None)
        skeleton.append(line if start is None else f"<{start}>")
    return skeleton
