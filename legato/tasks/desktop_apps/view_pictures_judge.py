"""Judge of ``view_pictures``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.files import Copies, File, content, kept, nothing_elsewhere, packed
from legato.tasks.judging.png import NotRead, Pixels, read_png

TURNS: Mapping[str, Callable[[Pixels], Pixels]] = {
    "right": lambda rows: [list(column) for column in zip(*rows[::-1], strict=True)],
    "left": lambda rows: [list(column) for column in zip(*rows, strict=True)][::-1],
    "mirror": lambda rows: [row[::-1] for row in rows],
    "flip": lambda rows: rows[::-1],
}


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    found = evidence["found"]
    files: Mapping[str, File] = found["folder"]["files"] or {}
    before = {name: packed(data) for name, data in evidence["before"].items()}
    changes = evidence["changes"]
    checks = [
        progress(
            change["name"], _made(change, before, files, found["copies"]), cheap=change["cheap"]
        )
        for change in changes
    ]
    free = {c["file"] for c in changes if c["kind"] != "copy"}
    problems = [
        f"{name} was changed"
        for name in before
        if name not in free and files.get(name) != before[name]
    ]
    problems += [
        f"{c['file']} is gone" for c in changes if c["kind"] == "replace" and c["file"] not in files
    ]
    allowed = {*before, *(c["target"] for c in changes if c["target"])}
    problems += [f"{name} is new" for name in sorted(set(files) - allowed)]
    checks.append(
        guard(
            "the other pictures are as they were", bool(files) and not problems, "; ".join(problems)
        )
    )
    editing = [t for t in found["titles"] if t == "" or "gpicview" in t.lower()]
    checks.append(guard("no question is left open", not editing, "; ".join(editing)))
    checks.append(nothing_elsewhere(found["elsewhere"], found["copies"]))
    return settled(checks)


def _made(
    change: Mapping[str, Any],
    before: Mapping[str, File],
    now: Mapping[str, File],
    copies: Copies,
) -> bool:
    if not now:
        return False
    if change["kind"] == "delete":
        name = change["file"]
        return name not in now and before[name] not in now.values() and not kept(name, copies)
    saved = _pixels(now.get(change["target"] or change["file"]))
    original = _pixels(before[change["file"]])
    return saved is not None and original is not None and saved == TURNS[change["turn"]](original)


def _pixels(file: File) -> Pixels | None:
    data = content(file)
    try:
        return None if data is None else read_png(data)
    except NotRead:
        return None
