"""The ready signal on real desktops with real programs and a real browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from legato.desktop.actions import Action
from legato.desktop.contract import DesktopOptions, Ready, Screenshot
from legato.desktop.local import LocalDesktop, make_desktop
from legato.errors import EnvFailure
from tests.desktop.pages import CHANGED, PORT, ROOT, PagesTask

FLICKER = """
while :; do xsetroot -solid "#$(od -An -N3 -tx1 /dev/urandom | tr -d ' ')"; sleep 0.15; done
"""
pytestmark = pytest.mark.desktop


@dataclass
class Seat:
    """A clean desktop whose machine reaches the page server."""

    desktop: LocalDesktop
    task: PagesTask

    def launch(self, *argv: str, wait_window: bool = True) -> Ready:
        self.task.machine.launch(argv, wait_window=wait_window)
        return self.desktop.wait_after_reset()

    def key(self, key: str) -> Ready:
        return self.desktop.act(Action(action_type="key", key=key)).ready

    def click(self) -> Ready:
        width, height = self.task.machine.screen
        return self.desktop.act(Action(action_type="click", x=width // 2, y=height // 2)).ready

    def visit(self, page: str) -> Ready:
        self.key("ctrl+l")
        return self.desktop.act(Action(action_type="type", text=f"{ROOT}/{page}\n")).ready

    def answered(self, address: str) -> bool:
        return address in self.task.server.answered

    def shows_change(self) -> bool:
        """Whether the page has become what its answer makes it, on a good part of the screen."""
        return share_of(self.desktop.observe(), CHANGED) > 0.1


def share_of(shot: Screenshot, colour: int) -> float:
    wanted = np.array([colour >> 16, colour >> 8 & 255, colour & 255], np.uint8)
    return float((shot.rgb == wanted).all(axis=-1).mean())


@pytest.fixture(scope="module")
def desktop() -> Iterator[LocalDesktop]:
    desktop = make_desktop(DesktopOptions(), 0)
    yield desktop
    desktop.close()


@pytest.fixture
def seat(desktop: LocalDesktop) -> Seat:
    task = PagesTask()
    desktop.reset(task)
    desktop.wait_after_reset()
    return Seat(desktop, task)


@pytest.fixture
def browser(seat: Seat) -> Seat:
    seat.launch("chromium", f"{ROOT}/static")
    return seat


@pytest.mark.parametrize(
    ("argv", "wm_class"),
    [
        (("mousepad",), "Mousepad"),
        (("pcmanfm", "/usr/share"), "Pcmanfm"),
        (("xterm",), "XTerm"),
        (("chromium", f"{ROOT}/static"), "Chromium"),
    ],
)
def test_a_cold_start_is_ready_with_its_window_drawn(
    seat: Seat, argv: tuple[str, ...], wm_class: str
) -> None:
    empty = seat.desktop.observe()
    seat.launch(*argv)
    (window,) = (w for w in seat.task.machine.windows() if w.wm_class == wm_class)
    drawn = (seat.desktop.observe().rgb != empty.rgb).any(axis=-1)
    inside = drawn[
        max(window.y, 0) : window.y + window.height, max(window.x, 0) : window.x + window.width
    ]
    assert inside.mean() > 0.9


@pytest.mark.parametrize(
    ("page", "reasons"),
    [
        ("static", {"idle"}),
        ("spinner", {"animated"}),
        ("canvas", {"animated"}),
        ("ball", {"animated"}),
        ("caret", {"idle", "animated"}),
        ("events", {"idle"}),
    ],
)
def test_reasons(browser: Seat, page: str, reasons: set[str]) -> None:
    assert browser.visit(page).reason in reasons


@pytest.mark.parametrize("page", ["fetch", "xhr", "redirect", "frame", "worker"])
def test_a_request_is_waited_for(browser: Seat, page: str) -> None:
    assert browser.visit(page).reason == "idle"
    assert browser.answered("slow")
    assert browser.shows_change()


def test_a_request_of_the_first_page_is_waited_for(seat: Seat) -> None:
    assert seat.launch("chromium", f"{ROOT}/fetch").reason == "idle"
    assert seat.answered("slow")
    assert seat.shows_change()


def test_a_request_in_a_browser_without_our_pipe_is_waited_for(seat: Seat) -> None:
    """As when the agent starts one."""
    assert seat.launch("sh", "-c", f"exec chromium {ROOT}/fetch").reason == "idle"
    assert seat.answered("slow")


def test_a_request_in_a_second_tab_is_waited_for(browser: Seat) -> None:
    """The second start hands its address to the browser that runs and exits."""
    browser.task.machine.launch(["chromium", f"{ROOT}/fetch"])
    assert browser.desktop.wait_after_reset().reason == "idle"
    assert browser.shows_change()
    assert len(browser.task.machine.windows()) == 1


def test_a_request_after_a_click_is_waited_for(browser: Seat) -> None:
    browser.visit("click")
    assert not browser.answered("slow")
    assert browser.click().reason == "idle"
    assert browser.shows_change()


def test_a_page_that_opens_in_a_new_tab_is_waited_for(browser: Seat) -> None:
    browser.visit("popup")
    assert browser.click().reason == "idle"
    assert browser.answered("slow-page")
    assert browser.shows_change()


@pytest.mark.parametrize("page", ["long-poll", "poll"])
def test_an_endless_request_holds_up_the_first_visit_only(browser: Seat, page: str) -> None:
    first = browser.visit(page)
    assert first.reason != "timeout"
    again = browser.visit(page)
    assert again.reason == "idle"
    assert again.seconds < first.seconds


def test_a_dead_browser_holds_nothing_up(browser: Seat) -> None:
    machine = browser.task.machine
    browser.key("ctrl+l")
    machine.input(Action(action_type="type", text=f"{ROOT}/fetch\n"))
    deadline = time.monotonic() + 30.0
    while not browser.answered("fetch"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    machine.run(["pkill", "-KILL", "-x", "chromium"])
    assert browser.desktop.wait_after_reset().reason == "idle"
    assert not browser.answered("slow")


def test_the_agent_has_no_devtools(browser: Seat) -> None:
    machine = browser.task.machine
    assert machine.run(["ls", "/proc/1/fd"]).returncode != 0
    opened = machine.run(["sh", "-c", "echo > /proc/$(pgrep -o -x chromium)/fd/3"])
    assert "No such device or address" in opened.stderr
    listening = {
        int(line.split()[1].split(":")[1], 16)
        for table in ("tcp", "tcp6")
        for line in machine.run(["cat", f"/proc/net/{table}"]).stdout.splitlines()[1:]
        if line.split()[3] == "0A"
    }
    assert listening == {PORT}


def test_a_killed_desktop_ends_the_wait() -> None:
    desktop = make_desktop(DesktopOptions(ready_timeout=120.0), 1)
    try:
        task = PagesTask()
        desktop.reset(task)
        task.machine.launch(["sh", "-c", FLICKER], wait_window=False)
        threading.Timer(0.5, desktop.kill).start()
        began = time.monotonic()
        with pytest.raises(EnvFailure):
            desktop.wait_after_reset()
        assert time.monotonic() - began < 30.0
    finally:
        desktop.close()
