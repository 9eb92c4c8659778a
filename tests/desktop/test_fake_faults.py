"""Faults of the fake desktop: when they strike, and that they can be ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.desktop import actions as a
from legato.desktop.contract import DesktopOptions
from legato.desktop.fake import FakeDesktop, FakeOptions, Fault, make_desktop
from legato.desktop.fake.faults import CALLS, FaultPlan, next_life
from legato.errors import ConfigError, EnvFailure, GradeFailure
from legato.tasks.tasks_file import CarriedTask

TASK = CarriedTask("t", "inline", "do it", {"fake": {"kind": "form", "seed": 1}})
SOON = 20.0
"""Seconds; far more than any wait that ends as it should."""

CALL_IT: dict[str, Callable[[FakeDesktop], Any]] = {
    "prepare": lambda d: d.prepare(),
    "reset": lambda d: d.reset(TASK),
    "wait_after_reset": lambda d: d.wait_after_reset(),
    "observe": lambda d: d.observe(),
    "act": lambda d: d.act(a.Click(x=1, y=1)),
    "wait_before_eval": lambda d: d.wait_before_eval(),
    "evaluate": lambda d: d.evaluate(),
    "check_health": lambda d: d.check_health(),
    "close": lambda d: d.close(),
}


def desktop_with(slot: int = 0, *, options: dict[str, Any] | None = None, **extra: Any) -> Any:
    return make_desktop(DesktopOptions(extra=extra, **(options or {})), slot)


def walk(desktop: FakeDesktop, calls: tuple[str, ...]) -> list[str]:
    """What became of each call."""
    outcome = []
    for call in calls:
        try:
            CALL_IT[call](desktop)
        except (EnvFailure, GradeFailure) as e:
            outcome.append(f"{call}: {type(e).__name__}")
        else:
            outcome.append(call)
    return outcome


EPISODE = ("reset", "wait_after_reset", "observe", "act", "wait_before_eval", "evaluate")


def test_every_call_of_the_contract_is_covered() -> None:
    assert set(CALL_IT) == set(CALLS)


@pytest.mark.parametrize("call", [call for call in CALLS if call != "close"])
def test_a_crash_strikes_the_call_and_is_for_good(call: str) -> None:
    desktop = desktop_with(faults=[{"kind": "crash", "call": call, "at": 2}])
    if call != "reset":
        desktop.reset(TASK)
    CALL_IT[call](desktop)
    if call == "prepare":
        desktop.reset(TASK)
    with pytest.raises(EnvFailure, match=f"crashed in {call}"):
        CALL_IT[call](desktop)
    for later in CALLS[:-1]:
        with pytest.raises(EnvFailure, match=f"crashed in {call}"):
            CALL_IT[later](desktop)
    desktop.close()


@pytest.mark.parametrize("call", CALLS)
def test_a_hang_lasts_until_it_is_killed_from_another_thread(call: str) -> None:
    desktop = desktop_with(faults=[{"kind": "hang", "call": call, "p": 1.0}])
    if call != "reset":
        desktop.reset(TASK)
    raised: list[BaseException] = []
    entered = threading.Event()

    def hanging() -> None:
        entered.set()
        try:
            CALL_IT[call](desktop)
        except EnvFailure as e:
            raised.append(e)

    thread = threading.Thread(target=hanging, daemon=True)
    thread.start()
    assert entered.wait(SOON)
    thread.join(0.05)
    assert thread.is_alive()
    desktop.kill()
    desktop.kill()
    thread.join(SOON)
    assert not thread.is_alive()
    assert len(raised) == (0 if call == "close" else 1)
    with pytest.raises(EnvFailure):
        desktop.check_health()


def test_a_killed_desktop_stays_dead() -> None:
    desktop = desktop_with()
    desktop.reset(TASK)
    desktop.check_health()
    desktop.kill()
    assert walk(desktop, CALLS[:-1]) == [f"{call}: EnvFailure" for call in CALLS[:-1]]
    desktop.close()


def test_a_wrong_size_and_a_broken_verifier() -> None:
    faults = [{"kind": "wrong_size", "at": 2}, {"kind": "broken_verifier", "at": 1}]
    desktop = desktop_with(faults=faults)
    desktop.reset(TASK)
    sizes = [(s.width, s.height) for s in (desktop.observe() for _ in range(3))]
    assert sizes == [(1280, 720), (640, 360), (1280, 720)]
    with pytest.raises(GradeFailure):
        desktop.evaluate()
    assert desktop.evaluate().reward == 0.0


def test_latency_is_waited_and_reported() -> None:
    desktop = desktop_with(latency={"reset": 0.05, "act": [0.02, 0.04]})
    started = time.perf_counter()
    desktop.reset(TASK)
    assert time.perf_counter() - started >= 0.05
    result = desktop.act(a.Click(x=1, y=1))
    assert result.ready.reason == "idle"
    assert result.ready.seconds >= 0.02
    assert result.act_s < result.ready.seconds


def test_a_slow_reset_can_be_cut_short() -> None:
    desktop = desktop_with(faults=[{"kind": "slow", "call": "reset", "at": 1, "seconds": 600}])
    threading.Timer(0.05, desktop.kill).start()
    started = time.perf_counter()
    with pytest.raises(EnvFailure, match="killed"):
        desktop.reset(TASK)
    assert time.perf_counter() - started < SOON


def test_a_wait_ends_at_the_ready_timeout() -> None:
    desktop = desktop_with(options={"ready_timeout": 0.03}, latency={"act": 600.0})
    desktop.reset(TASK)
    ready = desktop.act(a.Click(x=1, y=1)).ready
    assert ready.reason == "timeout"
    assert 0.03 <= ready.seconds < SOON


def test_without_the_ready_signal_it_waits_the_fixed_time() -> None:
    desktop = desktop_with(options={"ready_signal": False, "fixed_wait": 0.03})
    desktop.reset(TASK)
    for ready in (
        desktop.wait_after_reset(),
        desktop.act(a.Wait()).ready,
        desktop.wait_before_eval(),
    ):
        assert ready.reason == "fixed"
        assert ready.seconds >= 0.03
    assert desktop.act(a.Done()).ready.reason == "none"


def test_a_fixed_wait_can_be_cut_short() -> None:
    desktop = desktop_with(options={"ready_signal": False, "fixed_wait": 600.0})
    desktop.reset(TASK)
    threading.Timer(0.05, desktop.kill).start()
    with pytest.raises(EnvFailure, match="killed"):
        desktop.act(a.Click(x=1, y=1))


# --- determinism -------------------------------------------------------------------------------

PLAN = FakeOptions(
    seed=3,
    latency={"act": (0.0, 1.0)},
    faults=(
        Fault(kind="crash", call="any", p=0.2),
        Fault(kind="slow", call="act", p=0.5, seconds=2.0),
    ),
)


def drawn(plan: FaultPlan, rollouts: int = 20) -> list[object]:
    return [plan.next(call) for _ in range(rollouts) for call in EPISODE]  # type: ignore[arg-type]


def test_the_same_seed_slot_and_rollout_have_the_same_faults() -> None:
    assert drawn(FaultPlan(PLAN, 4)) == drawn(FaultPlan(PLAN, 4))
    assert drawn(FaultPlan(PLAN, 4)) != drawn(FaultPlan(PLAN, 5))
    assert drawn(FaultPlan(PLAN, 4)) != drawn(FaultPlan(PLAN, 4, life=1))


@given(st.lists(st.sampled_from(["check_health", "prepare"]), max_size=5))
def test_calls_in_between_do_not_shift_the_others(between: list[Any]) -> None:
    plain, disturbed = FaultPlan(PLAN, 1), FaultPlan(PLAN, 1)
    for call in ("reset", "observe", "act", "act", "evaluate"):
        for extra in between:
            disturbed.next(extra)
        assert plain.next(call) == disturbed.next(call)  # type: ignore[arg-type]


def test_threads_do_not_matter() -> None:
    extra = {"seed": 11, "faults": [{"kind": "crash", "call": "act", "p": 0.05}]}
    calls = ("reset", *["act"] * 12)

    def run(slot: int, into: dict[int, list[str]], options: DesktopOptions) -> None:
        desktop = make_desktop(options, slot)
        assert isinstance(desktop, FakeDesktop)
        into[slot] = walk(desktop, calls * 3)

    one: dict[int, list[str]] = {}
    many: dict[int, list[str]] = {}
    alone, together = DesktopOptions(extra=extra), DesktopOptions(extra=extra)
    for slot in range(16):
        run(slot, one, alone)
    threads = [threading.Thread(target=run, args=(s, many, together)) for s in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert one == many
    assert len({tuple(outcome) for outcome in one.values()}) > 1


def test_a_replacement_for_a_crashed_desktop_is_another_life() -> None:
    options = DesktopOptions(extra={"faults": [{"kind": "crash", "call": "reset", "at": 1}]})
    for _ in range(3):
        with pytest.raises(EnvFailure):
            make_desktop(options, 0).reset(TASK)
    once = DesktopOptions(
        extra={"faults": [{"kind": "crash", "call": "reset", "at": 1, "lives": 1, "slots": [2]}]}
    )
    make_desktop(once, 1).reset(TASK)
    with pytest.raises(EnvFailure):
        make_desktop(once, 2).reset(TASK)
    make_desktop(once, 2).reset(TASK)


def test_lives_are_counted_by_options_and_slot() -> None:
    options = DesktopOptions()
    assert [next_life(options, 0), next_life(options, 0), next_life(options, 1)] == [0, 1, 0]
    assert next_life(DesktopOptions(), 0) == 0


# --- config ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"sed": 1}, "sed"),
        ({"seed": "many"}, "seed"),
        ({"latency": {"look": 1}}, "look"),
        ({"latency": {"act": -1}}, "act"),
        ({"latency": {"act": [2, 1]}}, "above"),
        ({"faults": [{"kind": "fire", "call": "act", "at": 1}]}, "kind"),
        ({"faults": [{"kind": "crash", "at": 1}]}, "needs a call"),
        ({"faults": [{"kind": "crash", "call": "close", "at": 1}]}, "close never raises"),
        ({"faults": [{"kind": "crash", "call": "act"}]}, "either p"),
        ({"faults": [{"kind": "crash", "call": "act", "p": 0.5, "at": 1}]}, "either p"),
        ({"faults": [{"kind": "crash", "call": "act", "p": 1.5}]}, "p"),
        ({"faults": [{"kind": "slow", "call": "act", "at": 1}]}, "seconds"),
        ({"faults": [{"kind": "hang", "call": "act", "at": 1, "seconds": 3}]}, "seconds"),
        ({"faults": [{"kind": "wrong_size", "call": "act", "at": 1}]}, "observe only"),
        ({"faults": [{"kind": "hang", "call": "act", "at": 1, "when": "later"}]}, "when"),
    ],
)
def test_bad_options_are_refused(extra: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_desktop(DesktopOptions(extra=extra), 0)
