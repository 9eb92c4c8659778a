"""Groups of rollouts on fake desktops under a stub policy: every end an attempt can have."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from legato.desktop.actions import AnyAction, Wait
from legato.desktop.contract import ActResult, Desktop, DesktopFactory, DesktopOptions, Task
from legato.desktop.fake import FakeDesktop, fake_tasks, make_desktop, reference_actions
from legato.desktop.fake.faults import next_life, read_options
from legato.errors import ContextLimit, EnvFailure, PolicyFailure
from legato.rl.driver import Driver, GroupOptions, GroupResult
from legato.rl.harness import make_harness
from legato.rl.pool import Deadlines, Pool
from legato.rl.rollout import Limits
from legato.rl.types import Generation, Prompt, Rollout, Sampling, Status
from legato.tasks import parse_tasks
from tests.rl.stubs import StubPolicy

QUICK = Deadlines(prepare=5.0, reset=0.5, act=0.5, observe=0.5, evaluate=0.5, close=1.0)
"""For desktops that hang: somebody waits these out."""
SCREEN = (320, 240)
HARNESS = make_harness("compact", tokenizer=None)


@dataclass
class Outcome:
    result: GroupResult
    ended: list[Rollout] = field(default_factory=list)
    pool_failures: int = 0

    @property
    def statuses(self) -> Counter[str]:
        return Counter(r.status.value for r in self.ended)


def press_task() -> Task:
    return parse_tasks(fake_tasks(1, seed=0), backend="fake")[0]


def run_group(
    policy: StubPolicy,
    *,
    desktops: int = 4,
    groups: GroupOptions | None = None,
    limits: Limits | None = None,
    standby: bool = True,
    factory: DesktopFactory = make_desktop,
    **extra: Any,
) -> Outcome:
    async def main() -> Outcome:
        ended: list[Rollout] = []

        async def keep(rollout: Rollout) -> None:
            ended.append(rollout)

        options = DesktopOptions(width=SCREEN[0], height=SCREEN[1], ready_timeout=0.2, extra=extra)
        hangs = any(fault["kind"] == "hang" for fault in extra.get("faults", ()))
        deadlines = QUICK if hangs else Deadlines()
        async with Pool(
            factory, options, size=desktops, standby=standby, deadlines=deadlines
        ) as pool:
            driver = Driver(
                pool,
                policy,
                HARNESS,
                policy_model="stub",
                sampling=Sampling(),
                limits=limits or Limits(max_steps=3),
                groups=groups or GroupOptions(size=4),
                on_rollout=keep,
            )
            result = await driver.run_group(press_task(), "g")
            assert pool.leased == 0
            return Outcome(result, ended, pool.failures)

    return asyncio.run(asyncio.wait_for(main(), 60))


def right_reply() -> str:
    task = press_task()
    action = reference_actions(task.task_id, task.config, SCREEN)[0]
    return HARNESS.render_reply(action, SCREEN)


def by_turn(*replies: str) -> Callable[[Prompt], str]:
    """A policy that says ``replies`` in order, told by how many replies the prompt holds."""
    return lambda prompt: replies[sum(m.role == "assistant" for m in prompt.messages)]


def test_right_actions_earn_and_the_record_tells_the_story() -> None:
    outcome = run_group(StubPolicy(by_turn(right_reply(), "done")))
    assert outcome.statuses == {"ok": 4}
    assert set(outcome.result.rewards.values()) == {1.0}
    assert set(outcome.result.advantages.values()) == {0.0}
    rollout = outcome.ended[0]
    assert [len(s.actions) for s in rollout.steps] == [1, 1]
    assert rollout.score is not None
    assert rollout.final_screenshot is not None
    assert rollout.timing.total_s >= rollout.timing.eval_s > 0


def test_advantages_compare_the_attempts_of_a_group() -> None:
    turns = iter(["right", "wrong"] * 10)

    def reply(prompt: Prompt) -> str:
        if len(prompt.messages) > 2:
            return "done"
        return right_reply() if next(turns) == "right" else "click 0 0"

    outcome = run_group(StubPolicy(reply))
    rewards, advantages = outcome.result.rewards, outcome.result.advantages
    assert sorted(rewards.values()) == [0.0, 0.0, 1.0, 1.0]
    assert all((advantages[n] > 0) == (reward == 1.0) for n, reward in rewards.items())
    assert sum(advantages.values()) == pytest.approx(0.0)


def test_the_step_limit_is_an_ordinary_end() -> None:
    outcome = run_group(StubPolicy(lambda _: "wait 0"))
    assert outcome.statuses == {"ok": 4}
    assert [len(r.steps) for r in outcome.ended] == [3, 3, 3, 3]
    assert all(r.reward == 0.0 for r in outcome.ended)


@pytest.mark.parametrize("reply", ["", "garbage", "click", "click here", "key no_such_key"])
def test_what_the_agent_gets_wrong_costs_a_step_and_is_told(reply: str) -> None:
    seen: list[Prompt] = []

    def answer(prompt: Prompt) -> str:
        seen.append(prompt)
        return reply

    outcome = run_group(StubPolicy(answer), desktops=1, groups=GroupOptions(size=1))
    rollout = outcome.ended[0]
    assert rollout.status is Status.OK
    assert rollout.error_kind is None
    assert len(rollout.steps) == 3
    for step in rollout.steps:
        assert step.actions[-1].error
    told = seen[1].messages[-1].parts
    assert any(rollout.steps[0].actions[-1].error in getattr(p, "text", "") for p in told)
    assert outcome.pool_failures == 0


def test_a_dead_desktop_is_retried_elsewhere_and_never_a_reward_of_zero() -> None:
    fault = {"kind": "crash", "call": "act", "at": 1, "lives": 1}
    outcome = run_group(
        StubPolicy(by_turn(right_reply(), "done")),
        desktops=1,
        groups=GroupOptions(size=2, env_retries=1),
        faults=[fault],
    )
    assert outcome.statuses == {"retried": 2, "ok": 2} or outcome.statuses == {
        "retried": 1,
        "ok": 2,
    }
    assert set(outcome.result.rewards.values()) == {1.0}
    for rollout in outcome.ended:
        assert (rollout.reward is None) == (rollout.status is Status.RETRIED)
    retried = next(r for r in outcome.ended if r.status is Status.RETRIED)
    assert retried.error_kind == "env"
    assert any(
        r.attempt == retried.attempt and r.attempt_try == 1 and r.status is Status.OK
        for r in outcome.ended
    )


@pytest.mark.parametrize("call", ["reset", "wait_after_reset", "observe", "act", "evaluate"])
@pytest.mark.parametrize("kind", ["hang", "crash"])
def test_a_desktop_that_always_fails_ends_as_error_env(kind: str, call: str) -> None:
    outcome = run_group(
        StubPolicy(lambda _: "wait 0"),
        desktops=2,
        groups=GroupOptions(size=1, env_retries=1),
        faults=[{"kind": kind, "call": call, "at": 1}],
    )
    assert outcome.statuses == {"retried": 2, "error": 2}
    assert outcome.result.rewards == {}
    assert outcome.result.short
    assert outcome.result.refills == 1
    assert all(r.reward is None and r.error_kind == "env" and r.error for r in outcome.ended)


def test_a_screenshot_of_the_wrong_size_is_an_env_failure() -> None:
    outcome = run_group(
        StubPolicy(by_turn(right_reply(), "done")),
        desktops=1,
        groups=GroupOptions(size=1),
        faults=[{"kind": "wrong_size", "at": 2, "lives": 1}],
        standby=False,
    )
    assert outcome.statuses == {"retried": 1, "ok": 1}
    assert "160x120" in str(outcome.ended[0].error)
    assert outcome.result.rewards == {0: 1.0}


def test_a_broken_verifier_gives_no_reward_and_keeps_the_desktop() -> None:
    outcome = run_group(
        StubPolicy(by_turn(right_reply(), "done")),
        desktops=1,
        groups=GroupOptions(size=2),
        faults=[{"kind": "broken_verifier", "at": 1}],
    )
    assert outcome.statuses == {"error": 2, "ok": 2} or outcome.statuses == {"error": 1, "ok": 2}
    assert all(r.error_kind == "grade" for r in outcome.ended if r.status is Status.ERROR)
    assert set(outcome.result.rewards.values()) == {1.0}
    assert outcome.pool_failures == 0


def test_lost_model_calls_are_refilled_but_bounded() -> None:
    outcome = run_group(
        StubPolicy(lambda _: PolicyFailure("HTTP 500")),
        desktops=2,
        groups=GroupOptions(size=3),
    )
    assert outcome.statuses == {"error": 6}
    assert all(r.error_kind == "policy" and r.reward is None for r in outcome.ended)
    assert outcome.result.short
    assert outcome.result.advantages == {}


def test_a_model_server_that_is_gone_ends_the_run() -> None:
    with pytest.raises(PolicyFailure, match=r"in a row .* connection refused"):
        run_group(
            StubPolicy(lambda _: PolicyFailure("connection refused")),
            desktops=4,
            groups=GroupOptions(size=8),
        )


def test_stragglers_are_cancelled_at_once_model_call_and_desktop_included() -> None:
    class Uneven(StubPolicy):
        """Answers two attempts, once all four have asked."""

        asked = 0

        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            number, self.asked = self.asked, self.asked + 1
            if self.asked == 4:
                all_asked.set()
            if number < 2:
                await asyncio.wait_for(all_asked.wait(), 60)
            self.latency = 0.0 if number < 2 else 300.0
            return await super().generate(prompt, sampling)

    all_asked = asyncio.Event()
    policy = Uneven(lambda _: "done")
    started = time.monotonic()
    outcome = run_group(policy, desktops=4, groups=GroupOptions(size=2, oversample=1.0))
    assert time.monotonic() - started < 200
    assert outcome.statuses == {"ok": 2, "cancelled": 2}
    assert policy.cancelled == 2
    assert policy.running == 0
    for rollout in outcome.ended:
        if rollout.status is Status.CANCELLED:
            assert rollout.reward is None


def test_attempts_that_never_got_a_desktop_are_skipped() -> None:
    outcome = run_group(
        StubPolicy(lambda _: "done"), desktops=1, groups=GroupOptions(size=2, oversample=1.0)
    )
    # The third may have been given the desktop in the moment before the group closed.
    assert outcome.statuses in ({"ok": 2, "skipped": 2}, {"ok": 2, "skipped": 1, "cancelled": 1})
    assert all(r.steps == [] for r in outcome.ended if r.status is Status.SKIPPED)


def test_an_attempt_in_grading_when_the_group_closes_is_surplus() -> None:
    outcome = run_group(
        StubPolicy(by_turn(right_reply(), "done")),
        desktops=3,
        groups=GroupOptions(size=2, oversample=0.5),
        faults=[{"kind": "slow", "call": "evaluate", "at": 1, "seconds": 0.3, "slots": [2, 5]}],
    )
    assert outcome.statuses in ({"ok": 2, "surplus": 1}, {"ok": 2, "cancelled": 1})
    assert len(outcome.result.rewards) == 2
    surplus = [r for r in outcome.ended if r.status is Status.SURPLUS]
    assert all(r.reward == 1.0 for r in surplus)
    assert {r.attempt for r in surplus}.isdisjoint(outcome.result.rewards)


def test_the_wall_clock_limit_truncates_and_grades() -> None:
    class Tiring(StubPolicy):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            self.latency = 0.0 if len(prompt.messages) <= 2 else 300.0
            return await super().generate(prompt, sampling)

    started = time.monotonic()
    outcome = run_group(
        Tiring(lambda _: "wait 0"),
        limits=Limits(max_steps=3, rollout_timeout=6.0),
        groups=GroupOptions(size=2),
    )
    assert time.monotonic() - started < 200
    assert outcome.statuses == {"truncated": 2}
    assert all(r.truncated_by == "time" and r.reward == 0.0 for r in outcome.ended)
    assert [len(r.steps) for r in outcome.ended] == [1, 1]
    assert set(outcome.result.rewards) == {0, 1}


class Patient(FakeDesktop):
    """Waits for as long as it is asked to, as real desktops do."""

    def act(self, action: AnyAction) -> ActResult:
        if isinstance(action, Wait):
            self._fate.wait(action.seconds)
        return super().act(action)


def patient(options: DesktopOptions, slot: int) -> Desktop:
    return Patient(options, read_options(options.extra), slot, next_life(options, slot))


def test_a_wait_ends_with_the_rollouts_time() -> None:
    outcome = run_group(
        StubPolicy(lambda _: "wait 50"),
        limits=Limits(max_steps=3, rollout_timeout=1.5),
        groups=GroupOptions(size=1),
        factory=patient,
    )
    assert outcome.statuses == {"truncated": 1}
    (rollout,) = outcome.ended
    assert rollout.truncated_by == "time"
    assert rollout.timing.total_s < 40
    waits = [taken.action for step in rollout.steps for taken in step.actions]
    assert waits == [Wait(seconds=50.0)], "the record has what the agent asked for"


@pytest.mark.parametrize(
    ("latency", "extra", "kind"),
    [(30.0, {}, "policy"), (0.0, {"latency": {"reset": 0.4}}, "env")],
)
def test_an_agent_that_was_never_heard_is_not_judged(
    latency: float, extra: dict[str, Any], kind: str
) -> None:
    outcome = run_group(
        StubPolicy(lambda _: "wait 0", latency=latency),
        limits=Limits(max_steps=3, rollout_timeout=0.3),
        groups=GroupOptions(size=1, env_retries=0),
        **extra,
    )
    assert outcome.statuses == {"error": 2}
    assert all(r.error_kind == kind and r.reward is None for r in outcome.ended)
    assert outcome.result.rewards == {}


def test_a_prompt_past_the_context_truncates_and_grades() -> None:
    replies = by_turn(right_reply())

    def reply(prompt: Prompt) -> str | Exception:
        return replies(prompt) if len(prompt.messages) <= 2 else ContextLimit("too long")

    outcome = run_group(StubPolicy(reply), groups=GroupOptions(size=2))  # type: ignore[arg-type]
    assert outcome.statuses == {"truncated": 2}
    assert all(r.truncated_by == "context" and r.reward == 1.0 for r in outcome.ended)


def test_a_cancelled_group_leaves_nothing_running() -> None:
    async def main() -> tuple[int, int]:
        options = DesktopOptions(width=SCREEN[0], height=SCREEN[1])
        policy = StubPolicy(lambda _: "done", latency=30.0)
        async with Pool(make_desktop, options, size=2) as pool:
            driver = Driver(
                pool,
                policy,
                HARNESS,
                policy_model="stub",
                sampling=Sampling(),
                limits=Limits(),
                groups=GroupOptions(size=3),
            )
            group = asyncio.create_task(driver.run_group(press_task(), "g"))
            while policy.running < 2:  # noqa: ASYNC110 - the stub has no signal
                await asyncio.sleep(0.01)
            group.cancel()
            with pytest.raises(asyncio.CancelledError):
                await group
            return policy.running, pool.leased

    assert asyncio.run(asyncio.wait_for(main(), 30)) == (0, 0)


def test_verdicts_that_wait_to_be_written_outlive_a_cancellation() -> None:
    async def main() -> list[int]:
        told: list[int] = []
        writing = asyncio.Event()

        async def keep(rollout: Rollout) -> None:
            told.append(rollout.attempt)
            if not writing.is_set():
                writing.set()
                await asyncio.sleep(30)  # the disk is slow; the cancellation ends this

        options = DesktopOptions(width=SCREEN[0], height=SCREEN[1])
        async with Pool(make_desktop, options, size=3) as pool:
            driver = Driver(
                pool,
                StubPolicy(lambda _: "done"),
                HARNESS,
                policy_model="stub",
                sampling=Sampling(),
                limits=Limits(),
                groups=GroupOptions(size=3),
                on_rollout=keep,
            )
            group = asyncio.create_task(driver.run_group(press_task(), "g"))
            await writing.wait()
            while pool.leased:  # noqa: ASYNC110 - until every attempt has been graded
                await asyncio.sleep(0.01)
            group.cancel()
            with pytest.raises(asyncio.CancelledError):
                await group
        return told

    assert sorted(asyncio.run(asyncio.wait_for(main(), 30))) == [0, 1, 2]


def test_a_seed_gives_every_request_its_own() -> None:
    seeds: list[int | None] = []

    class Listening(StubPolicy):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            seeds.append(sampling.seed)
            return await super().generate(prompt, sampling)

    async def main() -> None:
        options = DesktopOptions(width=SCREEN[0], height=SCREEN[1])
        async with Pool(make_desktop, options, size=1) as pool:
            driver = Driver(
                pool,
                Listening(lambda _: "wait 0"),
                HARNESS,
                policy_model="stub",
                sampling=Sampling(seed=7),
                limits=Limits(max_steps=2),
                groups=GroupOptions(size=2),
            )
            await driver.run_group(press_task(), "g")

    asyncio.run(main())
    first = list(seeds)
    seeds.clear()
    asyncio.run(main())
    assert first == seeds
    assert len(set(first)) == 4


def test_no_desktop_at_all_ends_the_run_with_the_reason() -> None:
    with pytest.raises(EnvFailure, match="no desktop can be started"):
        run_group(StubPolicy(), desktops=2, faults=[{"kind": "crash", "call": "prepare", "p": 1.0}])
