from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.view.chromium import Browser, chromium
from tests.view.runs import make_run

NIGHT_S = 8 * 3600.0


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


@pytest.fixture
def resumed_run(fake_run: Path, tmp_path: Path) -> Path:
    """The run, but with a night between its first records and the rest: two sessions."""
    run = Path(shutil.copytree(fake_run, tmp_path / "resumed"))
    (begun, ended) = (json.loads(line) for line in (run / "sessions.jsonl").open())
    records = [json.loads(line) for line in (run / "rollouts.jsonl").open()]
    half = len(records) // 2
    for record in records[half:]:
        record["session"] = 1
        record["started_at"] += NIGHT_S
        record["recorded_at"] += NIGHT_S
    # The first was killed: it has no end but its last record.
    late = {"started_at": min(r["started_at"] for r in records[half:])}
    again = [begun, {**begun, **late, "session": 1}]
    over = {**ended, "session": 1, "ended_at": ended["ended_at"] + NIGHT_S}
    _write_lines(run / "sessions.jsonl", [*again, over])
    _write_lines(run / "rollouts.jsonl", records)
    return run


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


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
