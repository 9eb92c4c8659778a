"""End states without a desktop: solved ones, for tests that change them and must be noticed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from legato.tasks.desktop_apps.web_shop import WebShop
from legato.tasks.desktop_basics.expense_sheet import ExpenseSheet
from legato.tasks.desktop_basics.settings_tabs import SettingsTabs
from legato.tasks.desktop_basics.signup_form import SignupForm
from legato.tasks.desktop_basics.todo_list import TodoList
from legato.tasks.web.ops import apply
from legato.tasks.web.task import WebTask

Request = dict[str, Any]


def requests_of(task: WebTask) -> list[Request]:
    """What the page sends when the task is solved, in order."""
    return list(_REQUESTS[type(task)](task))


def web_evidence(task: WebTask, requests: list[Request]) -> dict[str, Any]:
    """Evidence as it is after these requests, each applied by the app's own rules."""
    state = task.app.state
    for request in requests:
        state = apply(state, task.app.operations, request)
    events: list[dict[str, Any]] = [{"event": "page", "path": "/"}]
    events += [{"event": "do", "request": request} for request in requests]
    return copy.deepcopy(
        {
            "app": {
                "title": task.app.title,
                "state": task.app.state,
                "operations": task.app.operations,
            },
            "wanted": task.wanted(),
            "found": {
                "events": [{"n": n, **event} for n, event in enumerate(events, 1)],
                "state": state,
                "titles": [task.app.title],
            },
        }
    )


def _settings(task: SettingsTabs) -> Iterator[Request]:
    values = dict(task.app.state["settings"])
    values |= {control.id: value for control, value in task.changes}
    yield {"op": "save", "values": values}


def _signup(task: SignupForm) -> Iterator[Request]:
    yield {"op": "send", "values": {f.id: f.wanted for f in task.form.fields}}


def _todo(task: TodoList) -> Iterator[Request]:
    for change in task.changes:
        if change.kind == "add":
            yield {"op": "add", "values": {"text": change.text, "done": False}}
        elif change.kind == "rename":
            yield {"op": "rename", "id": change.id, "values": {"text": change.new}}
        elif change.kind == "tick":
            yield {"op": "tick", "id": change.id, "values": {"done": True}}
        else:
            yield {"op": "delete", "id": change.id}


def _expenses(task: ExpenseSheet) -> Iterator[Request]:
    rows = [line.to_json() for line in task.lines]
    for change in task.changes:
        if change.action == "add":
            rows.append({k: v for k, v in change.line.to_json().items() if k != "id"})
        elif change.action == "delete":
            rows = [row for row in rows if row.get("id") != change.line.id]
        else:
            row = next(row for row in rows if row.get("id") == change.line.id)
            row[change.action] = change.new
    yield {"op": "save", "rows": rows}


def _shop(task: WebShop) -> Iterator[Request]:
    order = task.order
    for article, variant, quantity in order.lines:
        values = {"article": article.name, "variant": variant, "quantity": quantity}
        yield {"op": "put", "values": values}
    address = {"name": order.name, "street": order.street, "delivery": order.delivery}
    yield {"op": "order", "values": address}


_REQUESTS: dict[type[WebTask], Any] = {
    SettingsTabs: _settings,
    SignupForm: _signup,
    TodoList: _todo,
    ExpenseSheet: _expenses,
    WebShop: _shop,
}
