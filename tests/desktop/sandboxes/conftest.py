"""Providers on the loopback, found by their packages through the environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from legato.desktop import image
from legato.desktop.sandboxes import desktop
from tests.desktop.sandboxes.daytona_double import Daytona
from tests.desktop.sandboxes.double import Provider
from tests.desktop.sandboxes.e2b_double import E2B

DOUBLES: dict[str, type[Provider]] = {"daytona": Daytona, "e2b": E2B}
KEYS = {"daytona": "dtn_0123456789abcdef0123456789abcdef", "e2b": "e2b_fedcba9876543210fedcba98"}


@pytest.fixture(params=DOUBLES)
def name(request: pytest.FixtureRequest) -> str:
    """Of a provider."""
    value: str = request.param
    return value


@pytest.fixture
def provider(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """One that has the desktop's image, and whose key is in the environment."""
    with ExitStack() as stack:
        double = stack.enter_context(DOUBLES[name](KEYS[name]))
        for variable, value in double.environment().items():
            monkeypatch.setenv(variable, value)
        desktop.forget_checks()
        double.images.add(image.plain_name())
        yield double
