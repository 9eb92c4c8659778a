"""What all web apps share: what their server takes and logs, and clicks that come twice."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.actions import AnyAction, Click, Done, DoubleClick, TripleClick, Type
from legato.desktop.contract import DesktopOptions
from legato.desktop.local import LocalDesktop, make_desktop
from legato.tasks import load_task
from legato.tasks.desktop_apps.web_shop import WebShop
from legato.tasks.desktop_basics.expense_sheet import OPERATIONS, ExpenseSheet
from legato.tasks.desktop_basics.todo_list import TodoList
from legato.tasks.qa.stage import Stage
from legato.tasks.web import server as web_server
from legato.tasks.web.app_server import EVENTS, AppServer, read_log
from legato.tasks.web.server import DO, MAX_BODY
from legato.tasks.web.task import PORT
from tests.tasks.disk_machine import DiskMachine
from tests.tasks.solved import requests_of

HOST = f"127.0.0.1:{PORT}"


def ask(app: Path, method: str, path: str, body: str = "", secret: str = "") -> tuple[int, str]:
    """One request to the server whose folder ``app`` is, as the page makes it."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(app / "app.sock"))
    headers = {"Origin": f"http://{HOST}", "Content-Type": "application/json", "X-Session": secret}
    connection.request(method, path, body.encode(), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_what_the_page_asks_for_in_vain_voids_nothing(machine: DiskMachine) -> None:
    task = find("todo_list", lambda t: any(c.kind == "delete" for c in t.changes))
    task.setup(machine)
    app = machine.scratch / "app"
    page = ask(app, "GET", "/")[1]
    secret = re.findall(r'const secret = "(\w+)"', page)[0]
    again = next(r for r in requests_of(task) if r["op"] == "delete")
    asked = [*requests_of(task), again, {"op": "add", "values": {"text": "", "done": False}}]
    statuses = [ask(app, "POST", DO, json.dumps(r), secret)[0] for r in asked]
    assert statuses == [200] * len(requests_of(task)) + [400] * 2
    assert [e["event"] for e in read_log(app)[0]][-2:] == ["invalid"] * 2
    machine.window_list = [machine.window_list[0]]
    assert task.grade(machine).reward == 1.0
    assert ask(app, "POST", DO, json.dumps(again), "0" * 32)[0] == 403
    assert task.grade(machine).reward == 0.0


def test_no_log_outgrows_what_can_be_read(tmp_path: Path) -> None:
    """However much is saved, and though what is no ASCII takes more room in the log."""
    most = MAX_BODY // 2 - 50
    fields = {"text": {"kind": "text", "max": most}}
    spec = {
        "pages": {"/": "<!doctype html>"},
        "state": {"note": {"text": ""}, "next": 1},
        "operations": {"save": {"kind": "set", "into": "note", "fields": fields}},
        "host": HOST,
        "secret": "s",
    }
    app = AppServer(Path(web_server.__file__), tmp_path / "app", spec)
    body = json.dumps({"op": "save", "values": {"text": "é" * most}}, ensure_ascii=False)
    try:
        statuses = {ask(tmp_path / "app", "POST", DO, body, "s")[0] for _ in range(400)}
        events, state = read_log(tmp_path / "app")
    finally:
        app.close()
    assert statuses == {200, 429}
    assert state["note"]["text"] == "é" * most
    assert [e["n"] for e in events] == list(range(1, len(events) + 1))
    assert (tmp_path / "app" / EVENTS).stat().st_size < 32 * 2**20


def test_a_page_takes_as_much_as_its_server() -> None:
    fields = OPERATIONS["save"]["fields"]
    most = {name: field["max"] for name, field in fields.items() if field["kind"] == "text"}
    for seed in range(3):
        page = find("expense_sheet", lambda t, s=seed: t.seed == s).app.pages["/"]("s")
        assert json.loads(re.findall(r"lengths = ({[^}]*})", page)[0]) == most


def test_a_window_with_a_long_address_for_its_title_is_seen(machine: DiskMachine) -> None:
    task = load_task("settings_tabs", 1)
    task.setup(machine)
    guards = {c.name: c.passed for c in task.grade(machine).checks if c.kind == "guard"}
    assert guards["no other browser window is open"]
    title = f"{HOST}/{'x' * 400} - Chromium"
    machine.window_list.append(replace(machine.window_list[0], id=99, title=title))
    guards = {c.name: c.passed for c in task.grade(machine).checks if c.kind == "guard"}
    assert not guards["no other browser window is open"]


# --- on a desktop --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def desktop() -> Iterator[LocalDesktop]:
    desktop = make_desktop(DesktopOptions(), slot=0)
    yield desktop
    desktop.close()


def find(name: str, fits: Callable[[Any], bool]) -> Any:
    return next(t for t in (load_task(name, seed) for seed in range(400)) if fits(t))


def doubled(actions: Iterable[AnyAction], *places: tuple[int, int]) -> list[AnyAction]:
    """With a double click for each click at one of these places of the screen."""
    found: list[AnyAction] = []
    for action in actions:
        if isinstance(action, Click) and (action.x, action.y) in places:
            found.append(DoubleClick(x=action.x, y=action.y))
        else:
            found.append(action)
    assert any(isinstance(action, DoubleClick) for action in found)
    return found


@pytest.mark.desktop
def test_an_order_placed_by_a_double_click_is_one(desktop: LocalDesktop) -> None:
    task = load_task("web_shop", 1)
    assert isinstance(task, WebShop)
    stage = Stage(desktop, task)
    machine = stage.start()
    click = task.click(task.window(machine), task.shop.place_order)
    score = stage.verdict(doubled(task.reference_actions(machine), (click.x, click.y)))
    assert score.reward == 1.0, score


@pytest.mark.desktop
@pytest.mark.parametrize("spares", [1, 2])
def test_each_action_takes_one_line_out_of_the_cart(desktop: LocalDesktop, spares: int) -> None:
    """A double click not the next one, too, which then stands there; two clicks do."""
    task = find("web_shop", lambda t: len(t.order.lines) == 2)
    assert isinstance(task, WebShop)
    stage = Stage(desktop, task)
    machine = stage.start()
    window, shop = task.window(machine), task.shop
    to_cart = task.click(window, shop.to_cart)
    actions = list(task.reference_actions(machine))
    at = actions.index(to_cart)
    others = [a for a in shop.articles if a not in [line[0] for line in task.order.lines]]
    added = [
        task.click(window, box)
        for other in others[:spares]
        for box in (shop.tile(other), shop.add, shop.home)
    ]
    place = {"x": window.x + shop.left + 550, "y": window.y + 130 + 17}
    removed = [DoubleClick(**place)] if spares == 1 else [Click(**place)] * spares
    score = stage.verdict([*added, *actions[:at], to_cart, *removed, *actions[at:]])
    assert score.reward == 1.0, score


@pytest.mark.desktop
def test_a_double_click_deletes_one_entry(desktop: LocalDesktop) -> None:
    task = find("todo_list", lambda t: any(c.kind == "delete" for c in t.changes))
    assert isinstance(task, TodoList)
    stage = Stage(desktop, task)
    machine = stage.start()
    window, look = task.window(machine), task.look
    rows = range(len(task.app.state["todos"]))
    boxes = [task.click(window, look.delete.down(look.pitch * row)) for row in rows]
    places = [(click.x, click.y) for click in boxes]
    score = stage.verdict(doubled(task.reference_actions(machine), *places))
    assert score.reward == 1.0, score


@pytest.mark.desktop
def test_what_was_too_long_can_be_corrected(desktop: LocalDesktop) -> None:
    task = find("expense_sheet", lambda t: any(c.action == "amount" for c in t.changes))
    assert isinstance(task, ExpenseSheet)
    stage = Stage(desktop, task)
    machine = stage.start()
    window, look = task.window(machine), task.look
    change = next(c for c in task.changes if c.action == "amount")
    row = [line.id for line in task.lines].index(change.line.id)
    cell = task.click(window, look.cells["amount"].down(look.pitch * row))
    save = task.click(window, look.save)
    stage.play([TripleClick(x=cell.x, y=cell.y), Type(text="1" * 40), save])
    assert [e["event"] for e in read_log(machine.scratch / "app")[0]] == ["page", "do"]
    actions = [TripleClick(x=cell.x, y=cell.y), Type(text=change.line.amount), save]
    score = stage.verdict([*actions, *task.reference_actions(machine), Done()])
    assert score.reward == 1.0, score
