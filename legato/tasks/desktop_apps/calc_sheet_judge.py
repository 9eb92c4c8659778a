"""Judge of ``calc_sheet``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.files import File, content, nothing_elsewhere
from legato.tasks.judging.ods import Cell, NotRead, Sheet, read_ods

COUNT = 2
_SUM = re.compile(r"of:=SUM\(\[\.C(\d+):\.C(\d+)\]\)")


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    found = evidence["found"]
    files: Mapping[str, File] = found["folder"]["files"] or {}
    sheets = _sheets(files.get(evidence["file"]))
    sheet: Sheet = (sheets or {}).get(evidence["sheet"], {})
    rows = {line[0]: n for n, line in enumerate(evidence["lines"], 1)}
    changes = evidence["changes"]
    placed = _placed(evidence)
    checks = [progress(c["name"], _made(c, sheet, rows, placed)) for c in changes]
    left: list[str] = found["open"]
    problems = _problems(evidence, sheets, sheet, rows, placed)
    own = {evidence["file"], f".~lock.{evidence['file']}#"}
    others = sorted(name for name in files if name not in own and not name.endswith("/"))
    checks.append(guard("the other cells are as they were", not problems, "; ".join(problems)))
    checks.append(guard("no other file is there", not others, ", ".join(others)))
    checks.append(guard("nothing is unsaved or still edited", not left, "; ".join(left)))
    checks.append(nothing_elsewhere(found["elsewhere"]))
    return settled(checks)


def _placed(evidence: Mapping[str, Any]) -> dict[str, int]:
    """Rows of the lines that are to be added, by kind of change."""
    rows, at = {}, len(evidence["lines"])
    for change in evidence["changes"]:
        if change["kind"] in ("add", "total"):
            at += 1
            rows[change["kind"]] = at
    return rows


def _made(
    change: Mapping[str, Any], sheet: Sheet, rows: Mapping[str, int], placed: Mapping[str, int]
) -> bool:
    if change["kind"] == "count":
        return sheet.get((rows[change["item"]], COUNT)) == Cell(str(change["value"]), "")
    row = placed[change["kind"]]
    if change["kind"] == "add":
        wanted = (change["item"], change["shelf"], str(change["value"]))
        return all(sheet.get((row, i)) == Cell(text, "") for i, text in enumerate(wanted))
    cell = sheet.get((row, COUNT), Cell("", ""))
    summed = _SUM.fullmatch(cell.formula)
    return (
        sheet.get((row, 0)) == Cell("Total", "")
        and summed is not None
        and (int(summed[1]), int(summed[2])) == (2, row)
    )


def _problems(
    evidence: Mapping[str, Any],
    sheets: Mapping[str, Sheet] | None,
    sheet: Sheet,
    rows: Mapping[str, int],
    placed: Mapping[str, int],
) -> list[str]:
    if sheets is None:
        return ["the file is missing or is no spreadsheet"]
    problems = [f"sheet {name} is new" for name in sheets if name != evidence["sheet"]]
    expected = {(0, i): text for i, text in enumerate(evidence["columns"])}
    for name, shelf, count in evidence["lines"]:
        expected |= {(rows[name], 0): name, (rows[name], 1): shelf, (rows[name], 2): str(count)}
    free = {(rows[c["item"]], COUNT) for c in evidence["changes"] if c["kind"] == "count"}
    for place, text in expected.items():
        if place not in free and sheet.get(place) != Cell(text, ""):
            problems.append(f"the cell in row {place[0] + 1}, column {place[1] + 1} was changed")
    ends = {(row, column) for row in placed.values() for column in range(3)}
    strange = sorted(set(sheet) - set(expected) - ends)
    return problems + [f"the cell in row {r + 1}, column {c + 1} is new" for r, c in strange]


def _sheets(file: File) -> dict[str, Sheet] | None:
    data = content(file)
    try:
        return None if data is None else read_ods(data)
    except NotRead:
        return None
