from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.view.chromium import Browser, chromium
from tests.view.runs import make_run


@pytest.fixture(scope="session")
def fake_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three groups on fake desktops; not to be written to."""
    path = tmp_path_factory.mktemp("fake-run") / "first"
    make_run(path, tasks=4, group=3, slips=0.2)
    return path


@pytest.fixture(scope="session")
def other_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second run of the same tasks, with fewer slips."""
    path = tmp_path_factory.mktemp("fake-run") / "second"
    make_run(path, tasks=4, group=3, slips=0.0)
    return path


@pytest.fixture(scope="session")
def shared_browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(shared_browser: Browser) -> Browser:
    """A blank page of ordinary size that has reported nothing yet."""
    shared_browser.look(1280, 800)
    shared_browser.open("about:blank")
    shared_browser.wait("location.href === 'about:blank'")
    shared_browser.complaints()
    shared_browser.events.clear()
    return shared_browser
