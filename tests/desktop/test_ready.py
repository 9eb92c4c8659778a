"""The ready signal on scripted desktops: what moves, works and loads when, by their own clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.desktop.contract import Ready
from legato.desktop.ready import POLL_S, ReadyRules, Settling, wait_ready
from legato.errors import EnvFailure

RULES = ReadyRules()
COLUMNS, ROWS, TILE = 40, 30, 16
LIMIT_S = 15.0


@dataclass(frozen=True)
class Paint:
    """At ``at`` seconds one pixel of a tile gets a colour it never had."""

    at: float
    column: int = 0
    row: int = 0


Span = tuple[float, float]


class Scripted:
    """A desktop that does what the script says; :attr:`now` is its time in seconds."""

    def __init__(
        self,
        paints: Sequence[Paint] = (),
        *,
        working: Sequence[Span] = (),
        loading: Sequence[Span] = (),
    ) -> None:
        self.now = 0.0
        self.looks = 0
        self._script = sorted(paints, key=lambda p: p.at)
        self._painted = 0
        self._screen = np.zeros((ROWS * TILE, COLUMNS * TILE), np.uint32)
        self.working, self.loading = working, loading

    def frame(self) -> np.ndarray:
        self.looks += 1
        while self._painted < len(self._script) and self._script[self._painted].at <= self.now:
            paint = self._script[self._painted]
            self._painted += 1
            self._screen[paint.row * TILE + 5, paint.column * TILE + 7] = self._painted
        return self._screen

    def busy_seconds(self) -> float:
        return work(self.working, 0.0, self.now)

    def pending_requests(self) -> int:
        return sum(start <= self.now < end for start, end in self.loading)

    def wait(self) -> Ready:
        settling = Settling(self, RULES, lambda: self.now)
        while True:
            reason = settling.look()
            if reason is None and self.now >= LIMIT_S:
                reason = "timeout"
            if reason is not None:
                return Ready(reason, self.now)
            pause = settling.next_look_in()
            assert 0 < pause <= POLL_S[1]
            self.now += pause + 1e-6  # a sleep is never too short


def work(spans: Sequence[Span], since: float, until: float) -> float:
    return sum(max(0.0, min(end, until) - max(start, since)) for start, end in spans)


def every(
    seconds: float, *, until: float = LIMIT_S + 1, column: int = 3, row: int = 3
) -> list[Paint]:
    count = int(until / seconds)
    return [Paint(0.05 + i * seconds, column, row) for i in range(count)]


def block(seconds: float) -> list[Paint]:
    """A canvas of 8 x 6 tiles, repainted."""
    return [
        Paint(p.at, column, row) for p in every(seconds) for column in range(8) for row in range(6)
    ]


def test_nothing_happens() -> None:
    desktop = Scripted()
    ready = desktop.wait()
    assert ready.reason == "idle"
    assert RULES.quiet_s <= ready.seconds <= RULES.quiet_s + 0.02


@pytest.mark.parametrize("last", [0.01, 0.05, 0.11, 0.5, 1.3])
def test_a_change_is_waited_out_and_little_more(last: float) -> None:
    paints = [Paint(last * i / 4, column=i, row=i) for i in range(5)]
    ready = Scripted(paints, working=[(0.0, last)]).wait()
    assert ready.reason == "idle"
    assert RULES.quiet_s <= ready.seconds - last <= 0.25 + POLL_S[1]


@pytest.mark.parametrize(
    ("name", "paints"),
    [
        ("spinner at 60 Hz", every(1 / 60)),
        ("spinner on a loaded machine", every(0.12)),
        ("animated picture at 5 Hz", every(0.2)),
        ("canvas", block(1 / 30)),
        ("ball over the whole screen", [Paint(i / 60, i % COLUMNS, i % ROWS) for i in range(960)]),
    ],
)
def test_what_never_stops_is_animated(name: str, paints: list[Paint]) -> None:
    ready = Scripted(paints, working=[(0.0, 16.0)]).wait()
    assert ready.reason == "animated", name
    assert RULES.grace_s <= ready.seconds <= 1.5


def test_blinking_caret_is_idle_between_two_blinks() -> None:
    ready = Scripted(every(0.5)).wait()
    assert ready.reason == "idle"
    assert ready.seconds <= 1.0


def test_change_beside_a_spinner_counts() -> None:
    beside = Paint(0.8, column=20, row=20)
    ready = Scripted([*every(1 / 60), beside]).wait()
    assert ready.reason == "animated"
    assert ready.seconds >= beside.at + RULES.grace_s


def test_change_among_moving_things_without_rhythm_times_out() -> None:
    wanders = [Paint(i * 0.15, i % COLUMNS, (i // COLUMNS) % ROWS) for i in range(110)]
    ready = Scripted(wanders, working=[(0.0, 20.0)]).wait()
    assert ready.reason == "timeout"
    assert ready.seconds >= LIMIT_S


def test_request_is_waited_for() -> None:
    ready = Scripted(loading=[(0.02, 1.5)]).wait()
    assert ready.reason == "idle"
    assert 1.5 + RULES.idle_s <= ready.seconds <= 1.5 + 0.3


def test_what_the_answer_changes_is_waited_for() -> None:
    drawn = Paint(1.58, column=9, row=9)
    ready = Scripted([drawn], loading=[(0.02, 1.5)], working=[(1.5, 1.58)]).wait()
    assert ready.reason == "idle"
    assert ready.seconds >= drawn.at + RULES.quiet_s


def test_request_behind_a_spinner_is_waited_for_and_so_is_what_it_brings() -> None:
    drawn = Paint(2.54, column=20, row=20)
    ready = Scripted([*every(1 / 60), drawn], loading=[(0.0, 2.5)]).wait()
    assert ready.reason == "animated"
    assert ready.seconds >= drawn.at + RULES.grace_s


def test_cold_start_with_nothing_on_screen_is_not_idle() -> None:
    drawn = Paint(1.2, column=9, row=9)
    ready = Scripted([drawn], working=[(0.0, 1.3)]).wait()
    assert ready.reason == "idle"
    assert ready.seconds >= drawn.at + RULES.quiet_s


@pytest.mark.parametrize("endless", ["working", "loading"])
def test_endless_background_work_costs_patience_only(endless: str) -> None:
    spans = [(0.0, 100.0)]
    desktop = Scripted(working=spans) if endless == "working" else Scripted(loading=spans)
    ready = desktop.wait()
    assert ready.reason == "animated"
    assert RULES.patience_s <= ready.seconds <= RULES.patience_s + 0.2


def test_a_thread_that_ends_is_activity() -> None:
    class Ending(Scripted):
        def busy_seconds(self) -> float:
            return 10.0 if self.now < 0.15 else 9.0

    assert Ending().wait().seconds > RULES.quiet_s + 0.05


def test_work_below_the_share_is_rest() -> None:
    ticks = [(i * 0.1, i * 0.1 + 0.1 * RULES.busy_share / 2) for i in range(100)]
    assert Scripted(working=ticks).wait() == Scripted().wait()


def test_looks_get_rarer() -> None:
    desktop = Scripted(loading=[(0.0, 4.0)])
    desktop.wait()
    assert desktop.looks <= 4.3 / POLL_S[1] + 25


@pytest.mark.parametrize("shape", [(700, 1001), (16, 16), (15, 17), (1, 1)])
def test_every_pixel_of_any_screen_is_watched(shape: tuple[int, int]) -> None:
    class Corner(Scripted):
        screen = np.zeros(shape, np.uint32)

        def frame(self) -> np.ndarray:
            self.screen[-1, -1] = self.now >= 0.15
            return self.screen

    assert Corner().wait().seconds >= 0.15 + RULES.quiet_s


seconds = st.floats(0.0, 3.0, allow_nan=False)
paints = st.builds(Paint, seconds, st.integers(0, COLUMNS - 1), st.integers(0, ROWS - 1))
spinners = st.builds(every, st.floats(0.01, 0.4), column=st.integers(0, 5))
spans = st.tuples(seconds, seconds).map(lambda t: (min(t), max(t)))


@settings(deadline=None, max_examples=300)
@given(
    single=st.lists(paints, max_size=25),
    spinning=st.lists(spinners, max_size=2),
    working=st.lists(spans, max_size=3),
    loading=st.lists(spans, max_size=3),
)
def test_never_ready_while_something_is_under_way(
    single: list[Paint], spinning: list[list[Paint]], working: list[Span], loading: list[Span]
) -> None:
    script = [*single, *(p for paints in spinning for p in paints)]
    ready = Scripted(script, working=working, loading=loading).wait()
    end = ready.seconds
    seen = [p.at for p in script if p.at <= end]
    if ready.reason == "idle":
        # Nothing at all changed for quiet_s.
        assert not [at for at in seen if end - at < RULES.quiet_s - 1e-6 and at > 0]
        assert not [span for span in loading if span[0] <= end < span[1]]
        # A request too long to fit between two samples did not just end.
        between = RULES.idle_s + POLL_S[1] + 1e-3
        assert not [(a, b) for a, b in loading if b - a > between and end - RULES.idle_s < b <= end]
        allowed = RULES.busy_share * (RULES.idle_s + POLL_S[1]) + 1e-3
        assert work(working, end - RULES.idle_s, end) <= allowed
    elif ready.reason == "animated" and end < RULES.patience_s:
        assert end >= RULES.grace_s
        assert [at for at in seen if end - at <= 2 * RULES.quiet_s + POLL_S[1]]
        assert not [span for span in loading if span[0] <= end < span[1]]


@settings(deadline=None, max_examples=200)
@given(single=st.lists(paints, max_size=25), working=st.lists(spans, max_size=3))
def test_the_wait_ends_soon_after_the_last_event(single: list[Paint], working: list[Span]) -> None:
    last = max([0.0, *(p.at for p in single), *(end for _, end in working)])
    assert Scripted(single, working=working).wait().seconds <= last + 0.4


def test_stopping_the_desktop_ends_the_wait() -> None:
    stopped = threading.Event()
    threading.Timer(0.1, stopped.set).start()
    began = time.monotonic()
    with pytest.raises(EnvFailure, match="stopped"):
        wait_ready(Scripted(loading=[(0.0, 1e9)]), timeout=60.0, cancelled=stopped)
    assert time.monotonic() - began < 10.0


def test_the_limit_ends_the_wait() -> None:
    ready = wait_ready(Scripted(loading=[(0.0, 1e9)]), timeout=0.3)
    assert ready.reason == "timeout"
    assert ready.seconds >= 0.3
