"""A run at a glance: one short row per record, all that the first page of the viewer needs."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from legato.rl.advantage import Outcome, advantages
from legato.rl.manifest import RunPath, existing_run, read_manifest
from legato.rl.record import read_sessions, scan_records
from legato.rl.schema import StoredRecord
from legato.rl.summary import PHASES, session_seconds
from legato.rl.types import Status
from legato.view.gaps import Gap, read_gaps

SLOWEST = 30
"""Steps named as the slowest."""
ERROR_CHARS = 300
TEXT_CHUNK = 100
"""Rollouts whose replies lie in one file, for the search in replies."""


@dataclass(slots=True)
class Row:
    """What the tables and charts show of a record. Its number is its place in the run."""

    rollout_id: str
    task_id: str
    group_id: str
    attempt: int
    attempt_try: int
    status: str
    reward: float | None
    verdict: str
    """The verdict in one line; empty without one."""
    error_kind: str | None
    error: str
    truncated_by: str | None
    steps: int
    invalid: int
    """Actions that could not be read or were rejected."""
    version: str
    session: int
    started_at: float
    """Unix time in seconds."""
    slot: int | None
    total_s: float
    phases_s: list[float]
    """Seconds by phase, in the order of :data:`~legato.rl.summary.PHASES`."""


COLUMNS = tuple(f.name for f in fields(Row))


class SlowStep(NamedTuple):
    """A step by what it took: the model's answer, then the actions until the next screenshot."""

    seconds: float
    record: int
    step: int
    model_s: float
    act_s: float
    wait_s: float
    obs_s: float


def index_row(record: StoredRecord) -> Row:
    error, timing = record["error"], record["timing"]
    return Row(
        rollout_id=record["rollout_id"],
        task_id=record["task_id"],
        group_id=record["group_id"],
        attempt=record["attempt"],
        attempt_try=record["attempt_try"],
        status=record["status"],
        reward=record["reward"],
        verdict="" if record["score"] is None else record["score"]["output"],
        error_kind=None if error is None else error["kind"],
        error="" if error is None else error["message"][:ERROR_CHARS],
        truncated_by=record["truncated_by"],
        steps=record["n_steps"],
        invalid=sum(a["error"] is not None for s in record["steps"] for a in s["actions"]),
        version=record["policy"]["version"],
        session=record["session"],
        started_at=record["started_at"],
        slot=record["desktop_slot"],
        total_s=timing["total_s"],
        phases_s=[round(timing[phase], 4) for phase in PHASES],
    )


@dataclass(slots=True)
class RunIndex:
    """The rows of one run, read record by record; :meth:`follow` picks up what is new."""

    path: Path
    rows: list[Row] = field(default_factory=list)
    offsets: list[int] = field(default_factory=lambda: [0])
    """Where each record starts, and where the next one will."""
    _slowest: list[SlowStep] = field(default_factory=list)
    _last_record: dict[int, float] = field(default_factory=dict)
    """When the last record of each session was written."""

    @classmethod
    def of(cls, run_dir: RunPath) -> RunIndex:
        """An empty index; raises :class:`~legato.errors.ConfigError` if there is no run."""
        return cls(existing_run(run_dir))

    def follow(self) -> Iterator[tuple[int, StoredRecord]]:
        """Every record not yet indexed, with its number; indexed by the time it is given."""
        for record, end in scan_records(self.path, self.offsets[-1]):
            number = len(self.rows)
            self.rows.append(index_row(record))
            self.offsets.append(end)
            session, at = record["session"], record["recorded_at"]
            self._last_record[session] = max(at, self._last_record.get(session, at))
            for slow in _durations(number, record):
                if len(self._slowest) < SLOWEST:
                    heapq.heappush(self._slowest, slow)
                else:
                    heapq.heappushpop(self._slowest, slow)
            yield number, record

    def record(self, number: int) -> StoredRecord:
        """A record read again; raises ``IndexError`` if there is none of that number."""
        if not 0 <= number < len(self.rows):
            raise IndexError(number)
        return next(scan_records(self.path, self.offsets[number]))[0]

    @property
    def chunks(self) -> int:
        """How many files hold the replies for the search."""
        return -(-len(self.rows) // TEXT_CHUNK)

    def to_json(self) -> dict[str, Any]:
        manifest = read_manifest(self.path)
        sessions = read_sessions(self.path)
        by_id = advantages(
            (Outcome(r.rollout_id, r.group_id, Status(r.status), r.reward) for r in self.rows),
            min_group=manifest.min_group,
        )
        return {
            "columns": COLUMNS,
            "rows": [astuple(row) for row in self.rows],
            "advantages": [by_id.get(row.rollout_id) for row in self.rows],
            "phases": PHASES,
            "slowest": sorted(self._slowest, reverse=True),
            "gaps": _by_turn(read_gaps(self.path)),
            "chunks": self.chunks,
            "group": manifest.group,
            "min_group": manifest.min_group,
            "settings": manifest.settings,
            "sessions": [
                {
                    "number": s.number,
                    "started_at": s.started_at,
                    "ended_at": s.ended_at,
                    "seconds": seconds,
                    "desktops": s.settings.get("desktops"),
                }
                for s, seconds in zip(
                    sessions, session_seconds(sessions, self._last_record), strict=True
                )
            ],
        }


def reply_texts(record: StoredRecord) -> list[str]:
    """What the policy wrote, step by step, for the search."""
    responses = (step["response"] for step in record["steps"])
    return ["\n".join(filter(None, (r["reasoning"], r["content"]))) for r in responses]


def _durations(number: int, record: StoredRecord) -> Iterator[SlowStep]:
    for index, step in enumerate(record["steps"]):
        act, wait, obs = (
            sum(action[key] for action in step["actions"]) for key in ("act_s", "wait_s", "obs_s")
        )
        model = step["model"]["seconds"]
        yield SlowStep(model + act + wait + obs, number, index, model, act, wait, obs)


class TurnGaps(NamedTuple):
    """How far trainer and server were apart at one turn, over rollouts whose gap is finite."""

    turn: int
    mean: float | None
    """Of the rollouts' means, in nats; ``None`` if no gap is finite."""
    max: float | None
    rollouts: int
    not_finite: int
    """Rollouts that the figures leave out."""


def _by_turn(gaps: dict[str, list[Gap]]) -> list[TurnGaps]:
    turns: dict[int, list[Gap]] = defaultdict(list)
    for rollout in gaps.values():
        for gap in rollout:
            turns[gap.step].append(gap)
    return [_turn(number, of) for number, of in sorted(turns.items())]


def _turn(number: int, gaps: list[Gap]) -> TurnGaps:
    finite = [gap for gap in gaps if gap.finite]
    lost = len(gaps) - len(finite)
    if not finite:
        return TurnGaps(number, None, None, 0, lost)
    mean = sum(gap.mean for gap in finite) / len(finite)
    return TurnGaps(number, mean, max(gap.max for gap in finite), len(finite), lost)
