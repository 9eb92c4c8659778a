"""The settings app without a browser: its server, what it refuses, and how it is judged."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from legato.errors import EnvFailure
from legato.tasks import load_task
from legato.tasks.confined import _USERS
from legato.tasks.desktop_basics.settings_tabs import SettingsTabs
from legato.tasks.web import task as web_task
from legato.tasks.web.app_server import AppServer
from legato.tasks.web.server import DO
from legato.tasks.web.task import PORT
from tests.tasks.disk_machine import DiskMachine

ORIGIN = f"http://127.0.0.1:{PORT}"


class Browser:
    """Talks to the server as a page would, or as it would not."""

    def __init__(self, machine: DiskMachine) -> None:
        self.path = str(machine.scratch / "app" / "app.sock")
        self.page = self.request("GET", "/")[1]
        self.secret = str(re.findall(r'const secret = "(\w+)"', self.page)[0])
        state = json.loads(re.findall(r"let state = ({.*});", self.page)[0])
        self.values: dict[str, Any] = state["settings"]

    def request(
        self, method: str, path: str, body: bytes | str = b"", **headers: str
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(10)
        connection.sock.connect(self.path)
        connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def save(self, values: dict[str, Any] | bytes, **changed: str) -> int:
        headers = {"Origin": ORIGIN, "Content_Type": "application/json", "X_Session": self.secret}
        request = {"op": "save", "values": values}
        body = values if isinstance(values, bytes) else json.dumps(request)
        return self.request("POST", DO, body, **{**headers, **changed})[0]


def prepared(machine: DiskMachine, seed: int = 0) -> tuple[SettingsTabs, Browser]:
    task = load_task("settings_tabs", seed)
    assert isinstance(task, SettingsTabs)
    task.setup(machine)
    return task, Browser(machine)


def wanted(task: SettingsTabs, browser: Browser) -> dict[str, Any]:
    return {**browser.values, **{control.id: value for control, value in task.changes}}


@pytest.mark.parametrize("seed", range(10))
def test_nothing_and_an_untouched_save_earn_nothing_and_the_changes_earn_all(
    seed: int, machine: DiskMachine
) -> None:
    task, browser = prepared(machine, seed)
    assert task.grade(machine).reward == 0.0
    assert browser.save(browser.values) == 200
    assert task.grade(machine).reward == 0.0
    assert browser.save(wanted(task, browser)) == 200
    assert task.grade(machine).reward == 1.0


def test_a_reload_shows_what_was_saved_and_a_page_is_the_same_for_a_seed(
    machine: DiskMachine, tmp_path: Path
) -> None:
    task, browser = prepared(machine)
    browser.save(wanted(task, browser))
    assert Browser(machine).values == wanted(task, browser)
    (tmp_path / "other").mkdir()
    other = DiskMachine(tmp_path / "other")
    try:
        twin = prepared(other)[1]
    finally:
        for resource in other.owned:
            resource.close()
    assert twin.secret != browser.secret
    assert twin.page.replace(twin.secret, browser.secret) == browser.page
    script = browser.page.partition("<script>")[2]
    assert not re.search(r"Date|random|setTimeout|setInterval|performance", script)


def test_each_change_counts_and_the_last_save_is_the_state(machine: DiskMachine) -> None:
    task, browser = prepared(machine)
    control, value = next(change for change in task.changes if change[0].kind == "text")
    browser.save({**browser.values, control.id: value})
    assert task.grade(machine).reward == pytest.approx(1 / len(task.changes))
    browser.save(browser.values)
    assert task.grade(machine).reward == 0.0


def test_a_wrong_value_earns_only_the_others(machine: DiskMachine) -> None:
    task, browser = prepared(machine)
    control = next(c for c, _ in task.changes if c.kind != "text")
    browser.save({**wanted(task, browser), control.id: control.initial})
    share = (len(task.changes) - 1) / len(task.changes)
    assert task.grade(machine).reward == pytest.approx(share)


def test_another_setting_changed_voids_the_rest(machine: DiskMachine) -> None:
    task, browser = prepared(machine)
    changed = {control.id for control, _ in task.changes}
    other = next(control for control in task.screen.controls if control.id not in changed)
    browser.save({**wanted(task, browser), other.id: other.others[0]})
    score = task.grade(machine)
    assert score.reward == 0.0
    assert "other settings" in score.output


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"X_Session": "0" * 32}, 403),
        ({"X_Session": ""}, 403),
        ({"Host": "localhost"}, 421),
    ],
)
def test_a_forged_save_is_refused_and_voids_the_score(
    headers: dict[str, str], status: int, machine: DiskMachine
) -> None:
    task, browser = prepared(machine)
    assert browser.save(wanted(task, browser), **headers) == status
    assert Browser(machine).values == browser.values
    assert browser.save(wanted(task, browser)) == 200
    score = task.grade(machine)
    assert score.reward == 0.0
    assert "came from the page" in score.output


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"[" * 60_000,
        b"{}",
        {"s0": True},
        "extra",
        "wrong type",
        "unknown option",
        "long text",
    ],
)
def test_values_the_page_cannot_send_are_refused(body: Any, machine: DiskMachine) -> None:
    _, browser = prepared(machine, 1)
    kinds = {c.kind: c.id for c in load_settings(1).screen.controls}
    special = {
        "extra": {**browser.values, "more": 1},
        "wrong type": {**browser.values, kinds["check"]: "on"},
        "unknown option": {**browser.values, kinds["choice"]: "never"},
        "long text": {**browser.values, kinds["text"]: "x" * 300},
    }
    assert browser.save(special[body] if isinstance(body, str) else body) == 400
    assert Browser(machine).values == browser.values


def load_settings(seed: int) -> SettingsTabs:
    task = load_task("settings_tabs", seed)
    assert isinstance(task, SettingsTabs)
    return task


@pytest.mark.parametrize(
    "noise",
    [
        b"\0" * 100,
        b"GET\r\n\r\n",
        b"x" * 100_000,
        b"POST /save HTTP/1.1\r\ncontent-length: 9999999\r\n\r\n",
    ],
)
def test_the_server_outlives_noise(noise: bytes, machine: DiskMachine) -> None:
    task, browser = prepared(machine)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(10)
        raw.connect(browser.path)
        try:
            raw.sendall(noise)
            raw.shutdown(socket.SHUT_WR)
            raw.recv(1000)
        except OSError:
            pass  # it may hang up while we still talk
    assert browser.save(wanted(task, browser)) == 200
    assert task.grade(machine).reward == 1.0


def test_silent_connections_do_not_hold_up_others(machine: DiskMachine) -> None:
    task, browser = prepared(machine)
    idle = [socket.socket(socket.AF_UNIX) for _ in range(40)]
    for one in idle:
        one.connect(browser.path)
    started = time.monotonic()
    assert browser.save(wanted(task, browser)) == 200
    assert time.monotonic() - started < 5.0
    for one in idle:
        one.close()


def test_a_dead_server_is_an_env_failure_and_no_verdict(machine: DiskMachine) -> None:
    task, _ = prepared(machine)
    machine.owned[0].close()
    with pytest.raises(EnvFailure, match="app server is gone"):
        task.grade(machine)


def test_the_server_is_confined_and_ends_with_its_owner(machine: DiskMachine) -> None:
    prepared(machine)
    (server,) = machine.owned
    pid = server._process.pid
    status = Path(f"/proc/{pid}/status").read_text()
    if os.geteuid() == 0:
        assert re.search(rf"^Uid:\s+{_USERS['serve']}\s", status, re.MULTILINE)
        assert len(Path(f"/proc/{pid}/net/route").read_text().splitlines()) <= 1
    server._process.stdin.close()
    assert server._process.wait(10.0) == 0


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "app.sock").write_text("in the way")
    with pytest.raises(EnvFailure, match="Address already in use"):
        AppServer(web_task._SERVER, tmp_path, {})
    with pytest.raises(EnvFailure, match="Spec"):
        AppServer(web_task._SERVER, tmp_path / "empty", {})


def test_controls_never_overlap_and_fit_a_small_window() -> None:
    for seed in range(300):
        screen = load_settings(seed).screen
        for tab in range(3):
            boxes = [*screen.tab_boxes, screen.save, screen.status]
            for control in screen.controls:
                if control.tab == tab:
                    boxes += [control.box, control.label_box]
            for i, a in enumerate(boxes):
                assert a.x + a.width <= 1000
                assert a.y + a.height <= 560
                for b in boxes[i + 1 :]:
                    assert (
                        a.x + a.width <= b.x
                        or b.x + b.width <= a.x
                        or a.y + a.height <= b.y
                        or b.y + b.height <= a.y
                    ), (seed, a, b)
