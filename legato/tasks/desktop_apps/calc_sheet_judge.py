"""Judge of ``calc_sheet``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.files import File, content, nothing_elsewhere
from legato.tasks.judging.ods import Cell, NotRead, Sheet, number, read_ods

COUNT = 2
_SUM = re.compile(r"of:=SUM\((.+)\)")
_PLACE = r"(?:\$?(?:{sheet}|'{sheet}'))?\.\$?C\$?(\d+)"
"""A cell of the column of counts: ``.C2``, ``.$C$2`` or ``$Stock.C2``."""


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    found = evidence["found"]
    files: Mapping[str, File] = found["folder"]["files"] or {}
    sheets = _sheets(files.get(evidence["file"]))
    sheet: Sheet = (sheets or {}).get(evidence["sheet"], {})
    rows = {line[0]: n for n, line in enumerate(evidence["lines"], 1)}
    changes = evidence["changes"]
    placed = _placed(evidence)
    checks = [
        progress(c["name"], _made(c, evidence["sheet"], sheet, rows, placed)) for c in changes
    ]
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
    change: Mapping[str, Any],
    name: str,
    sheet: Sheet,
    rows: Mapping[str, int],
    placed: Mapping[str, int],
) -> bool:
    if change["kind"] == "count":
        return sheet.get((rows[change["item"]], COUNT)) == number(change["value"])
    row = placed[change["kind"]]
    if change["kind"] == "add":
        wanted = (Cell(change["item"]), Cell(change["shelf"]), number(change["value"]))
        return all(sheet.get((row, i)) == cell for i, cell in enumerate(wanted))
    cell = sheet.get((row, COUNT), Cell())
    return sheet.get((row, 0)) == Cell("Total") and _adds_up(cell.formula, name, row)


def _adds_up(formula: str, name: str, last: int) -> bool:
    """Whether it adds up the counts in rows 2 to ``last``, each once, and no more.

    The head of the column, a text, adds nothing.
    """
    summed = _SUM.fullmatch(formula)
    if summed is None:
        return False
    place = _PLACE.format(sheet=re.escape(name))
    rows: list[int] = []
    for part in summed[1].split(";"):
        found = re.fullmatch(rf"\[{place}(?::{place})?\]", part)
        if found is None:
            return False
        ends = sorted((int(found[1]), int(found[2] or found[1])))
        if ends[1] > last:
            return False
        rows += range(ends[0], ends[1] + 1)
    return sorted(row for row in rows if row != 1) == list(range(2, last + 1))


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
    expected = {(0, i): Cell(text) for i, text in enumerate(evidence["columns"])}
    for name, shelf, count in evidence["lines"]:
        line = (Cell(name), Cell(shelf), number(count))
        expected |= {(rows[name], i): cell for i, cell in enumerate(line)}
    free = {(rows[c["item"]], COUNT) for c in evidence["changes"] if c["kind"] == "count"}
    for place, cell in expected.items():
        if place not in free and sheet.get(place) != cell:
            problems.append(f"the cell in row {place[0] + 1}, column {place[1] + 1} was changed")
    columns = {"add": (0, 1, COUNT), "total": (0, COUNT)}
    ends = {(row, column) for kind, row in placed.items() for column in columns[kind]}
    strange = sorted(set(sheet) - set(expected) - ends)
    return problems + [f"the cell in row {r + 1}, column {c + 1} is new" for r, c in strange]


def _sheets(file: File) -> dict[str, Sheet] | None:
    data = content(file)
    try:
        return None if data is None else read_ods(data)
    except NotRead:
        return None
