"""The group's bookkeeping, over every order in which attempts may come to an end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.rl.group import Ended, Group, extra_attempts
from legato.rl.types import VERDICTS, Status

END = st.sampled_from(["verdict", "verdict", "env", "policy", "grade"])


@pytest.mark.parametrize(
    ("size", "oversample", "extra"),
    [(4, 0, 0), (8, 0.25, 2), (4, 0.1, 1), (10, 0.3, 3), (3, 1.0, 3), (1, 0.01, 1)],
)
def test_oversample_is_a_fraction_rounded_up(size: int, oversample: float, extra: int) -> None:
    assert extra_attempts(size, oversample) == extra


@given(
    size=st.integers(1, 5),
    extra=st.integers(0, 3),
    retries=st.integers(0, 2),
    data=st.data(),
)
def test_any_course_of_events_keeps_the_promises(
    size: int, extra: int, retries: int, data: st.DataObject
) -> None:
    group = Group(size, extra, retries)
    running = list(group.begin())
    assert running == list(range(size + extra))
    final: dict[int, Status] = {}
    tries: dict[int, int] = {}
    while running:
        attempt = running.pop(data.draw(st.integers(0, len(running) - 1)))
        was_closed = group.closed
        end = data.draw(END)
        tries[attempt] = tries.get(attempt, 0) + 1
        if was_closed and data.draw(st.booleans()):
            ended = group.stopped(attempt, started=True)
        elif end == "verdict":
            ended = group.verdict(attempt, Status.OK, 1.0)
            assert ended.status is (Status.SURPLUS if was_closed else Status.OK)
        else:
            ended = group.failure(attempt, end)
        if ended.status is not Status.RETRIED:
            assert attempt not in final
            final[attempt] = ended.status
        running.extend(ended.start)
        assert len(set(running)) == len(running)
        if was_closed:
            assert not ended.start
    kept = [a for a, status in final.items() if status in VERDICTS]
    assert sorted(kept) == sorted(group.rewards)
    assert len(kept) <= size
    assert max(tries.values()) <= retries + 1
    assert group.refills <= size
    if not group.closed:
        lost = [a for a, status in final.items() if status is Status.ERROR]
        assert len(lost) > group.refills or group.refills == size
    assert sorted(final) == list(range(len(final)))


def test_a_lost_attempt_is_tried_again_then_replaced() -> None:
    group = Group(2, env_retries=1)
    group.begin()
    assert group.failure(0, "env") == Ended(Status.RETRIED, (0,))
    assert group.try_number(0) == 1
    assert group.failure(0, "env") == Ended(Status.ERROR, (2,))
    assert group.verdict(1, Status.TRUNCATED, 0.5) == Ended(Status.TRUNCATED)
    assert group.verdict(2, Status.OK, 1.0) == Ended(Status.OK)
    assert group.closed
    assert group.rewards == {1: 0.5, 2: 1.0}


@pytest.mark.parametrize("kind", ["policy", "grade"])
def test_only_a_desktop_failure_is_tried_again(kind: str) -> None:
    group = Group(2, env_retries=3)
    group.begin()
    assert group.failure(0, kind) == Ended(Status.ERROR, (2,))  # type: ignore[arg-type]


def test_refills_are_bounded_by_the_group_size() -> None:
    group = Group(3, env_retries=0)
    running = list(group.begin())
    ended = 0
    while running:
        running.extend(group.failure(running.pop(), "env").start)
        ended += 1
    assert ended == 6
    assert not group.closed


def test_an_attempt_is_final_once() -> None:
    group = Group(2)
    group.begin()
    group.verdict(0, Status.OK, 0.0)
    with pytest.raises(AssertionError):
        group.verdict(0, Status.OK, 1.0)


@given(size=st.integers(1, 4), extra=st.integers(0, 2), data=st.data())
def test_a_resumed_group_runs_only_what_is_missing(
    size: int, extra: int, data: st.DataObject
) -> None:
    first = Group(size, extra, env_retries=0)
    running = list(first.begin())
    finished: list[tuple[int, Status, float | None]] = []
    for _ in range(data.draw(st.integers(0, 3 * size))):
        if not running:
            break
        attempt = running.pop(0)
        if data.draw(st.booleans()):
            ended = first.verdict(attempt, Status.OK, 0.25)
            finished.append((attempt, ended.status, 0.25))
        else:
            ended = first.failure(attempt, "env")
            finished.append((attempt, ended.status, None))
        running.extend(ended.start)
    second = Group(size, extra, env_retries=0)
    again = second.begin(finished)
    assert not set(again) & {attempt for attempt, _, _ in finished}
    assert second.rewards == first.rewards
    assert second.closed == first.closed
    if not first.closed:
        assert set(again) >= set(running)
        if sum(status is Status.ERROR for _, status, _ in finished) <= size:
            assert sorted(again) == sorted(running)


@given(size=st.integers(1, 4), extra=st.integers(0, 2), outages=st.integers(1, 3))
def test_an_outage_does_not_shorten_the_group_of_a_resumed_run(
    size: int, extra: int, outages: int
) -> None:
    finished: list[tuple[int, Status, float | None]] = []
    for _ in range(outages):
        group = Group(size, extra)
        running = list(group.begin(finished))
        while running:
            attempt = running.pop(0)
            ended = group.failure(attempt, "policy")
            finished.append((attempt, ended.status, None))
            running.extend(ended.start)
        assert not group.closed
    group = Group(size, extra)
    for attempt in group.begin(finished):
        group.verdict(attempt, Status.OK, 1.0)
    assert group.closed
