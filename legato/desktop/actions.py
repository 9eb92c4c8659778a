"""The actions an agent can take, as frozen validated models, in screenshot pixels.

``(0, 0)`` is the top-left pixel. Build one by its class, ``Click(x=3, y=4)``, or by name,
``Action(action_type="click", x=3, y=4)``; either raises
:class:`~legato.errors.ActionError` when it makes no sense. Whether a point lies on the screen or
a key exists is for the desktop to say (:func:`check_on_screen` helps it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from legato.errors import ActionError

Pixel = Annotated[int, Field(ge=-(2**15), lt=2**15)]

MAX_TEXT = 10_000
"""Longest text of one ``type`` or ``answer`` action, in characters."""
MAX_WAIT_S = 60.0


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as e:
            raise ActionError(_explain(e)) from None

    def points(self) -> list[tuple[int, int]]:
        """Every point this action touches, in order."""
        return []


class _AtPoint(_Action):
    x: Pixel
    y: Pixel

    def points(self) -> list[tuple[int, int]]:
        return [(self.x, self.y)]


class Click(_AtPoint):
    action_type: Literal["click"] = "click"


class DoubleClick(_AtPoint):
    action_type: Literal["double_click"] = "double_click"


class TripleClick(_AtPoint):
    action_type: Literal["triple_click"] = "triple_click"


class RightClick(_AtPoint):
    action_type: Literal["right_click"] = "right_click"


class MiddleClick(_AtPoint):
    action_type: Literal["middle_click"] = "middle_click"


class Move(_AtPoint):
    action_type: Literal["move"] = "move"


class Drag(_Action):
    """Left button down at (x, y), along ``path`` if given, up at (to_x, to_y)."""

    action_type: Literal["drag"] = "drag"
    x: Pixel
    y: Pixel
    to_x: Pixel
    to_y: Pixel
    path: tuple[tuple[Pixel, Pixel], ...] = Field(default=(), max_length=1000)
    """Points between the two ends."""

    @model_validator(mode="before")
    @classmethod
    def _ends_from_path(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "x" in data or not data.get("path"):
            return data
        points = list(data["path"])
        if len(points) < 2:
            raise ValueError("a drag path needs at least two points")
        (x, y), (to_x, to_y) = points[0], points[-1]
        return {**data, "x": x, "y": y, "to_x": to_x, "to_y": to_y, "path": tuple(points[1:-1])}

    def points(self) -> list[tuple[int, int]]:
        return [(self.x, self.y), *self.path, (self.to_x, self.to_y)]


class _MaybeAtPoint(_Action):
    """With a point the pointer moves there first; without, it stays."""

    x: Pixel | None = None
    y: Pixel | None = None
    button: Literal["left", "middle", "right"] = "left"

    @model_validator(mode="after")
    def _both_or_neither(self) -> _MaybeAtPoint:
        if (self.x is None) != (self.y is None):
            raise ValueError("give both x and y, or neither")
        return self

    def points(self) -> list[tuple[int, int]]:
        return [] if self.x is None or self.y is None else [(self.x, self.y)]


class MouseDown(_MaybeAtPoint):
    action_type: Literal["mouse_down"] = "mouse_down"


class MouseUp(_MaybeAtPoint):
    action_type: Literal["mouse_up"] = "mouse_up"


class Scroll(_AtPoint):
    action_type: Literal["scroll"] = "scroll"
    direction: Literal["up", "down", "left", "right"]
    amount: int = Field(default=3, ge=1, le=100)
    """Wheel clicks."""


class Type(_Action):
    action_type: Literal["type"] = "type"
    text: str = Field(max_length=MAX_TEXT)


class Key(_Action):
    """A key or a chord, names joined by ``+``: ``Return``, ``ctrl+s``, ``ctrl+shift+Tab``."""

    action_type: Literal["key"] = "key"
    key: str = Field(min_length=1, max_length=100)


class KeyDown(_Action):
    action_type: Literal["key_down"] = "key_down"
    key: str = Field(min_length=1, max_length=100)


class KeyUp(_Action):
    action_type: Literal["key_up"] = "key_up"
    key: str = Field(min_length=1, max_length=100)


class Wait(_Action):
    action_type: Literal["wait"] = "wait"
    seconds: float = Field(default=1.0, ge=0.0, le=MAX_WAIT_S, allow_inf_nan=False)


class TakeScreenshot(_Action):
    """Do nothing and look again."""

    action_type: Literal["screenshot"] = "screenshot"


class Done(_Action):
    """The agent says the task is complete."""

    action_type: Literal["done"] = "done"


class Fail(_Action):
    """The agent says the task cannot be done."""

    action_type: Literal["fail"] = "fail"


class Answer(_Action):
    """The agent replies in words; ends the episode like ``done``."""

    action_type: Literal["answer"] = "answer"
    text: str = Field(max_length=MAX_TEXT)


AnyAction: TypeAlias = (
    Click
    | DoubleClick
    | TripleClick
    | RightClick
    | MiddleClick
    | Move
    | Drag
    | MouseDown
    | MouseUp
    | Scroll
    | Type
    | Key
    | KeyDown
    | KeyUp
    | Wait
    | TakeScreenshot
    | Done
    | Fail
    | Answer
)

_ADAPTER: TypeAdapter[AnyAction] = TypeAdapter(
    Annotated[AnyAction, Field(discriminator="action_type")]
)

ACTION_TYPES: frozenset[str] = frozenset(
    c.model_fields["action_type"].default for c in get_args(AnyAction)
)
ENDS_EPISODE: frozenset[str] = frozenset({"done", "fail", "answer"})


def Action(**fields: Any) -> AnyAction:  # noqa: N802 - reads as the constructor it stands for
    """Build any action by its ``action_type``. Raises ``ActionError``."""
    return parse_action(fields)


def parse_action(data: Mapping[str, Any]) -> AnyAction:
    """Read an action from its JSON form (the inverse of :func:`action_json`)."""
    if data.get("action_type") not in ACTION_TYPES:
        raise ActionError(
            f"unknown action_type {data.get('action_type')!r}; "
            f"known: {', '.join(sorted(ACTION_TYPES))}"
        )
    try:
        return _ADAPTER.validate_python(dict(data))
    except ValidationError as e:
        raise ActionError(_explain(e)) from None


def action_json(action: AnyAction) -> dict[str, Any]:
    """The JSON form, without fields that were left unset."""
    return action.model_dump(mode="json", exclude_none=True)


def describe(action: AnyAction) -> str:
    """An action in a few words, such as ``click 30,40`` or ``type 'abc'``."""
    fields = action.model_dump(exclude={"action_type"}, exclude_none=True)
    x, y = fields.pop("x", None), fields.pop("y", None)
    words: list[str] = [action.action_type]
    if x is not None:
        words.append(f"{x},{y}")
    if "to_x" in fields:
        words.append(f"to {fields.pop('to_x')},{fields.pop('to_y')}")
        fields.pop("path")
    words += [repr(v) if isinstance(v, str) and k == "text" else str(v) for k, v in fields.items()]
    return " ".join(words)


def check_on_screen(action: AnyAction, width: int, height: int) -> None:
    """Raise ``ActionError`` unless every point lies in ``[0, width) x [0, height)``."""
    for x, y in action.points():
        if not (0 <= x < width and 0 <= y < height):
            raise ActionError(
                f"{action.action_type} at ({x}, {y}) lies outside the {width}x{height} screen"
            )


def _explain(error: ValidationError) -> str:
    parts = []
    for item in error.errors(include_url=False):
        where = ".".join(map(str, item["loc"]))
        parts.append(f"{where}: {item['msg']}" if where else item["msg"])
    return f"invalid action: {'; '.join(parts)}"
