"""Reading the cells of an OpenDocument spreadsheet. Stdlib only.

Format: OASIS OpenDocument 1.2, part 1, sections 9.1 (tables) and 19.385 (``office:value``); only
what a cell holds is read. Bounded in what it unpacks: a small file may claim a huge one.
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
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"


class NotRead(ValueError):  # noqa: N818 - a fact about the file
    """The bytes are no spreadsheet that can be read here."""


class Cell(NamedTuple):
    text: str
    """A number as it is shown, a text as it is written."""
    formula: str
    """Such as ``of:=SUM([.B2:.B5])``; empty for a plain value."""


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
            if cell != Cell("", ""):
                if wide * repeats + len(cells) > MAX_CELLS:
                    raise NotRead("too many cells")
                for down in range(repeats):
                    for across in range(wide):
                        cells[row + down, column + across] = cell
            column += wide
        row += repeats
    return cells


def _count(element: ET.Element, name: str) -> int:
    try:
        return max(1, int(element.get(f"{_TABLE}{name}", "1")))
    except ValueError:
        raise NotRead(f"{name} is no number") from None


def _cell(element: ET.Element) -> Cell:
    paragraphs = ["".join(p.itertext()) for p in element.findall(f"{_TEXT}p")]
    value = element.get(f"{_OFFICE}value")
    text = "\n".join(paragraphs) if value is None else _plain(value)
    return Cell(text, element.get(f"{_TABLE}formula", ""))


def _plain(value: str) -> str:
    """A number in one spelling."""
    try:
        number = float(value)
    except ValueError:
        return value
    return f"{number:.10g}"
