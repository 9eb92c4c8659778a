"""A run directory that is opened again, or read while it is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from legato.errors import ConfigError
from legato.rl.record import (
    finished_attempts,
    read_records,
    read_sessions,
)
from legato.rl.types import Status
from tests.rl.factories import make_rollout
from tests.rl.record.written import (
    check_whole,
    open_run,
    written,
)


def test_a_resumed_run_knows_what_is_final(path: Path) -> None:
    written(
        path,
        make_rollout(attempt=0, reward=0.25),
        make_rollout(attempt=1, status=Status.RETRIED, error_kind="env", error="x"),
        make_rollout(attempt=2, status=Status.RETRIED, error_kind="env", error="x"),
        make_rollout(attempt=2, attempt_try=1, status=Status.ERROR, error_kind="env", error="x"),
        make_rollout(attempt=3, status=Status.CANCELLED),
    )
    with open_run(path) as run:
        assert run.finished == finished_attempts(path)
        assert {key: end.status for key, end in run.finished.items()} == {
            ("g0", 0): Status.OK,
            ("g0", 2): Status.ERROR,
            ("g0", 3): Status.CANCELLED,
        }
        assert run.finished["g0", 0].reward == 0.25
        assert run.tries == {("g0", 0): 1, ("g0", 1): 1, ("g0", 2): 2, ("g0", 3): 1}
        run.append(make_rollout(attempt=1, attempt_try=1))
    assert [r["session"] for r in read_records(path)] == [0] * 5 + [1]
    assert [s.number for s in read_sessions(path) if s.ended_at is not None] == [0, 1]


def test_an_attempt_is_final_only_once(path: Path) -> None:
    written(path, make_rollout())
    with open_run(path) as run, pytest.raises(ValueError, match="attempt 0 of group g0 is already"):
        run.append(make_rollout())
    assert len(list(read_records(path))) == 1


def test_other_settings_are_named(path: Path) -> None:
    settings = {"policy": {"version": "41"}, "sampling": {"top_k": 0}, "max_steps": 15}
    open_run(path, group=4, settings=settings, session={"desktops": 4}).close()
    open_run(path, group=4, settings=settings, session={"desktops": 8}).close()
    changed = {"policy": {"version": "42"}, "sampling": {"top_k": 20}, "max_steps": 15}
    with pytest.raises(ConfigError) as error:
        open_run(path, group=8, settings=changed, tasks=[{"task_id": "a"}])
    said = str(error.value)
    for words in (
        'policy.version was "41", now "42"',
        "sampling.top_k was 0, now 20",
        "group was 4, now 8",
        "tasks were 0, now 1",
    ):
        assert words in said
    assert "max_steps" not in said
    assert "--out" in said


def test_changed_tasks_are_named(path: Path) -> None:
    open_run(path, tasks=[{"task_id": "a"}, {"task_id": "b"}]).close()
    with pytest.raises(ConfigError, match=r"task 1 was .*b.*, now .*c"):
        open_run(path, tasks=[{"task_id": "a"}, {"task_id": "c"}])


def test_a_second_writer_is_refused(path: Path) -> None:
    with open_run(path), pytest.raises(ConfigError, match=f"another process.*pid {os.getpid()}"):
        open_run(path)
    open_run(path).close()


def test_a_directory_of_something_else_is_left_alone(path: Path) -> None:
    path.mkdir()
    (path / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match="holds no run"):
        open_run(path)
    assert [p.name for p in path.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_way_is_a_config_error(path: Path) -> None:
    path.write_text("a file")
    with pytest.raises(ConfigError, match="cannot use"):
        open_run(path)


def test_reading_where_no_run_is_says_so(path: Path) -> None:
    with pytest.raises(ConfigError, match="no run at"):
        list(read_records(path))


def test_readers_follow_a_run_that_is_being_written(path: Path) -> None:
    with open_run(path) as run:
        for attempt in range(3):
            run.append(make_rollout(attempt=attempt))
            assert len(check_whole(path)) == attempt + 1


def test_a_closed_run_takes_no_more(path: Path) -> None:
    run = open_run(path)
    run.close()
    run.close()
    with pytest.raises(ValueError, match="closed"):
        run.append(make_rollout())
