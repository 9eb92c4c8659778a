"""Reading the cells of an OpenDocument spreadsheet. Stdlib only.

Format: OASIS OpenDocument 1.2, part 1, sections 6.1 (white space), 9.1 (tables), 19.385
(``office:value-type``) and following; only what a cell holds is read. Bounded in what it unpacks:
a small file may claim a huge one.
"""

from __future__ import annotations

import encodings.cp437  # noqa: F401 - zipfile reads names by it, when modules are out of reach
import io
import xml.etree.ElementTree as ET
import zipfile
from typing import NamedTuple

MAX_CONTENT = 8 * 2**20
"""Most bytes of ``content.xml``."""
MAX_CELLS = 20_000
MAX_SPACES = 100
"""Most spaces in a row that are counted: of more it matters no more how many."""
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"

_NUMBERS = ("float", "percentage", "currency")
_BREAKS = {f"{_TEXT}tab": "\t", f"{_TEXT}line-break": "\n"}


class NotRead(ValueError):  # noqa: N818 - a fact about the file
    """The bytes are no spreadsheet that can be read here."""


class Cell(NamedTuple):
    text: str = ""
    """A number in one spelling, a text as it is written."""
    formula: str = ""
    """Such as ``of:=SUM([.B2:.B5])``; empty for a plain value."""
    is_number: bool = False


def number(value: int) -> Cell:
    """A cell that holds this number, and no text that looks like it."""
    return Cell(str(value), is_number=True)


Sheet = dict[tuple[int, int], Cell]
"""Cells that hold something, by (row, column) from (0, 0)."""


def read_ods(data: bytes) -> dict[str, Sheet]:
    """Sheets by name. Raises :class:`NotRead`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open("content.xml") as file:
            content = file.read(MAX_CONTENT + 1)
    except (zipfile.BadZipFile, KeyError, OSError, NotImplementedError, EOFError, ValueError) as e:
        raise NotRead(f"not a spreadsheet: {e}") from None
    if len(content) > MAX_CONTENT:
        raise NotRead("too large")
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise NotRead("it declares entities")
    try:
        root = ET.fromstring(content)
    except ET.ParseError as e:
        raise NotRead(f"not XML: {e}") from None
    return {table.get(f"{_TABLE}name", ""): _sheet(table) for table in root.iter(f"{_TABLE}table")}


def _sheet(table: ET.Element) -> Sheet:
    cells: Sheet = {}
    row = 0
    for line in table.iter(f"{_TABLE}table-row"):
        repeats = _count(line, "number-rows-repeated")
        column = 0
        for element in line:
            if element.tag not in (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
                continue
            wide = _count(element, "number-columns-repeated")
            cell = _cell(element)
            if cell != Cell():
                if wide * repeats + len(cells) > MAX_CELLS:
                    raise NotRead("too many cells")
                for down in range(repeats):
                    for across in range(wide):
                        cells[row + down, column + across] = cell
            column += wide
        row += repeats
    return cells


def _count(element: ET.Element, name: str, space: str = _TABLE) -> int:
    try:
        return max(1, int(element.get(f"{space}{name}", "1")))
    except ValueError:
        raise NotRead(f"{name} is no number") from None


def _cell(element: ET.Element) -> Cell:
    formula = element.get(f"{_TABLE}formula", "")
    value = element.get(f"{_OFFICE}value")
    if value is not None and element.get(f"{_OFFICE}value-type") in _NUMBERS:
        return Cell(_plain(value), formula, is_number=True)
    return Cell("\n".join(_written(p) for p in element.findall(f"{_TEXT}p")), formula)


def _written(element: ET.Element) -> str:
    """The text of a paragraph. What XML would not keep of it stands there as elements."""
    text = element.text or ""
    for part in element:
        if part.tag == f"{_TEXT}s":
            text += " " * min(_count(part, "c", _TEXT), MAX_SPACES)
        elif part.tag in _BREAKS:
            text += _BREAKS[part.tag]
        else:
            text += _written(part)
        text += part.tail or ""
    return text


def _plain(value: str) -> str:
    """A number in one spelling."""
    try:
        number = float(value)
    except ValueError:
        return value
    return f"{number:.10g}"
