"""Fill in a sign-up form in Chromium and send it, once.

Partial credit is for what was typed as asked into the one form that was sent. Lists and boxes,
which a blind click can set, count only beside that; an empty form is not taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from legato.desktop.actions import AnyAction, Done, Type
from legato.desktop.contract import Machine
from legato.tasks.draw import Draw
from legato.tasks.place import Place, draw_place
from legato.tasks.web.layout import Box, Theme, draw_theme
from legato.tasks.web.markup import script_value
from legato.tasks.web.page import (
    button,
    check_box,
    choice,
    document,
    heading,
    label,
    notice,
    text_field,
)
from legato.tasks.web.task import App, WebTask

Kind = Literal["text", "choice", "check"]

_CLUBS = ("Rowing Club", "City Library", "Film Circle", "Allotments", "Chess Evenings", "Choir")
_FIRST = ("Ines", "Marek", "Zoë", "Tobias", "Priya", "Łucja", "Hana", "Joost", "Émile", "Rosa")
_LAST = ("Okafor", "Lindqvist", "Moreau", "Haddad", "Novák", "Brandt", "Costa", "Ito", "Vega")
_MAILS = ("example.org", "mail.example.org", "example.net")
_STREETS = ("Mill Lane", "Harbour Road", "Castle Green", "Station Square", "Orchard Way")
_TOWNS = ("Leeds", "Graz", "Nantes", "Bilbao", "Malmö", "Trieste", "Porto", "Gdynia")
_LISTS: Mapping[str, Sequence[str]] = {
    "Membership": ("Adult", "Child", "Family", "Senior"),
    "Evening": ("Friday", "Monday", "Thursday", "Wednesday"),
    "Language": ("Deutsch", "English", "Français", "Polski"),
}
_BOXES = ("Send the newsletter", "Share my address", "Bring a guest", "Needs a parking space")
_TERMS = "I accept the rules"


@dataclass(frozen=True, slots=True)
class Field:
    id: str
    kind: Kind
    label: str
    initial: str | bool
    wanted: str | bool
    """What the form is to hold when it is sent; the initial value where nothing is asked."""
    label_box: Box
    box: Box
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    title: str
    theme: Theme
    fields: tuple[Field, ...]
    send: Box
    status: Box


def draw_form(draw: Draw) -> Form:
    first, last = draw.choice(_FIRST), draw.choice(_LAST)
    number = draw.between(2, 99)
    texts = {
        "First name": first,
        "Last name": last,
        "E-mail": f"{_plain(last)}{number}@{draw.choice(_MAILS)}",
        "Street": f"{draw.choice(_STREETS)} {draw.between(1, 120)}",
        "Town": draw.choice(_TOWNS),
        "Phone": f"0{draw.between(200, 899)} {draw.between(10_000, 99_999)}",
        "Year of birth": str(draw.between(1948, 2009)),
    }
    asked: list[tuple[Kind, str, str | bool, str | bool, tuple[str, ...]]] = [
        ("text", name, "", texts[name], ())
        for name in draw.sample(sorted(texts), draw.between(3, 4))
    ]
    for name in draw.sample(sorted(_LISTS), draw.between(1, 2)):
        options = tuple(_LISTS[name])
        initial = draw.choice(options)
        asked.append(("choice", name, initial, draw.choice(options), options))
    boxes = draw.sample(_BOXES, 2)
    for i, name in enumerate(boxes):
        ticked = draw.choice((True, False))
        asked.append(("check", name, ticked, not ticked if i == 0 else ticked, ()))
    asked = draw.shuffled(asked)
    asked.append(("check", _TERMS, False, True, ()))

    left, top = draw.choice((30, 60, 100)), draw.choice((66, 78))
    pitch, indent = draw.choice((46, 48, 50)), draw.choice((190, 220, 250))
    fields = []
    for i, (kind, name, before, after, options) in enumerate(asked):
        y = top + pitch * i
        size = (20, 20) if kind == "check" else (draw.choice((240, 300)), 32)
        box = Box(left + indent, y + (32 - size[1]) // 2, *size)
        label_box = Box(left, y, indent - 10, 32)
        fields.append(Field(f"f{i}", kind, name, before, after, label_box, box, options))
    bottom = top + pitch * len(asked) + 6
    send = Box(left + draw.choice((0, indent)), bottom, 130, 38)
    return Form(
        title=f"{draw.choice(_CLUBS)} sign-up",
        theme=draw_theme(draw),
        fields=tuple(fields),
        send=send,
        status=Box(send.x + 150, bottom, 300, 38),
    )


@dataclass(frozen=True)
class SignupForm(WebTask):
    """Fill in a sign-up form in Chromium with text, lists and boxes, and send it once."""

    suite = "desktop_basics"
    name = "signup_form"
    judge = Path(__file__).with_name("signup_form_judge.py")

    @cached_property
    def _plan(self) -> tuple[Form, Place]:
        draw = Draw(self.name, self.seed)
        return draw_form(draw), draw_place(draw)

    @property
    def form(self) -> Form:
        return self._plan[0]

    @property
    def place(self) -> Place:
        return self._plan[1]

    @property
    def instruction(self) -> str:
        wanted = "; ".join(_request(f) for f in self.form.fields if f.wanted != f.initial)
        return (
            f'Fill in the form "{self.form.title}" in the browser and send it once: {wanted}. '
            "Leave everything else in the form as it is."
        )

    @cached_property
    def app(self) -> App:
        return App(
            self.form.title,
            {"/": partial(_render, self.form)},
            {"sent": [], "next": 1},
            {"send": {"kind": "add", "into": "sent", "fields": _rules(self.form)}},
        )

    def wanted(self) -> Mapping[str, Any]:
        return {
            "fields": [
                {
                    "id": f.id,
                    "name": f.label,
                    "value": f.wanted,
                    "asked": f.wanted != f.initial,
                    "cheap": f.kind != "text",
                }
                for f in self.form.fields
            ]
        }

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self._fill(machine, typed=True)

    def cheap_actions(self, machine: Machine) -> Iterator[AnyAction]:
        """With the same letter in every text field, which is what it takes to send a form."""
        return self._fill(machine, typed=False)

    def _fill(self, machine: Machine, *, typed: bool) -> Iterator[AnyAction]:
        window = self.window(machine)
        for field in self.form.fields:
            if field.wanted == field.initial:
                continue
            yield self.click(window, field.box)
            if field.kind == "text":
                yield Type(text=str(field.wanted) if typed else "x")
            elif field.kind == "choice":
                yield Type(text=f"{field.wanted}\n")
        yield self.click(window, self.form.send)
        yield Done()


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isascii())


def _request(field: Field) -> str:
    if field.kind == "text":
        return f'"{field.label}" is "{field.wanted}"'
    if field.kind == "choice":
        return f'choose "{field.wanted}" for "{field.label}"'
    return f'{"tick" if field.wanted else "untick"} "{field.label}"'


def _rules(form: Form) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    for field in form.fields:
        rules[field.id] = {"kind": field.kind, "options": field.options, "min": 1}
        if field.label == _TERMS:
            rules[field.id]["must"] = True
    return rules


def _render(form: Form, secret: str) -> str:
    parts = [heading(Box(form.fields[0].label_box.x, 16, 700, 32), form.title)]
    for field in form.fields:
        parts.append(label(field.label_box, field.label, field.id))
        if field.kind == "text":
            parts.append(text_field(field.box, field.id))
        elif field.kind == "choice":
            parts.append(choice(field.box, field.id, field.options))
        else:
            parts.append(check_box(field.box, field.id))
    parts.append(button(form.send, "send", "Send", "submit()", "strong"))
    parts.append(notice(form.status))
    initial = {f.id: f.initial for f in form.fields}
    terms = next(f.id for f in form.fields if f.label == _TERMS)
    script = _SCRIPT.format(initial=script_value(initial), terms=script_value(terms))
    return document(form.title, form.theme, parts, script, secret)


_SCRIPT = """
const initial = {initial}, ids = Object.keys(initial);
function render() {{ ids.forEach(id => put(id, initial[id])); }}
function dirty() {{ return ids.some(id => value(id) !== initial[id]); }}
function submit() {{
  const values = Object.fromEntries(ids.map(id => [id, value(id)]));
  if (ids.some(id => typeof values[id] === "string" && !values[id].trim()))
    return say("Fill in every field");
  if (!values[{terms}]) return say("Accept the rules first");
  send({{op: "send", values: values}}, "Thank you, it was sent");
}}
ids.forEach(id => field(id).addEventListener("input", () => {{
  say("");
  mark();
}}));
"""
