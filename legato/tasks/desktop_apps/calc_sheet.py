"""Correct a stock list in LibreOffice Calc: numbers, a new line, a total, saved in place.

Partial credit is for numbers typed, lines added and totals worked out by a formula, as asked and
saved; nothing here is cheap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction, Done, Key, Type
from legato.desktop.contract import Machine, Window
from legato.tasks.desktop_apps.spreadsheet import make_ods
from legato.tasks.draw import Draw
from legato.tasks.leftovers import files_elsewhere
from legato.tasks.place import Place, draw_place, launch_placed
from legato.tasks.seeded import (
    SeededTask,
    close_if_it_can,
    pack_folder,
    shortened,
)
from legato.tasks.verifier import pack_bytes

FOLDER = "Documents"
COLUMNS = ("Item", "Shelf", "Count")
_LEAST = (860, 520)
"""Smallest inside of the window, in pixels."""
_SHEETS = ("Stock", "Depot", "Store", "Counter")
_ITEMS = (
    *("Apples", "Brushes", "Candles", "Dowels", "Erasers", "Flasks", "Gloves", "Hinges"),
    *("Ink", "Jars", "Kettles", "Labels", "Mats", "Nails", "Ovens", "Pegs", "Quilts", "Rope"),
)
_SHELVES = ("A1", "A2", "B1", "B4", "C2", "C7", "D3")
_PROFILE_FILE = ".config/libreoffice/4/user/registrymodifications.xcu"
_PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry"
 xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<item oor:path="/org.openoffice.Office.Common/Misc">
<prop oor:name="ShowTipOfTheDay" oor:op="fuse"><value>false</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Security/Scripting">
<prop oor:name="DisableMacrosExecution" oor:op="fuse"><value>true</value></prop></item>
<item oor:path="/org.openoffice.Setup/Office">
<prop oor:name="LastCompatibilityCheckID" oor:op="fuse"><value>1</value></prop></item>
<item oor:path="/org.openoffice.Setup/Product">
<prop oor:name="ooSetupLastVersion" oor:op="fuse"><value>99.9</value></prop></item>
<item oor:path="/org.openoffice.Setup/Office/Factories/org.openoffice.Setup:Factory\
['com.sun.star.sheet.SpreadsheetDocument']">
<prop oor:name="ooSetupFactoryWindowAttributes" oor:op="fuse"><value>{window}</value></prop></item>
</oor:items>
"""
"""Without a place of its own, ``x,y,width,height;state;``, LibreOffice makes its first window fill
the screen, some time after it has shown it. State 1: none of the special ones."""


@dataclass(frozen=True, slots=True)
class Change:
    kind: str
    """``count`` (a number), ``add`` (a line below the last) or ``total`` (a formula below all)."""
    item: str = ""
    shelf: str = ""
    value: int = 0

    @property
    def request(self) -> str:
        return {
            "count": f'set the count of "{self.item}" to {self.value}',
            "add": (
                f'add a line below the last item: "{self.item}", shelf "{self.shelf}", '
                f"count {self.value}"
            ),
            "total": (
                'in the first free line below all items, write "Total" in the column "Item" '
                'and, in the column "Count", a formula with SUM that adds up all counts'
            ),
        }[self.kind]

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "item": self.item,
            "shelf": self.shelf,
            "value": self.value,
            "name": self.request,
        }


@dataclass(frozen=True)
class CalcSheet(SeededTask):
    """Correct a stock list in LibreOffice Calc: numbers, new lines, a total by formula."""

    suite = "desktop_apps"
    name = "calc_sheet"
    judge = Path(__file__).with_name("calc_sheet_judge.py")

    @cached_property
    def _plan(self) -> tuple[str, list[tuple[str, str, int]], list[Change], Place]:
        draw = Draw(self.name, self.seed)
        items = draw.shuffled(_ITEMS)
        number = draw.between(4, 8)
        lines = [(i, draw.choice(_SHELVES), draw.between(2, 80)) for i in items[:number]]
        kinds = ["count", *draw.sample(("count", "add", "total"), draw.between(1, 2))]
        changed = draw.shuffled([i for i, _, _ in lines])
        changes = []
        for kind in sorted(kinds, key=["count", "add", "total"].index):
            if kind == "count":
                item = changed.pop()
                before = next(n for i, _, n in lines if i == item)
                changes.append(Change("count", item, value=before + draw.between(1, 60)))
            elif kind == "add":
                shelf = draw.choice(_SHELVES)
                changes.append(Change("add", items[number], shelf, draw.between(2, 80)))
            else:
                changes.append(Change("total"))
        return draw.choice(_SHEETS), lines, changes, draw_place(draw)

    @property
    def file(self) -> str:
        """Name of the file, below the folder."""
        return f"{self._plan[0].lower()}.ods"

    @property
    def lines(self) -> list[tuple[str, str, int]]:
        """Item, shelf and count, as the agent finds them."""
        return self._plan[1]

    @property
    def changes(self) -> list[Change]:
        return self._plan[2]

    @property
    def instruction(self) -> str:
        wanted = "; ".join(f"({i}) {c.request}" for i, c in enumerate(self.changes, 1))
        return (
            f"The file {self.file} is open in the spreadsheet. Make these changes and save it in "
            f"its place: {wanted}. Leave everything else as it is."
        )

    def original(self) -> bytes:
        """The file as the agent finds it."""
        return make_ods(self._plan[0], [COLUMNS, *self.lines])

    def setup(self, machine: Machine) -> None:
        path = f"{machine.home}/{FOLDER}/{self.file}"
        machine.write_file(path, self.original())
        where = ",".join(map(str, self._plan[3].on(machine.screen, _LEAST)))
        profile = _PROFILE.format(window=f"{where};1;")
        machine.write_file(f"{machine.home}/{_PROFILE_FILE}", profile.encode())
        launch_placed(
            machine,
            ["soffice", "--calc", "--norestore", "--nologo", path],
            self._plan[3],
            _LEAST,
            env={"SAL_USE_VCLPLUGIN": "gtk3"},
        )

    def evidence(self, machine: Machine) -> dict[str, Any]:
        return {
            "file": self.file,
            "sheet": self._plan[0],
            "original": pack_bytes(self.original()),
            "columns": COLUMNS,
            "lines": [list(line) for line in self.lines],
            "changes": [change.to_json() for change in self.changes],
            "found": {
                "folder": pack_folder(machine, f"{machine.home}/{FOLDER}"),
                "open": [shortened(window.title) for window in _spreadsheets(machine)],
                "elsewhere": files_elsewhere(machine, FOLDER),
            },
        }

    def settle(self, machine: Machine) -> None:
        """LibreOffice tells nobody what is not saved, unless its only window is to close.

        It stays open while a menu is.
        """
        windows = _spreadsheets(machine)
        if len(windows) == 1:
            close_if_it_can(machine, windows[0])

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        """Down the column of counts from its head, then below the last line, by Return alone."""
        rows = {item: row for row, (item, _, _) in enumerate(self.lines, 1)}
        counts, added = {}, ""
        for change in self.changes:
            below = len(self.lines) + 1 + added.count("\n")
            if change.kind == "count":
                counts[rows[change.item]] = str(change.value)
            elif change.kind == "add":
                added += f"\n{change.item}\t{change.shelf}\t{change.value}"
            else:
                added += "\nTotal"
                counts[below] = f"=SUM(C2:C{below})"
        typed, at = "", 0
        for row in sorted(counts):
            typed += "\n" * (row - at) + f"{counts[row]}\n"
            at = row + 1
        yield Key(key="ctrl+Right")
        yield Type(text=typed)
        if added:
            yield Key(key="ctrl+Home")
            yield Key(key="ctrl+Down")
            yield Type(text=f"{added}\n")
        yield Key(key="ctrl+s")
        yield Done()


def _spreadsheets(machine: Machine) -> list[Window]:
    """LibreOffice's windows, dialogs among them."""
    return [
        w for w in machine.windows() if w.wm_class.lower().startswith(("libreoffice", "soffice"))
    ]
