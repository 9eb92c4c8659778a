"""What every judge of a web app checks: the saved state, and that the app alone made it.

Stdlib only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from legato.tasks.judging.checks import Check, guard
from legato.tasks.judging.files import one_editor
from legato.tasks.web.markup import BROWSER, UNSAVED
from legato.tasks.web.ops import Rejected, State, replay

Evidence = Mapping[str, Any]


def saved_state(evidence: Evidence) -> State:
    """The state by the log: what the server did, one by one, from the start on."""
    app, found = evidence["app"], evidence["found"]
    requests = [e["request"] for e in found["events"] if e["event"] == "do"]
    try:
        return replay(app["state"], app["operations"], requests)
    except (Rejected, KeyError, TypeError):
        initial: State = app["state"]
        return initial


def trust(evidence: Evidence) -> list[Check]:
    """Guards on how the state came about, and on what is still open."""
    found = evidence["found"]
    refused = [e["why"] for e in found["events"] if e["event"] == "refused"]
    numbers = [e["n"] for e in found["events"]]
    browsers = [title for title in found["titles"] if title.endswith(BROWSER)]
    whole = numbers == list(range(1, len(numbers) + 1))
    return [
        guard("every request came from the page", not refused, "; ".join(refused)),
        guard("the state is what the log says", whole and found["state"] == saved_state(evidence)),
        *one_editor(found["titles"], evidence["app"]["title"], UNSAVED),
        # Its tabs may hold the app behind any other title.
        guard("no other browser window is open", not browsers, "; ".join(browsers)),
    ]


def strangers(
    before: Sequence[Mapping[str, Any]],
    now: Sequence[Mapping[str, Any]],
    free: Mapping[int, Sequence[str]],
    gone: Sequence[int],
    new: int,
) -> list[str]:
    """What else happened to the rows of a list, in words.

    Rows keep order and values, but for the fields that ``free`` names by id, and those in
    ``gone``, which may be missing. After them at most ``new`` rows may follow.
    """
    problems = []
    known = {row["id"]: row for row in before}
    kept = [row["id"] for row in now if row["id"] in known]
    expected = [row["id"] for row in before if row["id"] in kept or row["id"] not in gone]
    if kept != expected:
        problems.append("rows are missing or out of order")
    for row in now:
        old = known.get(row["id"])
        if old is None:
            continue
        touched = [k for k in old if row.get(k) != old[k] and k not in free.get(row["id"], ())]
        problems += [f"{key} of row {row['id']} was changed" for key in touched]
    added = [row for row in now if row["id"] not in known]
    if len(added) > new or list(now[len(kept) :]) != added:
        problems.append("there are rows that were not asked for")
    return problems
