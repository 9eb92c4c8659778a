"""The operations of a web app on its state: data in, data out. Stdlib only.

A state maps names to records (``"settings": {...}``) and to lists of rows (``"todos": [{"id": 1,
...}]``); ``"next"`` is the id of the next new row. What an app can do is data as well::

    {"add": {"kind": "add", "into": "todos", "fields": {"text": {"kind": "text", "min": 1}}}}

``kind`` is ``set`` (a whole record), ``add`` (a row; with ``takes``, the rows of another list move
into it), ``edit`` (a row, all its fields), ``remove`` (a row) or ``replace`` (all rows of a list;
those without id are new). A field is ``text`` (``min``, ``max`` characters), ``check`` (``must``
be on) or ``choice`` (of ``options``).

The server applies requests one by one; a judge replays them from the log and compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MAX_TEXT = 200
MAX_ROWS = 200

State = dict[str, Any]
Operations = Mapping[str, Mapping[str, Any]]


class Rejected(ValueError):  # noqa: N818 - an answer, not a fault
    """The app cannot do this."""


def apply(state: State, operations: Operations, request: Any) -> State:
    """The state after one request; ``state`` itself is unchanged. Raises :class:`Rejected`."""
    if not isinstance(request, dict):
        raise Rejected("not a request")
    operation = operations.get(str(request.get("op")))
    if operation is None:
        raise Rejected(f"no operation {str(request.get('op'))[:40]!r}")
    kind, into, fields = operation["kind"], operation["into"], operation.get("fields", {})
    expected = {"set": {"values"}, "add": {"values"}, "edit": {"id", "values"}, "remove": {"id"}}
    if set(request) != {"op"} | expected.get(kind, {"rows"}):
        raise Rejected("not the fields of this operation")
    if kind == "set":
        return {**state, into: _checked(request["values"], fields)}
    if kind == "replace":
        return _replace(state, into, fields, request["rows"])
    rows: list[dict[str, Any]] = state[into]
    if kind == "add":
        row = {"id": state["next"], **_checked(request["values"], fields)}
        after = {**state, "next": state["next"] + 1}
        if taken := operation.get("takes"):
            if not state[taken]:
                raise Rejected(f"there is nothing in {taken}")
            row["lines"], after[taken] = state[taken], []
        after[into] = _bounded([*rows, row])
        return after
    at = next((i for i, row in enumerate(rows) if row["id"] == request["id"]), None)
    if at is None or isinstance(request["id"], bool):
        raise Rejected("no such row")
    if kind == "remove":
        return {**state, into: rows[:at] + rows[at + 1 :]}
    edited = {**rows[at], **_checked(request["values"], fields)}
    return {**state, into: [*rows[:at], edited, *rows[at + 1 :]]}


def replay(state: State, operations: Operations, requests: Iterable[Any]) -> State:
    """The state after these requests, one by one. Raises :class:`Rejected`."""
    for request in requests:
        state = apply(state, operations, request)
    return state


def _replace(state: State, into: str, fields: Mapping[str, Any], rows: Any) -> State:
    if not isinstance(rows, list):
        raise Rejected("no rows")
    known = {row["id"] for row in state[into]}
    following = state["next"]
    after = []
    for row in _bounded(rows):
        if not isinstance(row, dict):
            raise Rejected("not a row")
        number = row.get("id")
        if number is None:
            number, following = following, following + 1
        elif isinstance(number, bool) or number not in known:
            raise Rejected("no such row, or twice")
        known.discard(number)
        values = _checked({name: row[name] for name in row if name != "id"}, fields)
        after.append({"id": number, **values})
    return {**state, "next": following, into: after}


def _bounded(rows: list[Any]) -> list[Any]:
    if len(rows) > MAX_ROWS:
        raise Rejected("too many rows")
    return rows


def _checked(values: Any, fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if not isinstance(values, dict) or set(values) != set(fields):
        raise Rejected("not the fields of this page")
    for name, field in fields.items():
        if not _fits(field, values[name]):
            raise Rejected(f"no value for {name}")
    return values


def _fits(field: Mapping[str, Any], value: Any) -> bool:
    if field["kind"] == "check":
        return isinstance(value, bool) and (value or not field.get("must"))
    if field["kind"] == "choice":
        return value in field["options"]
    low, high = field.get("min", 0), field.get("max", MAX_TEXT)
    return isinstance(value, str) and low <= len(value.strip()) and len(value) <= high
