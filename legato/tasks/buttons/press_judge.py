"""Judge of the buttons. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def judge(evidence: Mapping[str, Any]) -> list[dict[str, Any]]:
    targets, pressed = evidence["targets"], evidence["pressed"]
    return [
        {
            "name": f"dialog {number + 1}: {target}",
            "kind": "progress",
            "passed": pressed[number : number + 1] == [target],
            "detail": f"pressed {pressed[number] if number < len(pressed) else 'nothing'}",
        }
        for number, target in enumerate(targets)
    ]
