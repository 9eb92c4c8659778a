"""Judge of ``web_settings``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def judge(evidence: Mapping[str, Any]) -> list[dict[str, Any]]:
    events, before = evidence["events"], evidence["before"]
    saves = [event["values"] for event in events if event["event"] == "save"]
    saved = saves[-1] if saves else before
    wanted = {change["id"] for change in evidence["changes"]}
    checks: list[dict[str, Any]] = [
        {
            "name": change["name"],
            "kind": "progress",
            "passed": saved[change["id"]] == change["value"],
        }
        for change in evidence["changes"]
    ]
    others = [key for key in before if key not in wanted and saved[key] != before[key]]
    checks.append(
        {
            "name": "the other settings are as they were",
            "kind": "guard",
            "passed": not others,
            "detail": ", ".join(others),
        }
    )
    refused = [event["why"] for event in events if event["event"] == "refused"]
    checks.append(
        {
            "name": "every request came from the page",
            "kind": "guard",
            "passed": not refused,
            "detail": "; ".join(refused)[:500],
        }
    )
    return checks
