"""Judge of ``signup_form``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.web import saved_state, trust


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    sent = saved_state(evidence)["sent"]
    form: Mapping[str, Any] = sent[0] if sent else {}
    fields = evidence["wanted"]["fields"]
    checks = [
        progress(f["name"], form.get(f["id"]) == f["value"], cheap=f["cheap"])
        for f in fields
        if f["asked"]
    ]
    others = [f["name"] for f in fields if form and not f["asked"] and form[f["id"]] != f["value"]]
    checks.append(guard("the form was not sent twice", len(sent) <= 1, f"sent {len(sent)} times"))
    checks.append(guard("the other fields are as they were", not others, ", ".join(others)))
    return settled(checks + trust(evidence))
