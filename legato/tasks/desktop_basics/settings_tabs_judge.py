"""Judge of ``settings_tabs``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.web import saved_state, trust


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    before, saved = evidence["app"]["state"]["settings"], saved_state(evidence)["settings"]
    changes = evidence["wanted"]["changes"]
    wanted = {change["id"] for change in changes}
    others = [key for key in before if key not in wanted and saved[key] != before[key]]
    checks = [progress(c["name"], saved[c["id"]] == c["value"], cheap=c["cheap"]) for c in changes]
    checks.append(guard("the other settings are as they were", not others, ", ".join(others)))
    return settled(checks + trust(evidence))
