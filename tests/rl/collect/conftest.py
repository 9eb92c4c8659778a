from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.desktop.fake import fake_tasks
from tests.rl.servers import ModelServer


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(fake_tasks(3, seed=0)))
    return path


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(reply="click 50 50") as running:
        yield running
