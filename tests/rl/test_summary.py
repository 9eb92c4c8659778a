from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from legato.errors import ConfigError
from legato.rl.manifest import Manifest
from legato.rl.record import RunDir, read_sessions
from legato.rl.summary import PHASES, Summary, render, summarise
from legato.rl.types import ActionTaken, Rollout, Status, Timing
from tests.rl.factories import make_group, make_rollout


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run"


def summary_of(path: Path, *rollouts: Rollout, **manifest: Any) -> Summary:
    with RunDir.create_or_resume(path, Manifest(**manifest)) as run:
        for rollout in rollouts:
            run.append(rollout)
    return summarise(path)


def printed(summary: Summary) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(render(summary))
    return out.getvalue()


def test_outcome(path: Path) -> None:
    summary = summary_of(
        path,
        *make_group([1.0, 0.0, 0.5], task_id="edit"),
        make_rollout(attempt=3, status=Status.TRUNCATED, reward=1.0, task_id="tidy"),
        make_rollout(attempt=4, status=Status.SURPLUS, reward=1.0),
        make_rollout(attempt=5, status=Status.RETRIED, error_kind="env", error="x"),
        make_rollout(attempt=5, attempt_try=1, status=Status.ERROR, error_kind="env", error="x"),
        make_rollout(attempt=6, status=Status.ERROR, error_kind="policy", error="x"),
        make_rollout(attempt=7, status=Status.ERROR, error_kind="grade", error="x"),
    )
    assert summary.records == 9
    assert summary.statuses == {
        "ok": 3,
        "truncated": 1,
        "cancelled": 0,
        "skipped": 0,
        "surplus": 1,
        "retried": 1,
        "error": 3,
    }
    assert summary.errors == {"policy": 1, "env": 1, "grade": 1}
    assert summary.verdicts == 4
    assert summary.success_rate == 2 / 4
    assert summary.mean_reward == 2.5 / 4
    assert summary.tasks["edit"].verdicts == 3
    assert summary.tasks["edit"].mean_reward == 0.5
    assert summary.tasks["edit"].success_rate == pytest.approx(1 / 3)
    assert summary.tasks["tidy"].success_rate == 1.0


def test_groups(path: Path) -> None:
    summary = summary_of(
        path,
        *make_group([1.0, 0.0], group_id="full"),
        *make_group([1.0, 1.0], group_id="even"),
        *make_group([1.0], group_id="short"),
        make_rollout(group_id="lost", status=Status.ERROR, error_kind="env", error="x"),
        group=2,
    )
    assert (summary.groups, summary.groups_complete, summary.groups_short) == (4, 2, 2)
    assert (summary.groups_untrainable, summary.groups_even) == (2, 1)


def test_group_size_unknown(path: Path) -> None:
    summary = summary_of(path, make_rollout())
    assert summary.groups_complete is None
    assert summary.groups_short is None


def test_time_by_phase(path: Path) -> None:
    timing = Timing(*(float(n) for n in range(1, 9)), total_s=40.0)
    rollouts = [make_rollout(attempt=a) for a in range(2)]
    for rollout in rollouts:
        rollout.timing = timing
    summary = summary_of(path, *rollouts)
    assert summary.rollout_s == 80.0
    assert summary.phase_s == {
        **{phase: 2.0 * getattr(timing, phase) for phase in PHASES},
        "other": 8.0,
    }
    assert summary.phase_share["model_s"] == pytest.approx(timing.model_s / 40)
    assert sum(summary.phase_share.values()) == pytest.approx(1.0)


def test_model_calls(path: Path) -> None:
    rollout = make_rollout(steps=7)
    seconds = [0.5, 0.1, 9.0, 0.2, 0.3, 0.4, 0.6]
    for number, step in enumerate(rollout.steps):
        step.generation = replace(
            step.generation,
            seconds=seconds[number],
            attempts=2 if number < 3 else 1,
            prompt_tokens=step.generation.prompt_tokens,
            cached_tokens=None if number == 0 else 5,
        )
    summary = summary_of(path, rollout)
    assert summary.steps == 7
    assert summary.retried_calls == 3
    assert [summary.model_call_p50_s, summary.model_call_p95_s, summary.model_call_p99_s] == [
        pytest.approx(np.percentile(seconds, q)) for q in (50, 95, 99)
    ]
    prompt_tokens = [step.generation.prompt_tokens or 0 for step in rollout.steps]
    assert summary.prompt_tokens == sum(prompt_tokens)
    assert summary.prefix_cache_hit_rate == pytest.approx(30 / sum(prompt_tokens[1:]))


def test_steps_rows_and_actions(path: Path) -> None:
    broken = make_rollout(attempt=0, steps=4, breaks={2})
    broken.steps[0].actions.append(ActionTaken(None, error="no action in the reply"))
    summary = summary_of(
        path,
        broken,
        make_rollout(attempt=1, steps=2),
        make_rollout(attempt=2, steps=2, ids=False),
        make_rollout(attempt=3, steps=2, ids=False, logprobs=False),
        make_rollout(attempt=4, steps=2, status=Status.CANCELLED, breaks={1}),
    )
    assert summary.steps == 12
    assert summary.steps_with_token_ids == pytest.approx(8 / 12)
    assert summary.steps_with_logprobs == pytest.approx(10 / 12)
    assert summary.merged_rows_per_rollout == 1.5
    assert (summary.actions, summary.invalid_actions) == (13, 1)
    assert summary.ready_reasons == {"idle": 12, "none": 1}
    assert summary.policy_versions == ["41"]


def test_wall_clock_counts_sessions_and_not_the_night_between(path: Path) -> None:
    summary_of(path, make_rollout(attempt=0))
    summary_of(path, make_rollout(attempt=1))
    log = path / "sessions.jsonl"
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    started = lines[2]["started_at"]
    # The first session ran for an hour, a night passed, the second was killed on its way.
    lines[0]["started_at"], lines[1]["ended_at"] = started - 40_000, started - 36_400
    log.write_text("".join(json.dumps(line) + "\n" for line in lines[:3]))
    assert [s.ended_at is None for s in read_sessions(path)] == [False, True]
    summary = summarise(path)
    assert summary.sessions == 2
    assert 3600 <= summary.wall_s < 3660
    assert summary.rollouts_per_hour == pytest.approx(2 * 3600 / summary.wall_s)


def test_it_is_written_and_printed(path: Path) -> None:
    summary = summary_of(path, *make_group([1.0, 0.0], task_id="edit"), group=2)
    summary.write(path)
    stored = json.loads((path / "summary.json").read_text())
    assert stored.pop("schema") == "legato.summary/v0"
    assert stored == json.loads(json.dumps(asdict(summary)))
    text = printed(summary)
    for words in ("50.0% of 2 verdicts", "p50 / p95 / p99", "prefix cache", "1 complete", "edit"):
        assert words in text
    for phase in PHASES:
        assert phase.removesuffix("_s") in text


def test_a_name_in_brackets_is_a_name(path: Path) -> None:
    name = "[/red] [bold]x"
    assert name in printed(summary_of(path, *make_group([1.0, 0.0], task_id=name)))


def test_an_empty_run_has_no_rates(path: Path) -> None:
    summary = summary_of(path)
    assert summary.records == 0
    assert summary.success_rate is None
    assert summary.model_call_p50_s is None
    assert summary.prefix_cache_hit_rate is None
    assert "none yet" in printed(summary)
    summary.write(path)


def test_no_run_is_an_error(path: Path) -> None:
    with pytest.raises(ConfigError, match="no run at"):
        summarise(path)


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_run_that_can_only_be_read_has_a_profile(path: Path, flags: list[str]) -> None:
    """On a file system that is read-only, so that root can write no more than anybody else."""
    summary = summary_of(path, *make_group([1.0, 0.0]))
    command = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    command += [sys.executable, "-m", "legato.rl", "profile", str(path), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "summary.json is left as it was" in " ".join(done.stderr.split())
    assert not (path / "summary.json").exists()
    if flags:
        assert json.loads(done.stdout)["verdicts"] == summary.verdicts == 2
    else:
        assert "verdicts" in done.stdout


def test_success_with_and_without_infeasible_tasks(path: Path) -> None:
    tasks = [
        {"task_id": "edit", "config": {"evaluator": {"func": "exact_match"}}},
        {"task_id": "none", "config": {"evaluator": {"func": "infeasible"}}},
    ]
    summary = summary_of(
        path,
        *make_group([1.0, 0.0, 0.0, 0.0], task_id="edit"),
        *make_group([1.0, 1.0, 1.0, 1.0], task_id="none", group_id="g1"),
        tasks=tasks,
    )
    assert summary.success_rate == 0.625
    assert (summary.infeasible_tasks, summary.success_rate_feasible) == (1, 0.25)
    assert "25.0%, without 1 infeasible tasks" in printed(summary)


def test_no_word_of_infeasible_tasks_where_there_are_none(path: Path) -> None:
    summary = summary_of(path, *make_group([1.0, 0.0], task_id="edit"))
    assert summary.success_rate_feasible == summary.success_rate == 0.5
    assert "feasible" not in printed(summary)
