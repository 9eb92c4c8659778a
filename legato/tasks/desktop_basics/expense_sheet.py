"""Correct a sheet of expenses in Chromium: amounts, kinds, new and deleted lines, one Save.

Partial credit is for what was typed as asked and saved: amounts and whole new lines. Choosing a
kind and deleting a line, a few clicks each, count only beside one of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction, Done, TripleClick, Type
from legato.desktop.contract import Machine, Window
from legato.tasks.draw import Draw
from legato.tasks.place import Place, draw_place
from legato.tasks.web.layout import Box, Theme, draw_theme
from legato.tasks.web.markup import script_value
from legato.tasks.web.ops import Operations, State
from legato.tasks.web.page import button, document, heading, label, notice
from legato.tasks.web.task import App, WebTask

_TITLES = ("Expenses", "Trip costs", "Petty cash", "Team budget", "Household book")
_ITEMS = (
    *("Taxi", "Printer paper", "Train ticket", "Lunch", "Hotel", "Stamps", "Coffee", "Parking"),
    *("Batteries", "Museum", "Fuel", "Notebooks", "Cable", "Flowers", "Toll", "Laundry"),
)
_KINDS = ("Food", "Office", "Other", "Travel")
_LENGTHS = {"day": 10, "item": 60, "amount": 12}
"""Most characters of what is typed, in the page's fields and for the server."""

OPERATIONS: Operations = {
    "save": {
        "kind": "replace",
        "into": "lines",
        "fields": {
            **{name: {"kind": "text", "min": 1, "max": most} for name, most in _LENGTHS.items()},
            "kind": {"kind": "choice", "options": _KINDS},
        },
    }
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the sheet; ``id`` is 0 for a new one."""

    id: int
    day: str
    item: str
    kind: str
    amount: str

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "day": self.day,
            "item": self.item,
            "kind": self.kind,
            "amount": self.amount,
        }


@dataclass(frozen=True, slots=True)
class Change:
    action: str
    """``amount``, ``kind``, ``delete`` or ``add``."""
    line: Line
    """As it is; a new one as it is to be."""
    new: str = ""
    """The amount or kind to set."""

    @property
    def request(self) -> str:
        line = self.line
        which = f'"{line.item}" of {line.day}'
        return {
            "amount": f'set the amount of {which} to "{self.new}"',
            "kind": f'set the kind of {which} to "{self.new}"',
            "delete": f"delete the line {which}",
            "add": (
                f'add a line at the end: day "{line.day}", item "{line.item}", '
                f'kind "{line.kind}", amount "{line.amount}"'
            ),
        }[self.action]


@dataclass(frozen=True, slots=True)
class Look:
    """Places of the page; those of cells are for the first line, ``pitch`` pixels apart."""

    title: str
    theme: Theme
    heading: Box
    cells: Mapping[str, Box]
    """By field, in the order shown, and ``delete``."""
    pitch: int
    add: Box
    save: Box
    status: Box


def draw_look(draw: Draw) -> Look:
    left, top = draw.choice((30, 60, 100)), draw.choice((14, 22))
    pitch = draw.choice((42, 44, 46))
    widths = {"day": 110, "item": draw.choice((220, 260)), "kind": 130, "amount": 120}
    order = ["day", *draw.shuffled(["item", "kind", "amount"])]
    cells, x = {}, left
    for name in order:
        cells[name] = Box(x, top + 92, widths[name], 34)
        x += widths[name] + 8
    cells["delete"] = Box(x + 6, top + 92, 90, 34)
    bottom = top + 100 + 9 * pitch
    buttons = [Box(left, bottom, 120, 38), Box(left + 140, bottom, 120, 38)]
    add, save = draw.shuffled(buttons)
    return Look(
        title=draw.choice(_TITLES),
        theme=draw_theme(draw),
        heading=Box(left, top, 500, 32),
        cells=cells,
        pitch=pitch,
        add=add,
        save=save,
        status=Box(left + 290, bottom, 300, 38),
    )


@dataclass(frozen=True)
class ExpenseSheet(WebTask):
    """Correct a sheet of expenses in Chromium: amounts, kinds, new and deleted lines; save it."""

    suite = "desktop_basics"
    name = "expense_sheet"
    judge = Path(__file__).with_name("expense_sheet_judge.py")

    @cached_property
    def _plan(self) -> tuple[Look, list[Line], list[Change], Place]:
        draw = Draw(self.name, self.seed)
        look = draw_look(draw)
        month = draw.between(1, 12)
        items = draw.shuffled(_ITEMS)
        days = sorted(draw.between(1, 28) for _ in range(draw.between(4, 7)))
        lines = [
            Line(i, f"{day:02}.{month:02}", items[i], draw.choice(_KINDS), _amount(draw))
            for i, day in enumerate(days, 1)
        ]
        kinds = [draw.choice(("amount", "amount", "add"))]
        kinds += draw.sample(("amount", "kind", "delete"), draw.between(1, 2))
        rest, changes = draw.shuffled(lines), []
        for kind in kinds:
            if kind == "add":
                day = f"{draw.between(1, 28):02}.{month:02}"
                new = Line(0, day, items[len(lines) + 1], draw.choice(_KINDS), _amount(draw))
                changes.append(Change("add", new))
                continue
            line = rest.pop()
            if kind == "amount":
                amount = _amount(draw)
                while amount == line.amount:
                    amount = _amount(draw)
                changes.append(Change(kind, line, amount))
            elif kind == "kind":
                others = [k for k in _KINDS if k != line.kind]
                changes.append(Change(kind, line, draw.choice(others)))
            else:
                changes.append(Change(kind, line))
        return look, lines, draw.shuffled(changes), draw_place(draw)

    @property
    def look(self) -> Look:
        return self._plan[0]

    @property
    def lines(self) -> list[Line]:
        return self._plan[1]

    @property
    def changes(self) -> list[Change]:
        return self._plan[2]

    @property
    def place(self) -> Place:
        return self._plan[3]

    @property
    def instruction(self) -> str:
        wanted = "; ".join(f"({i}) {c.request}" for i, c in enumerate(self.changes, 1))
        return (
            f'The browser shows the sheet "{self.look.title}". Make these changes and save the '
            f"sheet: {wanted}. Leave all other lines as they are."
        )

    @cached_property
    def app(self) -> App:
        state: State = {
            "lines": [line.to_json() for line in self.lines],
            "next": len(self.lines) + 1,
        }
        pages = {"/": partial(_render, self.look)}
        return App(self.look.title, pages, state, OPERATIONS)

    def wanted(self) -> Mapping[str, Any]:
        return {
            "changes": [
                {"action": c.action, "line": c.line.to_json(), "new": c.new, "name": c.request}
                for c in self.changes
            ]
        }

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self._make(machine, self.changes)

    def cheap_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self._make(machine, [c for c in self.changes if c.action in ("kind", "delete")])

    def _make(self, machine: Machine, changes: Sequence[Change]) -> Iterator[AnyAction]:
        window, look = self.window(machine), self.look
        rows = [line.id for line in self.lines]
        for change in changes:
            if change.action == "add":
                yield self.click(window, look.add)
                rows.append(0)
                yield from self._fill(window, change.line, look.pitch * (len(rows) - 1))
                continue
            down = look.pitch * rows.index(change.line.id)
            if change.action == "delete":
                yield self.click(window, look.cells["delete"].down(down))
                rows.remove(change.line.id)
            elif change.action == "amount":
                click = self.click(window, look.cells["amount"].down(down))
                yield TripleClick(x=click.x, y=click.y)
                yield Type(text=change.new)
            else:
                yield self.click(window, look.cells["kind"].down(down))
                yield Type(text=f"{change.new}\n")
        yield self.click(window, look.save)
        yield Done()

    def _fill(self, window: Window, line: Line, down: int) -> Iterator[AnyAction]:
        values = line.to_json()
        for name in ("day", "item", "amount"):
            yield self.click(window, self.look.cells[name].down(down))
            yield Type(text=values[name])
        if line.kind != _KINDS[0]:
            yield self.click(window, self.look.cells["kind"].down(down))
            yield Type(text=f"{line.kind}\n")


def _amount(draw: Draw) -> str:
    return f"{draw.between(3, 240)}.{draw.between(10, 99)}"


def _render(look: Look, secret: str) -> str:
    names = {"day": "Day", "item": "Item", "kind": "Kind", "amount": "Amount"}
    parts = [heading(look.heading, look.title)]
    parts += [label(look.cells[name].down(-38), text) for name, text in names.items()]
    parts += [
        button(look.add, "add", "Add line", "add()"),
        button(look.save, "save", "Save", "save()", "strong"),
        notice(look.status),
    ]
    cells = {n: [b.x, b.y, b.width, b.height] for n, b in look.cells.items()}
    script = _SCRIPT.format(
        cells=script_value(cells),
        kinds=script_value(_KINDS),
        lengths=script_value(_LENGTHS),
        pitch=look.pitch,
    )
    return document(look.title, look.theme, parts, script, secret)


_SCRIPT = """
const cells = {cells}, kinds = {kinds}, lengths = {lengths}, texts = Object.keys(lengths);
let lines = [];
const at = (name, i) => {{
  const [x, y, w, h] = cells[name];
  return `left:${{x}}px;top:${{y + i * {pitch}}}px;width:${{w}}px;height:${{h}}px`;
}};
function dirty() {{ return JSON.stringify(lines) !== JSON.stringify(state.lines); }}
function touched() {{ say(dirty() ? "Not saved yet" : ""); mark(); }}
function render() {{ lines = structuredClone(state.lines); draw(); }}
function draw() {{
  field("drawn").replaceChildren();
  lines.forEach((line, i) => {{
    for (const name of texts) {{
      const e = make("input", at(name, i), null,
        {{type: "text", maxLength: lengths[name], spellcheck: false, autocomplete: "off",
          value: line[name]}});
      e.oninput = () => {{ line[name] = e.value; touched(); }};
    }}
    const list = make("select", at("kind", i), null, {{autocomplete: "off"}});
    kinds.forEach(k => list.add(new Option(k)));
    list.value = line.kind;
    list.onchange = () => {{ line.kind = list.value; touched(); }};
    make("button", at("delete", i), "Delete",
      {{onclick: () => {{ lines.splice(i, 1); draw(); touched(); }}}});
  }});
}}
function add() {{
  lines.push({{day: "", item: "", kind: kinds[0], amount: ""}});
  draw();
  touched();
}}
function save() {{
  if (lines.some(line => texts.some(name => !line[name].trim())))
    return say("A line is not complete");
  send({{op: "save", rows: lines}}, "Saved");
}}
"""
