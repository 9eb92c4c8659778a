"""Where a batch spent its time, and how it went: ``DIR/summary.json`` and ``profile``."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from legato.desktop.osworld.catalogue import is_infeasible
from legato.errors import SampleError
from legato.rl.cost import estimate_cost
from legato.rl.manifest import Manifest, RunPath, existing_run, read_manifest
from legato.rl.record import Session, read_records, read_sessions
from legato.rl.samples import rows
from legato.rl.schema import StoredRecord
from legato.rl.store import replacing
from legato.rl.types import VERDICTS, Status, Timing

SCHEMA = "legato.summary/v0"
PHASES = tuple(f.name for f in fields(Timing) if f.name != "total_s")
SUCCESS = 1.0
"""The reward of a success: every check passed."""


@dataclass(slots=True)
class TaskSummary:
    verdicts: int
    mean_reward: float
    success_rate: float


@dataclass(slots=True)
class Summary:
    """The figures of a run. A rate is ``None`` when there is nothing to take it over.

    "Verdicts" are ``ok`` and ``truncated`` rollouts, those whose reward counts. Figures of time,
    calls and steps are over every record, whatever became of it: they say what the batch cost.
    """

    # outcome
    records: int
    statuses: dict[str, int]
    verdicts: int
    success_rate: float | None
    """Share of verdicts with a reward of 1."""
    infeasible_tasks: int
    """Tasks at which only reporting failure succeeds (OSWorld's ``infeasible``)."""
    success_rate_feasible: float | None
    """The success rate without them."""
    mean_reward: float | None
    tasks: dict[str, TaskSummary]
    groups: int
    groups_complete: int | None
    """Groups with all the verdicts wanted; ``None`` if the run does not say how many."""
    groups_short: int | None
    """Groups below that."""
    groups_untrainable: int
    """Groups with fewer verdicts than advantages need."""
    groups_even: int
    """Trainable groups whose rewards are all the same, so that every advantage is 0."""
    errors: dict[str, int]
    """Attempts lost for good, by kind: ``policy``, ``env``, ``grade``."""
    # pace
    sessions: int
    wall_s: float
    """Seconds during which a process was collecting, over all sessions. One that was killed ends
    with its last record."""
    rollouts_per_hour: float | None
    """Verdicts per hour of ``wall_s``."""
    cost: float | None
    """Estimate for all sandboxes (:mod:`legato.rl.cost`); ``None`` without a rate."""
    cost_per_rollout: float | None
    """``cost`` per verdict."""
    # time
    rollout_s: float
    """Sum of ``total_s``."""
    phase_s: dict[str, float]
    phase_share: dict[str, float]
    """Of ``rollout_s``; ``other`` is what no phase accounts for."""
    # model server
    model_call_p50_s: float | None
    """Percentiles interpolate linearly between the two nearest ranks."""
    model_call_p95_s: float | None
    model_call_p99_s: float | None
    retried_calls: int
    """Calls that needed more than one attempt."""
    prompt_tokens: int
    completion_tokens: int
    prefix_cache_hit_rate: float | None
    """Cached share of the prompt tokens of the calls that report it."""
    # steps and rows
    steps: int
    steps_with_logprobs: float | None
    """Share of steps."""
    steps_with_token_ids: float | None
    actions: int
    invalid_actions: int
    """Replies without a readable action, and actions the desktop rejected."""
    ready_reasons: dict[str, int]
    """Why the wait after an action ended."""
    merged_rows_per_rollout: float | None
    """Over the verdicts that can be merged; 1 when no prefix ever broke."""
    policy_versions: list[str]

    def to_json(self) -> str:
        """The text of ``summary.json``."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n"

    def write(self, run_dir: RunPath) -> None:
        """Put ``summary.json`` into the run directory, whole or not at all."""
        with replacing(Path(run_dir) / "summary.json") as file:
            file.write(self.to_json().encode("ascii"))


def summarise(run_dir: RunPath) -> Summary:
    """Read a run's records once, one at a time, and add them up.

    Works on a run that is being written. Raises :class:`~legato.errors.ConfigError` if there is
    no run, :class:`~legato.errors.StorageError` for a damaged record.
    """
    folder = existing_run(run_dir)
    tally = _Tally()
    for record in read_records(folder):
        tally.add(record)
    return tally.summary(read_manifest(folder), read_sessions(folder))


@dataclass(slots=True)
class _Tally:
    statuses: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    rewards: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    groups: dict[str, list[float]] = field(default_factory=dict)
    last_record: dict[int, float] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: list[float] = field(default_factory=list)
    retried: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: int = 0
    cacheable: int = 0
    with_logprobs: int = 0
    with_ids: int = 0
    actions: int = 0
    invalid: int = 0
    ready: Counter[str] = field(default_factory=Counter)
    row_counts: list[int] = field(default_factory=list)
    versions: dict[str, None] = field(default_factory=dict)

    def add(self, record: StoredRecord) -> None:
        self.statuses[record["status"]] += 1
        if record["error"] is not None and record["status"] == Status.ERROR:
            self.errors[record["error"]["kind"]] += 1
        group = self.groups.setdefault(record["group_id"], [])
        if record["status"] in VERDICTS and record["reward"] is not None:
            group.append(record["reward"])
            self.rewards[record["task_id"]].append(record["reward"])
            self._count_rows(record)
        session, at = record["session"], record["recorded_at"]
        self.last_record[session] = max(at, self.last_record.get(session, at))
        for phase, seconds in record["timing"].items():
            self.timing[phase] += seconds
        self.versions.update(dict.fromkeys(record["policy"]["versions"] if record["steps"] else ()))
        self._add_steps(record)

    def _add_steps(self, record: StoredRecord) -> None:
        for step in record["steps"]:
            model, response = step["model"], step["response"]
            self.calls.append(model["seconds"])
            self.retried += model["attempts"] > 1
            self.prompt_tokens += model["prompt_tokens"] or 0
            self.completion_tokens += model["completion_tokens"] or 0
            if model["cached_tokens"] is not None and model["prompt_tokens"] is not None:
                self.cached += model["cached_tokens"]
                self.cacheable += model["prompt_tokens"]
            self.with_logprobs += response["logprobs"] is not None
            self.with_ids += response["token_ids"] is not None
            for action in step["actions"]:
                self.actions += 1
                self.invalid += action["error"] is not None
                self.ready[action["ready_reason"]] += 1

    def _count_rows(self, record: StoredRecord) -> None:
        try:
            count = len(rows(record, 0.0, merged=True))
        except SampleError:
            return  # cannot be merged, which steps_with_token_ids and steps_with_logprobs tell
        if count:
            self.row_counts.append(count)

    def summary(self, manifest: Manifest, sessions: list[Session]) -> Summary:
        rewards = [reward for values in self.rewards.values() for reward in values]
        infeasible = {
            task["task_id"] for task in manifest.tasks if is_infeasible(task.get("config") or {})
        }
        walls = session_seconds(sessions, self.last_record)
        wall = sum(walls)
        cost = estimate_cost(manifest, zip(sessions, walls, strict=True))
        groups = list(self.groups.values())
        wanted = manifest.group
        complete = None if wanted is None else sum(len(g) >= wanted for g in groups)
        trainable = [g for g in groups if len(g) >= manifest.min_group]
        total = self.timing["total_s"]
        phases = {phase: self.timing[phase] for phase in PHASES}
        phases["other"] = max(0.0, total - sum(phases.values()))
        p50, p95, p99 = _percentiles(self.calls, (50, 95, 99))
        steps = len(self.calls)
        return Summary(
            records=self.statuses.total(),
            statuses={status.value: self.statuses[status] for status in Status},
            verdicts=len(rewards),
            success_rate=_success_rate(rewards),
            infeasible_tasks=len(infeasible),
            success_rate_feasible=_success_rate(
                [
                    r
                    for task, values in self.rewards.items()
                    if task not in infeasible
                    for r in values
                ]
            ),
            mean_reward=_mean(rewards),
            tasks={task: _task(r) for task, r in sorted(self.rewards.items())},
            groups=len(groups),
            groups_complete=complete,
            groups_short=None if complete is None else len(groups) - complete,
            groups_untrainable=len(groups) - len(trainable),
            groups_even=sum(min(g) == max(g) for g in trainable),
            errors={kind: self.errors[kind] for kind in ("policy", "env", "grade")},
            sessions=len(sessions),
            wall_s=wall,
            rollouts_per_hour=_ratio(3600 * len(rewards), wall),
            cost=cost,
            cost_per_rollout=None if cost is None else _ratio(cost, len(rewards)),
            rollout_s=total,
            phase_s=phases,
            phase_share={phase: s / total if total else 0.0 for phase, s in phases.items()},
            model_call_p50_s=p50,
            model_call_p95_s=p95,
            model_call_p99_s=p99,
            retried_calls=self.retried,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            prefix_cache_hit_rate=_ratio(self.cached, self.cacheable),
            steps=steps,
            steps_with_logprobs=_ratio(self.with_logprobs, steps),
            steps_with_token_ids=_ratio(self.with_ids, steps),
            actions=self.actions,
            invalid_actions=self.invalid,
            ready_reasons=dict(self.ready.most_common()),
            merged_rows_per_rollout=_mean(self.row_counts),
            policy_versions=list(self.versions),
        )


def session_seconds(sessions: Sequence[Session], last_record: Mapping[int, float]) -> list[float]:
    """How long each process was collecting. One that was killed, or is not over, ends with its
    last record; ``last_record`` is that one's ``recorded_at`` by session number."""
    ends = (s.ended_at or last_record.get(s.number, s.started_at) for s in sessions)
    return [max(0.0, end - s.started_at) for s, end in zip(sessions, ends, strict=True)]


def _task(rewards: Sequence[float]) -> TaskSummary:
    n = len(rewards)
    return TaskSummary(n, sum(rewards) / n, sum(r >= SUCCESS for r in rewards) / n)


def render(summary: Summary) -> RenderableType:
    """The summary for a terminal."""
    return Group(
        _table("Outcome", _outcome_lines(summary)),
        _table("Time", _time_lines(summary)),
        _table("Model server", _model_lines(summary)),
        _table("Rows", _row_lines(summary)),
        _task_table(summary),
    )


def _outcome_lines(s: Summary) -> Iterable[tuple[str, str]]:
    statuses = ", ".join(f"{n} {status}" for status, n in s.statuses.items() if n)
    yield "rollouts", f"{s.records} ({statuses})" if s.records else "none yet"
    yield "success rate", f"{_percent(s.success_rate)} of {s.verdicts} verdicts"
    if s.infeasible_tasks:
        yield (
            "success, feasible",
            f"{_percent(s.success_rate_feasible)}, without {s.infeasible_tasks} infeasible tasks",
        )
    yield "mean reward", _number(s.mean_reward, "")
    if s.groups_complete is None:
        yield "groups", str(s.groups)
    else:
        yield "groups", f"{s.groups_complete} complete, {s.groups_short} short"
    yield (
        "no advantage",
        f"{s.groups_untrainable} groups with too few verdicts, {s.groups_even} with equal rewards",
    )
    yield "lost to", ", ".join(f"{kind} {n}" for kind, n in s.errors.items())


def _time_lines(s: Summary) -> Iterable[tuple[str, str]]:
    sessions = f" in {s.sessions} sessions" if s.sessions > 1 else ""
    yield "wall clock", f"{s.wall_s:.1f} s{sessions}"
    yield "rollouts per hour", _number(s.rollouts_per_hour, "")
    if s.cost is not None:
        yield "sandboxes cost", f"{s.cost:.4g}, {_number(s.cost_per_rollout, '')} per verdict"
    for phase, seconds in s.phase_s.items():
        yield phase.removesuffix("_s"), f"{s.phase_share[phase]:6.1%}  {seconds:9.1f} s"


def _model_lines(s: Summary) -> Iterable[tuple[str, str]]:
    yield "calls", f"{s.steps}, {s.retried_calls} of them retried"
    quantiles = (s.model_call_p50_s, s.model_call_p95_s, s.model_call_p99_s)
    yield "p50 / p95 / p99", " / ".join(_number(q, " s") for q in quantiles)
    yield "tokens", f"{s.prompt_tokens} prompt, {s.completion_tokens} completion"
    yield "prefix cache", f"{_percent(s.prefix_cache_hit_rate)} of prompt tokens"
    yield "policy versions", ", ".join(s.policy_versions) or "-"


def _row_lines(s: Summary) -> Iterable[tuple[str, str]]:
    yield "steps", str(s.steps)
    yield "with logprobs", _percent(s.steps_with_logprobs)
    yield "with token ids", _percent(s.steps_with_token_ids)
    yield "merged rows", f"{_number(s.merged_rows_per_rollout, '')} per rollout"
    yield "actions", f"{s.actions}, {s.invalid_actions} of them invalid"
    yield "ready by", ", ".join(f"{reason} {n}" for reason, n in s.ready_reasons.items()) or "-"


def _table(title: str, lines: Iterable[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", min_width=18)
    table.add_column()
    for name, value in lines:
        table.add_row(name, Text(value))
    return table


def _task_table(summary: Summary) -> Table:
    table = Table(title="Tasks", title_justify="left", box=None, pad_edge=False)
    table.add_column("task", min_width=18)
    for name in ("verdicts", "mean reward", "success"):
        table.add_column(name, justify="right")
    for task, figures in summary.tasks.items():
        table.add_row(
            Text(task),
            str(figures.verdicts),
            f"{figures.mean_reward:.3f}",
            f"{figures.success_rate:.0%}",
        )
    return table


def _percent(share: float | None) -> str:
    return "not reported" if share is None else f"{share:.1%}"


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.3g}{unit}"


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _success_rate(rewards: Sequence[float]) -> float | None:
    return _mean([float(reward >= SUCCESS) for reward in rewards])


def _percentiles(
    values: Sequence[float], ranks: tuple[int, int, int]
) -> tuple[float | None, float | None, float | None]:
    if not values:
        return None, None, None
    low, middle, high = np.percentile(values, ranks, method="linear").tolist()
    return low, middle, high
