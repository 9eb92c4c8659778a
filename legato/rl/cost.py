"""What the sandboxes of a run cost, by the rate its config gives."""

from __future__ import annotations

from collections.abc import Iterable

from legato.rl.manifest import Manifest
from legato.rl.record import Session


def estimate_cost(manifest: Manifest, sessions: Iterable[tuple[Session, float]]) -> float | None:
    """In the currency of ``desktop.options.hourly_rate``; ``None`` if the run has no rate.

    A sandbox is paid for from the start of a session to its end, at work or not: ``sessions`` come
    with their seconds of wall clock. With standby there are two sandboxes for each desktop.
    """
    options = manifest.settings.get("desktop", {}).get("options", {})
    rate = options.get("hourly_rate")
    if rate is None:
        return None
    return sum(float(rate) * _sandboxes(session) * wall / 3600 for session, wall in sessions)


def _sandboxes(session: Session) -> int:
    settings = session.settings
    spares = settings.get("standby", True) and settings.get("fast_reset", True)
    return int(settings.get("desktops", 1)) * (2 if spares else 1)
