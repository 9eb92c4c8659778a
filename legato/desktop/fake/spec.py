"""What a screen of the fake desktop holds: its widgets, and what is asked of them.

The JSON form stands in a task's config under ``fake``. A whole screen::

    {"title": "Profile",
     "widgets": [{"type": "field", "name": "city", "label": "City", "value": "Rome"},
                 {"type": "check", "name": "news", "label": "Newsletter"}],
     "goal": {"city": "Oslo", "news": true}}

or a seeded one: ``{"kind": "form", "seed": 3}`` (see :mod:`legato.desktop.fake.generate`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from legato.errors import ConfigError

Value: TypeAlias = str | int | bool | None
"""What a widget holds: text, a number, on/off or pressed, the selected item or ``None``."""

MAX_FIELD = 1000
"""Longest text a field takes, in characters."""

Line = Annotated[str, Field(max_length=MAX_FIELD, pattern=r"^[^\x00-\x1f\x7f]*$")]
Colour = tuple[
    Annotated[int, Field(ge=0, le=255)],
    Annotated[int, Field(ge=0, le=255)],
    Annotated[int, Field(ge=0, le=255)],
]


class _Widget(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=60)]
    label: Line = ""
    """Defaults to the name."""
    tab: Line = ""
    """Title of the tab it is on; either every widget of a screen has one, or none."""

    @property
    def caption(self) -> str:
        return self.label or self.name


class FieldSpec(_Widget):
    type: Literal["field"] = "field"
    value: Line = ""

    def admits(self, value: Value) -> bool:
        return isinstance(value, str) and len(value) <= MAX_FIELD and value.isprintable()


class CheckSpec(_Widget):
    type: Literal["check"] = "check"
    value: bool = False

    def admits(self, value: Value) -> bool:
        return isinstance(value, bool)


class ListSpec(_Widget):
    type: Literal["list"] = "list"
    items: Annotated[tuple[Line, ...], Field(min_length=1, max_length=500)]
    value: str | None = None

    def admits(self, value: Value) -> bool:
        return value is None or value in self.items

    @model_validator(mode="after")
    def _distinct(self) -> ListSpec:
        if len(set(self.items)) != len(self.items):
            raise ValueError("items must differ from each other")
        return self


class SliderSpec(_Widget):
    type: Literal["slider"] = "slider"
    low: int = 0
    high: int = 10
    value: int = 0

    def admits(self, value: Value) -> bool:
        return (
            isinstance(value, int)
            and not isinstance(value, bool)
            and self.low <= value <= self.high
        )

    @model_validator(mode="after")
    def _span(self) -> SliderSpec:
        if not 1 <= self.high - self.low <= 1000:
            raise ValueError("high must be 1 to 1000 above low")
        return self


class ButtonSpec(_Widget):
    """Stays pressed once pressed."""

    type: Literal["button"] = "button"
    value: bool = False
    colour: Colour | None = None

    def admits(self, value: Value) -> bool:
        return isinstance(value, bool)


WidgetSpec: TypeAlias = Annotated[
    FieldSpec | CheckSpec | ListSpec | SliderSpec | ButtonSpec, Field(discriminator="type")
]


class SceneSpec(BaseModel):
    """One screen and its goal."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    title: Line = "Settings"
    widgets: Annotated[tuple[WidgetSpec, ...], Field(min_length=1, max_length=60)]
    goal: Annotated[dict[str, Value], Field(min_length=1)]
    """The value each named widget must have in the end; every other one must stay as it was."""
    save: bool = True
    """With a Save button: only what was saved counts, and nothing saved earns nothing."""

    @model_validator(mode="after")
    def _consistent(self) -> SceneSpec:
        by_name = {w.name: w for w in self.widgets}
        if len(by_name) != len(self.widgets):
            raise ValueError("widget names must differ from each other")
        if 0 < sum(bool(w.tab) for w in self.widgets) < len(self.widgets):
            raise ValueError("give every widget a tab, or none")
        for widget in self.widgets:
            if not widget.admits(widget.value):
                raise ValueError(f"{widget.name} cannot hold {widget.value!r}")
        for name, wanted in self.goal.items():
            if name not in by_name:
                raise ValueError(f"goal names {name!r}, which is no widget")
            if not by_name[name].admits(wanted):
                raise ValueError(f"{name} can never be {wanted!r}")
            if by_name[name].value == wanted:
                raise ValueError(f"{name} is {wanted!r} from the start: doing nothing would earn")
            if by_name[name].type == "list" and wanted is None:
                raise ValueError(f"{name}: a selection cannot be taken back")
            if by_name[name].type == "button" and not wanted:
                raise ValueError(f"{name}: a button cannot be unpressed")
        return self

    @property
    def tabs(self) -> tuple[str, ...]:
        """Titles of the tabs in order of appearance; empty without tabs."""
        return tuple(dict.fromkeys(w.tab for w in self.widgets if w.tab))


def read_spec(data: Mapping[str, Any]) -> SceneSpec:
    """Read the JSON form of a whole screen. Raises ``ConfigError`` naming the field at fault."""
    try:
        return SceneSpec.model_validate_json(json.dumps(dict(data)))
    except (TypeError, ValueError) as e:
        if not isinstance(e, ValidationError):
            raise ConfigError(f"the screen under 'fake' is not JSON: {e}") from None
        problems = (
            ".".join(map(str, item["loc"])) + ": " + item["msg"]
            for item in e.errors(include_url=False)
        )
        raise ConfigError(f"the screen under 'fake' is invalid: {'; '.join(problems)}") from None


def describe_goal(spec: SceneSpec) -> str:
    """The goal as an instruction to a person."""
    by_name = {w.name: w for w in spec.widgets}
    parts = [_ask(by_name[name], wanted) for name, wanted in spec.goal.items()]
    if spec.save:
        parts.append("press Save")
    text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, then {parts[-1]}"
    return text[0].upper() + text[1:] + "."


def _ask(widget: WidgetSpec, wanted: Value) -> str:
    where = f" on the {widget.tab} tab" if widget.tab else ""
    match widget.type:
        case "field":
            if wanted == "":
                return f"clear {widget.caption}{where}"
            return f'set {widget.caption}{where} to "{wanted}"'
        case "check":
            return f"turn {'on' if wanted else 'off'} {widget.caption}{where}"
        case "list":
            return f'choose "{wanted}" in {widget.caption}{where}'
        case "slider":
            return f"set {widget.caption}{where} to {wanted}"
        case "button":
            return f"press {widget.caption}{where}"
