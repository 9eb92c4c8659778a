"""The live view, on a run under way."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from legato.rl.record import read_records
from legato.view.serve import ViewServer
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
