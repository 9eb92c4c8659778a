from __future__ import annotations

import json
from pathlib import Path

import pytest

from legato.errors import ConfigError
from legato.rl.manifest import Manifest
from legato.rl.record import RunDir, read_records
from legato.rl.samples import run_advantages
from legato.rl.summary import PHASES, summarise
from legato.rl.types import Status
from legato.view.gaps import Gap, note_gaps, read_gaps
from legato.view.index import COLUMNS, SLOWEST, TEXT_CHUNK, RunIndex, reply_texts
from tests.rl.factories import make_group, make_rollout


def read(path: Path) -> RunIndex:
    index = RunIndex.of(path)
    for _ in index.follow():
        pass
    return index


def test_rows_add_up_to_the_summary(fake_run: Path) -> None:
    rows, summary = read(fake_run).rows, summarise(fake_run)
    assert len(rows) == summary.records
    assert sum(row.steps for row in rows) == summary.steps
    assert sum(row.total_s for row in rows) == pytest.approx(summary.rollout_s)
    for number, phase in enumerate(PHASES):
        total = sum(row.phases_s[number] for row in rows)
        assert total == pytest.approx(summary.phase_s[phase], abs=1e-4 * len(rows))


def test_advantages_are_those_that_are_trained(fake_run: Path) -> None:
    index = read(fake_run)
    body = index.to_json()
    by_id = run_advantages(fake_run)
    assert body["advantages"] == [by_id.get(row.rollout_id) for row in index.rows]


def test_a_record_is_found_again_by_its_number(fake_run: Path) -> None:
    index = read(fake_run)
    for number, record in enumerate(read_records(fake_run)):
        assert index.record(number) == record
    for number in (-1, len(index.rows)):
        with pytest.raises(IndexError):
            index.record(number)


def test_follow_gives_only_what_is_new(tmp_path: Path) -> None:
    first, second = make_group([1.0, 0.0])
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        index = RunIndex.of(run.path)
        assert list(index.follow()) == []
        run.append(first)
        assert [number for number, _ in index.follow()] == [0]
        run.append(second)
        assert [number for number, _ in index.follow()] == [1]
        assert list(index.follow()) == []


def test_a_torn_last_line_is_read_once_it_is_whole(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        run.append(make_rollout())
    log = run.path / "rollouts.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole[:-10])
    index = RunIndex.of(run.path)
    assert list(index.follow()) == []
    log.write_bytes(whole)
    assert len(list(index.follow())) == 1


def test_the_slowest_steps_come_first(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        for attempt in range(20):
            run.append(make_rollout(attempt=attempt, steps=3))
    slowest = read(run.path).to_json()["slowest"]
    assert len(slowest) == SLOWEST
    assert slowest == sorted(slowest, reverse=True)
    # The factory's model calls take 0.1 s more at every step.
    assert all(step.step == 2 for step in slowest[:20])


def test_what_was_lost_says_why(tmp_path: Path) -> None:
    lost = make_rollout(status=Status.ERROR, reward=None, error_kind="env", error="x" * 1000)
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        run.append(lost)
    (row,) = read(run.path).rows
    assert (row.status, row.error_kind, row.reward) == ("error", "env", None)
    assert len(row.error) < 1000


def test_a_row_has_a_column_for_every_field(fake_run: Path) -> None:
    body = json.loads(json.dumps(read(fake_run).to_json()))
    assert body["columns"] == list(COLUMNS)
    assert all(len(row) == len(COLUMNS) for row in body["rows"])


def test_chunks_hold_all_rollouts(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        index = RunIndex.of(run.path)
        assert index.chunks == 0
        for attempt in range(TEXT_CHUNK + 1):
            run.append(make_rollout(attempt=attempt, steps=0))
    assert read(run.path).chunks == 2


def test_reasoning_is_searched_too(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        run.append(make_rollout(steps=1))
    (record,) = read_records(run.path)
    (text,) = reply_texts(record)
    assert "because" in text
    assert "reply" in text


def test_gaps_are_kept_per_rollout_and_shown_by_turn(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        for rollout in make_group([1.0, 0.0]):
            run.append(rollout)
    note_gaps(run.path, {"g0/0": [Gap(0, 9.0, 9.0)]})
    note_gaps(run.path, {"g0/0": [Gap(0, 0.1, 0.2), Gap(1, 0.3, 0.4)], "g0/1": [Gap(0, 0.3, 0.8)]})
    assert read_gaps(run.path)["g0/0"] == [Gap(0, 0.1, 0.2), Gap(1, 0.3, 0.4)]
    assert read(run.path).to_json()["gaps"] == [
        (0, pytest.approx(0.2), 0.8, 2, 0),
        (1, pytest.approx(0.3), 0.4, 1, 0),
    ]


def test_gaps_that_are_not_finite_are_counted_apart(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        run.append(make_rollout())
    nan, infinite = float("nan"), float("inf")
    note_gaps(
        run.path,
        {
            "g0/0": [Gap(0, 0.1, 0.2), Gap(1, nan, nan)],
            "g0/1": [Gap(0, nan, nan), Gap(1, infinite, infinite)],
            "g0/2": [Gap(0, 0.3, 0.8), Gap(2, 0.5, infinite)],
        },
    )
    body = read(run.path).to_json()
    assert body["gaps"] == [
        (0, pytest.approx(0.2), 0.8, 2, 1),
        (1, None, None, 0, 2),
        (2, None, None, 0, 1),
    ]
    json.dumps(body, allow_nan=False)


def test_the_pace_is_that_of_the_profile(resumed_run: Path) -> None:
    sessions = read(resumed_run).to_json()["sessions"]
    assert [s["number"] for s in sessions] == [0, 1]
    assert sum(s["seconds"] for s in sessions) == summarise(resumed_run).wall_s


def test_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run at"):
        RunIndex.of(tmp_path)
