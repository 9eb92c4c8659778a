from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rl.servers import (
    ModelServer,
)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legato.rl.policy.http.BACKOFF", 0.01)
