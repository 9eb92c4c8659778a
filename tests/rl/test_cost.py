from __future__ import annotations

import pytest

from legato.rl.cost import estimate_cost
from legato.rl.manifest import Manifest
from legato.rl.record import Session


def session(number: int, **settings: object) -> Session:
    return Session(number, 0.0, None, settings)


def test_every_sandbox_is_paid_for_as_long_as_its_session() -> None:
    priced = Manifest(settings={"desktop": {"options": {"hourly_rate": 0.6}}})
    spares = session(0, desktops=4, standby=True, fast_reset=True)
    plain = session(1, desktops=4, standby=False, fast_reset=True)
    rebuilt = session(2, desktops=1, standby=True, fast_reset=False)
    assert estimate_cost(priced, [(spares, 1800.0)]) == pytest.approx(8 * 0.5 * 0.6)
    assert estimate_cost(priced, [(plain, 3600.0), (rebuilt, 60.0)]) == pytest.approx(2.4 + 0.01)


def test_without_a_rate_nothing_is_estimated() -> None:
    assert estimate_cost(Manifest(), [(session(0, desktops=4), 60.0)]) is None
