"""The live view, on a run under way."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from legato.rl.board import Board
from legato.rl.manifest import Manifest
from legato.rl.publish import published
from legato.rl.record import RunDir, read_records
from legato.view.serve import ViewServer
from tests.rl.factories import frame, make_rollout
from tests.view.chromium import Browser
from tests.view.pages import open_page
from tests.view.runs import make_run

pytestmark = pytest.mark.browser


def test_the_desktops_are_seen_at_work(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "run"
    running = threading.Thread(
        target=make_run, args=(path,), kwargs={"tasks": 3, "group": 4, "seconds": 1.0}
    )
    running.start()
    try:
        while not (path / "run.json").exists():
            running.join(0.05)
        with ViewServer([path], live=True) as server:
            browser.open(server.url)
            browser.wait("document.querySelectorAll('.desktop canvas[data-painted]').length >= 2")
            assert "asking the model" in browser.text()
            browser.wait("document.querySelector('.count').innerText.match(/[1-9]\\d* rollouts/)")
            running.join(60)
            browser.wait("document.body.innerText.includes('nobody is collecting')")
            open_page(browser, server.url.split("#")[0], "/run/0")
            records = len(list(read_records(path)))
            assert browser.eval("document.querySelectorAll('.rollouts tbody tr').length") == records
    finally:
        running.join(60)
    # A picture may be gone between the question for the board and that for the picture.
    assert [c for c in browser.complaints() if "/live/0/" not in c] == []


def test_a_page_follows_what_is_recorded_while_it_is_looked_at(
    browser: Browser, tmp_path: Path
) -> None:
    listed = "document.querySelectorAll('.rollouts tbody tr').length"
    with (
        RunDir.create_or_resume(tmp_path / "run", Manifest()) as run,
        ViewServer([run.path], live=True) as server,
    ):
        run.append(make_rollout(reward=0.0))
        address = server.url.split("#")[0]
        open_page(browser, address, "/run/0?text=reply")
        browser.wait(f"{listed} === 1")
        run.append(make_rollout(attempt=1, reward=1.0))
        # The figures by themselves, the table when it is told to; the search finds what is new.
        browser.wait("document.querySelector('.tiles').innerText.includes('50%')")
        assert browser.eval(listed) == 1
        browser.eval(
            "[...document.querySelectorAll('button')]"
            ".find((b) => b.innerText === 'show 1 new rollout').click()"
        )
        browser.wait(f"{listed} === 2")
    assert browser.complaints() == []


def test_a_desktop_between_two_rollouts_keeps_its_place_and_picture(
    browser: Browser, tmp_path: Path
) -> None:
    board = Board()
    board.title = "step 3/9"
    rollout = make_rollout(steps=2, desktop_slot=5)
    rollout.final_screenshot = frame(7)

    async def show() -> None:
        async with published(board, run.path):
            await asyncio.to_thread(look)

    def look() -> None:
        browser.open(server.url)
        browser.wait("document.querySelector('.desktop canvas[data-painted]')")
        assert "step 3/9" in browser.text()
        board.phase_began(rollout, "ended")
        browser.wait("document.querySelector('.desktop.free canvas[data-painted]')")
        assert "5 free" in browser.text()

    with (
        RunDir.create_or_resume(tmp_path / "run", Manifest()) as run,
        ViewServer([run.path], live=True) as server,
    ):
        board.phase_began(rollout, "model")
        asyncio.run(show())
        browser.wait("document.body.innerText.includes('nobody is collecting')")
