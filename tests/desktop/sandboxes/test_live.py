"""With an account: the provider itself. Runs by itself where a key is in the environment."""

from __future__ import annotations

import os

import pytest

from legato.desktop.contract import DesktopOptions
from legato.desktop.sandboxes import conformance, providers

KEYS = {name: os.environ.get(key, "") for name, key in providers.KEYS.items()}
"""As they were before any test put another there."""


@pytest.mark.parametrize("name", KEYS)
def test_live_account(name: str) -> None:
    """The contract, then a desktop with its lockdown. Makes three sandboxes and ends them."""
    if not KEYS[name]:
        pytest.skip(f"no {providers.KEYS[name]} in the environment: {name} itself was not tried")
    sandboxes = providers.connect(name)
    sandboxes.check()
    with conformance.subject(sandboxes) as subject:
        for rule in conformance.RULES:
            rule(subject)
    desktop = providers.make_desktop(name, DesktopOptions(), 0)
    try:
        desktop.prepare()
        desktop.prepare()
        desktop.check_health()
        assert desktop.observe().width == DesktopOptions().width
    finally:
        desktop.close()
