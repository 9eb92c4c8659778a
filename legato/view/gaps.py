"""How far a trainer's logprobs lie from the server's, per rollout and turn.

A trainer learns this after a rollout was recorded, so it lies in a log of its own beside the
records: ``RUN_DIR/logprob_gaps.jsonl``, one line per rollout and update::

    {"rollout_id": "g/0", "turns": [[0, 0.0004, 0.002], [1, 0.0005, 0.003]]}

Each turn is (step, mean, max) of ``|trainer - server|`` in nats over the turn's sampled tokens.
A figure that is not finite, as of a run that diverged, is ``null`` there and NaN here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from legato.rl.manifest import RunPath, existing_run
from legato.rl.schema import dump_json
from legato.rl.store import Log, read_log, whole_lines

FILE = "logprob_gaps.jsonl"


class Gap(NamedTuple):
    """One turn. Both figures are in nats and at least 0, or not finite."""

    step: int
    mean: float
    max: float

    @property
    def finite(self) -> bool:
        return math.isfinite(self.mean) and math.isfinite(self.max)


def note_gaps(run_dir: RunPath, gaps: Mapping[str, Sequence[Gap]]) -> None:
    """Append the gaps of some rollouts, by rollout id. One writer at a time.

    Raises :class:`~legato.errors.StorageError` if they cannot be written.
    """
    path = existing_run(run_dir) / FILE
    log = Log(path, whole_lines(path))
    try:
        for rollout_id, turns in gaps.items():
            log.append(dump_json({"rollout_id": rollout_id, "turns": [list(t) for t in turns]}))
    finally:
        log.close()


def read_gaps(run_dir: Path) -> dict[str, list[Gap]]:
    """Gaps by rollout id, of each the last that was noted; empty if no trainer noted any."""
    return {
        line["rollout_id"]: [
            Gap(step, _figure(mean), _figure(largest)) for step, mean, largest in line["turns"]
        ]
        for line, _ in read_log(run_dir / FILE)
    }


def _figure(value: float | None) -> float:
    return math.nan if value is None else value
