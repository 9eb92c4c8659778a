"""One attempt on one leased desktop: reset, observe, [policy, act, observe]*, grade.

The attempt always leaves its story in the :class:`~legato.rl.types.Rollout` it was given, whether
it ends with a verdict, a failure or a cancellation, and it never turns a failure into a reward.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from legato.desktop.actions import ENDS_EPISODE, AnyAction, Wait
from legato.desktop.contract import Desktop, Screenshot, Task
from legato.desktop.extras import Deadlines, check_allowed
from legato.errors import ActionError, ContextLimit, EnvFailure, Failure, PolicyFailure
from legato.rl.lease import DesktopLease
from legato.rl.observer import Phase
from legato.rl.types import ActionTaken, Harness, Policy, Rollout, Sampling, Status, Step

_ENCODERS = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="encoder")
"""Encoding is pure CPU: more of it at once is no faster, and every further thread that wants the
interpreter lock wakes up 200 times a second to ask for it. First come, first served."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a rollout ends by itself."""

    max_steps: int = 15
    """Policy calls; reaching it is a normal end (``ok``)."""
    rollout_timeout: float | None = None
    """Wall-clock seconds from the lease on; reaching it is graded and ``truncated``, unless the
    agent was never heard: then infrastructure failed."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What an attempt runs under, all but its task and its desktop."""

    policy: Policy
    harness: Harness
    sampling: Sampling
    limits: Limits
    deadlines: Deadlines
    ready_timeout: float
    """Longest wait for a ready screen, in seconds: on top of a call's own deadline."""
    screen: tuple[int, int]
    """(width, height) in pixels that every screenshot must have."""
    enter: Callable[[Phase], object] = lambda phase: None
    """Is told of every phase as it begins."""


async def run_attempt(rollout: Rollout, task: Task, lease: DesktopLease, under: Conditions) -> None:
    """Fill ``rollout`` by running ``task`` on the leased desktop.

    On return ``rollout.status`` is ``ok`` or ``truncated`` with a reward, or ``error`` with its
    kind. Only ``CancelledError`` is raised; what happened until then is in ``rollout``.
    """
    started = time.monotonic() - lease.waited_s
    rollout.started_at = time.time() - lease.waited_s
    rollout.desktop_slot = lease.slot
    rollout.timing.reset_s = lease.waited_s
    limit = under.limits.rollout_timeout
    try:
        episode = _Episode(rollout, task, lease, under)
        await episode.begin()
        await episode.steps(None if limit is None else started + limit)
        await episode.grade()
    except Failure as e:
        rollout.status = Status.ERROR
        rollout.error_kind, rollout.error = e.kind, str(e)
    finally:
        rollout.timing.total_s = time.monotonic() - started


@dataclass(frozen=True, slots=True)
class _Episode:
    rollout: Rollout
    task: Task
    lease: DesktopLease
    under: Conditions

    async def begin(self) -> None:
        timing, task = self.rollout.timing, self.task
        self.under.enter("reset")
        at = time.monotonic()
        await self.lease.call("reset", lambda d: d.reset(task), self.under.deadlines.reset)
        timing.reset_s += time.monotonic() - at
        self.under.enter("settle")
        at = time.monotonic()
        self.rollout.ready_after_reset = await self.lease.call(
            "wait_after_reset",
            lambda d: d.wait_after_reset(),
            self.under.deadlines.act + self.under.ready_timeout,
        )
        timing.wait_after_reset_s = time.monotonic() - at

    async def steps(self, until: float | None) -> None:
        at = time.monotonic()
        screenshot = await self.lease.call("observe", self._observe, self.under.deadlines.observe)
        self.rollout.timing.obs_s += time.monotonic() - at
        conversation = self.under.harness.start(self.task.instruction, self.under.screen)
        note: str | None = None
        ended = False
        while True:
            self.rollout.final_screenshot = screenshot
            if ended or len(self.rollout.steps) >= self.under.limits.max_steps:
                self.rollout.status = Status.OK
                return
            if until is not None and time.monotonic() >= until:
                if not self.rollout.steps:
                    raise EnvFailure(
                        "the first screen was ready only after the rollout's time limit of "
                        f"{self.under.limits.rollout_timeout:g} s"
                    )
                return self._truncate("time")
            conversation.observe(screenshot, note)
            prompt = conversation.prompt()
            self.under.enter("model")
            at = time.monotonic()
            try:
                async with asyncio.timeout_at(_loop_time(until)):
                    generation = await self.under.policy.generate(prompt, self._sampling())
            except TimeoutError:
                if not self.rollout.steps:  # the agent never acted: there is nothing to judge
                    raise PolicyFailure(
                        "no reply to the first prompt within the rollout's time limit of "
                        f"{self.under.limits.rollout_timeout:g} s"
                    ) from None
                return self._truncate("time")
            except ContextLimit:
                return self._truncate("context")
            finally:
                self.rollout.timing.model_s += time.monotonic() - at
            step = Step(prompt, generation, self._sampling())
            self.rollout.steps.append(step)
            try:
                actions = conversation.reply(generation)
            except ActionError as e:
                actions = []
                step.actions.append(ActionTaken(None, error=str(e)))
            self.under.enter("act")
            screenshot = await self._act(actions, step.actions, until)
            note = next((taken.error for taken in step.actions if taken.error), None)
            ended = any(
                taken.action is not None and taken.action.action_type in ENDS_EPISODE
                for taken in step.actions
            )

    async def grade(self) -> None:
        timing = self.rollout.timing
        self.under.enter("grade")
        at = time.monotonic()
        await self.lease.call(
            "wait_before_eval",
            lambda d: d.wait_before_eval(),
            self.under.deadlines.act + self.under.ready_timeout,
        )
        timing.wait_before_eval_s = time.monotonic() - at
        at = time.monotonic()
        try:
            score = await self.lease.call(
                "evaluate", lambda d: d.evaluate(), self.under.deadlines.evaluate
            )
        finally:
            timing.eval_s = time.monotonic() - at
        self.rollout.score, self.rollout.reward = score, score.reward

    async def _act(
        self, actions: Sequence[AnyAction], taken: list[ActionTaken], until: float | None
    ) -> Screenshot:
        """Perform the actions, then take one screenshot, in a single visit to the thread.

        Past ``until`` nothing more is performed, and a wait that the agent asks for ends then.
        """
        asked = sum(a.seconds for a in actions if isinstance(a, Wait))
        deadline = (
            max(1, len(actions)) * (self.under.deadlines.act + self.under.ready_timeout)
            + asked
            + self.under.deadlines.observe
        )
        timing = self.rollout.timing
        try:
            return await self.lease.call(
                "act", lambda d: self._perform(d, actions, taken, until), deadline
            )
        finally:
            for action in taken:
                timing.act_s += action.act_s
                timing.wait_s += action.wait_s
                timing.obs_s += action.obs_s

    def _sampling(self) -> Sampling:
        """The step's sampling: a run's seed is spread over its attempts and steps."""
        if self.under.sampling.seed is None:
            return self.under.sampling
        return self.under.sampling.with_seed(
            f"{self.under.sampling.seed}/{self.rollout.group_id}/{self.rollout.attempt}"
            f"/{self.rollout.attempt_try}/{len(self.rollout.steps)}"
        )

    def _truncate(self, by: str) -> None:
        self.rollout.status = Status.TRUNCATED
        self.rollout.truncated_by = "time" if by == "time" else "context"

    # --- on the desktop's thread -----------------------------------------------------------------

    def _perform(
        self,
        desktop: Desktop,
        actions: Sequence[AnyAction],
        taken: list[ActionTaken],
        until: float | None,
    ) -> Screenshot:
        for action in actions:
            left = None if until is None else until - time.monotonic()
            if taken and left is not None and left <= 0:
                break
            entry = ActionTaken(action)
            taken.append(entry)
            try:
                check_allowed(self.task, action)
                result = desktop.act(_within(action, left))
            except ActionError as e:
                entry.error = str(e)
                break
            entry.act_s = result.act_s
            entry.wait_s = result.ready.seconds
            entry.ready_s = 0.0 if result.ready.reason == "fixed" else result.ready.seconds
            entry.ready_reason = result.ready.reason
            if action.action_type in ENDS_EPISODE:
                break
        at = time.monotonic()
        screenshot = self._observe(desktop)
        if taken:
            taken[-1].obs_s = time.monotonic() - at
        return screenshot

    def _observe(self, desktop: Desktop) -> Screenshot:
        """A screenshot as the model is to see it, encoded: all the costly work, off the loop."""
        screenshot = desktop.observe()
        if (screenshot.width, screenshot.height) != self.under.screen:
            raise EnvFailure(
                f"desktop {self.lease.slot} sent a {screenshot.width}x{screenshot.height} "
                f"screenshot; {self.under.screen[0]}x{self.under.screen[1]} was asked for"
            )
        view = self.under.harness.view
        return _ENCODERS.submit(lambda: view(screenshot).seal()).result()


def _within(action: AnyAction, left: float | None) -> AnyAction:
    """The action, a wait no longer than the ``left`` seconds of the rollout."""
    if left is None or not isinstance(action, Wait) or action.seconds <= left:
        return action
    return action.model_copy(update={"seconds": max(0.0, left)})


def _loop_time(until: float | None) -> float | None:
    """A ``time.monotonic`` moment on the event loop's own clock."""
    if until is None:
        return None
    return asyncio.get_running_loop().time() + (until - time.monotonic())
