"""Keep a to-do list in Chromium: add, rename, tick off and delete entries.

Every change is saved as it is made. Partial credit is for entries added or renamed as asked;
ticking and deleting, one click each, count only beside one of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction, Done, Key, Type
from legato.desktop.contract import Machine
from legato.tasks.draw import Draw
from legato.tasks.place import Place, draw_place
from legato.tasks.web.layout import Box, Theme, draw_theme
from legato.tasks.web.markup import script_value
from legato.tasks.web.ops import Operations, State, apply
from legato.tasks.web.page import button, document, heading, notice, text_field
from legato.tasks.web.task import App, WebTask

_TITLES = ("Errands", "House list", "This week", "Before the trip", "Workshop", "Garden")
_VERBS = ("Call", "Mend", "Collect", "Order", "Return", "Paint", "Sort", "Post", "Check", "Book")
_THINGS = (
    *("the plumber", "the bicycle", "a parcel", "seed potatoes", "library books", "the fence"),
    *("old photos", "the tax form", "smoke alarms", "a table for six", "train tickets"),
    *("spare keys", "the ladder", "winter tyres", "a birthday card", "the piano tuner"),
)

OPERATIONS: Operations = {
    "add": {
        "kind": "add",
        "into": "todos",
        "fields": {"text": {"kind": "text", "min": 1}, "done": {"kind": "check"}},
    },
    "rename": {"kind": "edit", "into": "todos", "fields": {"text": {"kind": "text", "min": 1}}},
    "tick": {"kind": "edit", "into": "todos", "fields": {"done": {"kind": "check"}}},
    "delete": {"kind": "remove", "into": "todos"},
}


@dataclass(frozen=True, slots=True)
class Change:
    kind: str
    """``add``, ``rename``, ``tick`` or ``delete``."""
    id: int
    """The entry's; 0 for a new one."""
    text: str
    """Of the entry as it is; of a new one, as it is to be."""
    new: str = ""
    """The text to rename it to."""

    @property
    def request(self) -> str:
        return {
            "add": f'add "{self.text}"',
            "rename": f'rename "{self.text}" to "{self.new}"',
            "tick": f'tick "{self.text}" off',
            "delete": f'delete "{self.text}"',
        }[self.kind]


@dataclass(frozen=True, slots=True)
class Look:
    """Places of the page; those of a row are for the first one, ``pitch`` pixels apart."""

    title: str
    theme: Theme
    heading: Box
    tick: Box
    text: Box
    rename: Box
    delete: Box
    pitch: int
    entry: Box
    """The field for a new text; the same for renaming."""
    add: Box
    cancel: Box
    status: Box


def draw_look(draw: Draw) -> Look:
    left, top = draw.choice((30, 70, 120)), draw.choice((16, 24))
    pitch, wide = draw.choice((44, 46, 48)), draw.choice((330, 380, 420))
    entry_first = draw.choice((True, False))
    entry_y = top + 50 if entry_first else top + 60 + 9 * pitch
    rows_y = top + 110 if entry_first else top + 56
    after = left + 40 + wide
    if draw.choice((True, False)):
        rename, delete = Box(after, rows_y, 100, 34), Box(after + 112, rows_y, 84, 34)
    else:
        delete, rename = Box(after, rows_y, 84, 34), Box(after + 96, rows_y, 100, 34)
    return Look(
        title=draw.choice(_TITLES),
        theme=draw_theme(draw),
        heading=Box(left, top, 500, 32),
        tick=Box(left, rows_y + 7, 20, 20),
        text=Box(left + 36, rows_y + 1, wide, 32),
        rename=rename,
        delete=delete,
        pitch=pitch,
        entry=Box(left, entry_y, wide, 34),
        add=Box(left + wide + 14, entry_y, 110, 34),
        cancel=Box(left + wide + 136, entry_y, 90, 34),
        status=Box(left + wide + 240, entry_y, 130, 34),
    )


@dataclass(frozen=True)
class TodoList(WebTask):
    """Keep a to-do list in Chromium: add, rename, tick off and delete entries."""

    suite = "desktop_basics"
    name = "todo_list"
    judge = Path(__file__).with_name("todo_list_judge.py")

    @cached_property
    def _plan(self) -> tuple[Look, State, list[Change], Place]:
        draw = Draw(self.name, self.seed)
        look = draw_look(draw)
        texts = _texts(draw, 11)
        count = draw.between(4, 7)
        todos: list[dict[str, Any]] = [
            {"id": i, "text": text, "done": draw.below(4) == 0}
            for i, text in enumerate(texts[:count], 1)
        ]
        kinds = ["add" if draw.below(2) else "rename"]
        kinds += draw.sample(["add", "rename", "tick", "delete", "tick"], draw.between(1, 3))
        open_ones = draw.shuffled([todo for todo in todos if not todo["done"]])
        spare = texts[count:]
        changes: list[Change] = []
        for kind in kinds:
            if kind == "add":
                changes.append(Change("add", 0, spare.pop()))
            elif open_ones:
                todo = open_ones.pop()
                new = spare.pop() if kind == "rename" else ""
                changes.append(Change(kind, todo["id"], todo["text"], new))
        if not any(change.kind in ("add", "rename") for change in changes):
            changes.append(Change("add", 0, spare.pop()))
        state = {"todos": todos, "next": count + 1}
        return look, state, draw.shuffled(changes), draw_place(draw)

    @property
    def look(self) -> Look:
        return self._plan[0]

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
            f'The browser shows the to-do list "{self.look.title}". Change it: {wanted}. '
            "Leave all other entries as they are."
        )

    @cached_property
    def app(self) -> App:
        pages = {"/": partial(_render, self.look)}
        return App(self.look.title, pages, self._plan[1], OPERATIONS)

    def wanted(self) -> Mapping[str, Any]:
        return {
            "changes": [
                {"kind": c.kind, "id": c.id, "text": c.text, "new": c.new, "name": c.request}
                for c in self.changes
            ]
        }

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self._make(machine, self.changes)

    def cheap_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self._make(machine, [c for c in self.changes if c.kind in ("tick", "delete")])

    def _make(self, machine: Machine, changes: Sequence[Change]) -> Iterator[AnyAction]:
        window, look, state = self.window(machine), self.look, self._plan[1]
        for change in changes:
            rows = [todo["id"] for todo in state["todos"]]
            down = look.pitch * (rows.index(change.id) if change.id else 0)
            if change.kind == "tick":
                yield self.click(window, look.tick.down(down))
                request = {"op": "tick", "id": change.id, "values": {"done": True}}
            elif change.kind == "delete":
                yield self.click(window, look.delete.down(down))
                request = {"op": "delete", "id": change.id}
            elif change.kind == "rename":
                yield self.click(window, look.rename.down(down))
                yield Key(key="ctrl+a")
                yield Type(text=f"{change.new}\n")
                request = {"op": "rename", "id": change.id, "values": {"text": change.new}}
            else:
                yield self.click(window, look.entry)
                yield Type(text=change.text)
                yield self.click(window, look.add)
                request = {"op": "add", "values": {"text": change.text, "done": False}}
            state = apply(state, OPERATIONS, request)
        yield Done()


def _texts(draw: Draw, count: int) -> list[str]:
    verbs, things = draw.shuffled(_VERBS), draw.shuffled(_THINGS)
    return [f"{verbs[i % len(verbs)]} {things[i]}" for i in range(count)]


def _render(look: Look, secret: str) -> str:
    parts = [
        heading(look.heading, look.title),
        text_field(look.entry, "entry"),
        button(look.add, "add", "Add", "take()", "strong"),
        button(look.cancel, "cancel", "Cancel", "leave()"),
        notice(look.status),
    ]
    row = {
        name: [box.x, box.y, box.width, box.height]
        for name, box in (
            ("tick", look.tick),
            ("text", look.text),
            ("rename", look.rename),
            ("delete", look.delete),
        )
    }
    script = _SCRIPT.format(row=script_value(row), pitch=look.pitch)
    return document(look.title, look.theme, parts, script, secret)


_SCRIPT = """
const row = {row};
let renaming = null;
const at = (name, i) => {{
  const [x, y, w, h] = row[name];
  return `left:${{x}}px;top:${{y + i * {pitch}}}px;width:${{w}}px;height:${{h}}px`;
}};
function dirty() {{ return renaming !== null || field("entry").value !== ""; }}
function leave() {{ renaming = null; field("entry").value = ""; render(); mark(); say(""); }}
function take() {{
  const text = field("entry").value.trim();
  if (!text) return say("Type a text first");
  const id = renaming;
  renaming = null;
  field("entry").value = "";
  if (id === null) send({{op: "add", values: {{text, done: false}}}}, "Added");
  else send({{op: "rename", id, values: {{text}}}}, "Renamed");
}}
function render() {{
  field("drawn").replaceChildren();
  field("add").textContent = renaming === null ? "Add" : "Rename";
  field("cancel").hidden = renaming === null;
  state.todos.forEach((todo, i) => {{
    const tick = make("input", at("tick", i), null, {{type: "checkbox", checked: todo.done}});
    tick.onchange = () =>
      send({{op: "tick", id: todo.id, values: {{done: tick.checked}}}}, "Saved");
    make("div", at("text", i), todo.text, {{className: todo.done ? "cell done" : "cell"}});
    make("button", at("rename", i), "Rename", {{onclick: () => {{
      renaming = todo.id;
      field("entry").value = todo.text;
      render();
      mark();
      field("entry").focus();
    }}}});
    make("button", at("delete", i), "Delete", {{onclick: () => {{
      if (renaming === todo.id) leave();
      send({{op: "delete", id: todo.id}}, "Deleted");
    }}}});
  }});
}}
field("entry").addEventListener("input", mark);
field("entry").addEventListener("keydown", e => {{ if (e.key === "Enter") take(); }});
"""
