"""The driver: runs groups of attempts on a pool of desktops. Trainers and the CLI both call it.

It knows nothing of files, progress bars or trainers: it is given a pool, a policy and a harness,
tells ``on_rollout`` of every attempt that came to an end and ``observer`` of the phases of those
under way, and returns groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from legato.desktop.contract import Task
from legato.errors import PolicyFailure
from legato.rl.advantage import group_advantages
from legato.rl.group import Group, extra_attempts
from legato.rl.lease import DesktopLease, Desktops
from legato.rl.observer import Observer, Phase, Silent
from legato.rl.rollout import Conditions, Limits, run_attempt
from legato.rl.types import VERDICTS, Harness, Policy, Rollout, Sampling, Status

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How a group is formed; see :mod:`legato.rl.group`."""

    size: int = 4
    oversample: float = 0.0
    """Extra attempts as a fraction of ``size``."""
    env_retries: int = 1
    """Further desktops on which an attempt is tried after a desktop failure."""
    min_group: int = 2
    """Verdicts below which a group has no advantages."""


@dataclass(slots=True)
class GroupResult:
    """A group whose attempts have all come to an end."""

    group_id: str
    task_id: str
    rollouts: list[Rollout]
    """The kept attempts (``ok`` and ``truncated``), by attempt number."""
    rewards: dict[int, float]
    """Verdicts by attempt number, those of an earlier, resumed run included."""
    advantages: dict[int, float]
    """By attempt number; all 0 when the group has fewer than ``min_group`` verdicts."""
    wanted: int
    refills: int
    others: list[Rollout] = field(default_factory=list)
    """Every other try: retried, error, cancelled, skipped, surplus."""

    @property
    def short(self) -> bool:
        return len(self.rewards) < self.wanted


OnRollout = Callable[[Rollout], Awaitable[None]]


class Driver:
    """Runs groups; one driver serves any number of groups at once, on one event loop."""

    def __init__(
        self,
        pool: Desktops,
        policy: Policy,
        harness: Harness,
        *,
        policy_model: str,
        sampling: Sampling,
        limits: Limits,
        groups: GroupOptions,
        on_rollout: OnRollout | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.pool = pool
        self.policy = policy
        self.harness = harness
        self.sampling = sampling
        self.limits = limits
        self.groups = groups
        self._policy_model = policy_model
        self.on_rollout = on_rollout
        self.observer: Observer = observer or Silent()
        self._policy_failures = 0
        self._give_up_after = max(8, 2 * pool.size)

    async def run_group(
        self,
        task: Task,
        group_id: str,
        *,
        priority: Any = 0,
        finished: Iterable[tuple[int, Status, float | None]] = (),
        tries: Mapping[int, int] | None = None,
        size: int | None = None,
        sampling: Sampling | None = None,
    ) -> GroupResult:
        """Run one group to its end.

        ``priority`` orders groups that wait for desktops, lowest first. ``finished`` lists the
        attempts (number, status, reward) of this very group that an earlier run brought to an
        end, ``tries`` what it spent on the others. ``size`` and ``sampling`` override the
        driver's own, for validation runs.

        Raises ``PolicyFailure`` once many attempts in a row, over all groups, died of the model
        server, and ``EnvFailure`` when no desktop can be started any more.
        """
        wanted = self.groups.size if size is None else size
        extra = extra_attempts(wanted, self.groups.oversample) if size is None else 0
        run = _GroupRun(
            self,
            task,
            group_id,
            priority,
            Group(wanted, extra, self.groups.env_retries),
            sampling or self.sampling,
        )
        return await run.run(finished, tries)

    async def ended(self, rollout: Rollout) -> None:
        """Tell the observer of one more try, and watch for a model server that is gone."""
        if self.on_rollout is not None:
            await self.on_rollout(rollout)
        if rollout.error_kind == "policy":
            self._policy_failures += 1
        elif rollout.status in VERDICTS:
            self._policy_failures = 0
        if self._policy_failures >= self._give_up_after:
            raise PolicyFailure(
                f"{self._policy_failures} rollouts in a row were lost to the model server; "
                f"the last one said: {rollout.error}",
                transient=False,
            )


class _GroupRun:
    def __init__(
        self,
        driver: Driver,
        task: Task,
        group_id: str,
        priority: Any,
        group: Group,
        sampling: Sampling,
    ) -> None:
        self.driver = driver
        self.task = task
        self.group_id = group_id
        self.priority = priority
        self.group = group
        self.sampling = sampling
        self.attempts: dict[asyncio.Task[None], Rollout] = {}
        self.leased: set[str] = set()
        self.grading: set[str] = set()
        self.kept: list[Rollout] = []
        self.others: list[Rollout] = []

    async def run(
        self, finished: Iterable[tuple[int, Status, float | None]], tries: Mapping[int, int] | None
    ) -> GroupResult:
        try:
            for attempt in self.group.begin(finished, tries):
                self._start(attempt)
            while self.attempts:
                done, _ = await asyncio.wait(self.attempts, return_when=asyncio.FIRST_COMPLETED)
                for attempt_task in done:
                    await self._ended(attempt_task, self.attempts.pop(attempt_task))
        finally:
            await self._stop_all()
        return self._result()

    def _start(self, attempt: int) -> None:
        number = self.group.try_number(attempt)
        suffix = f".{number}" if number else ""
        rollout = Rollout(
            rollout_id=f"{self.group_id}/{attempt}{suffix}",
            task_id=self.task.task_id,
            domain=self.task.domain,
            group_id=self.group_id,
            attempt=attempt,
            attempt_try=number,
            policy_model=self.driver._policy_model,
            policy_version="",
            status=Status.SKIPPED,
            harness=self.driver.harness.name,
            seed=self.sampling.seed,
        )
        coroutine = self._attempt(rollout)
        self.attempts[asyncio.create_task(coroutine, name=rollout.rollout_id)] = rollout

    async def _attempt(self, rollout: Rollout) -> None:
        driver = self.driver
        lease: DesktopLease = await driver.pool.lease(self.priority)
        self.leased.add(rollout.rollout_id)
        try:
            await run_attempt(
                rollout,
                self.task,
                lease,
                Conditions(
                    policy=driver.policy,
                    harness=driver.harness,
                    sampling=self.sampling,
                    limits=driver.limits,
                    deadlines=driver.pool.deadlines,
                    ready_timeout=driver.pool.options.ready_timeout,
                    screen=(driver.pool.options.width, driver.pool.options.height),
                    enter=lambda phase: self._entered(rollout, phase),
                ),
            )
        finally:
            lease.release()
            driver.observer.phase_began(rollout, "ended")

    def _entered(self, rollout: Rollout, phase: Phase) -> None:
        if phase == "grade":
            self.grading.add(rollout.rollout_id)
        self.driver.observer.phase_began(rollout, phase)

    async def _ended(self, attempt_task: asyncio.Task[None], rollout: Rollout) -> None:
        if attempt_task.cancelled():
            started = rollout.rollout_id in self.leased
            ended = self.group.stopped(rollout.attempt, started=started)
        else:
            attempt_task.result()  # a pool without desktops, or a bug: ends the group
            if rollout.error_kind is not None:
                ended = self.group.failure(rollout.attempt, rollout.error_kind)
            else:
                assert rollout.reward is not None
                ended = self.group.verdict(rollout.attempt, rollout.status, rollout.reward)
        rollout.status = ended.status
        if rollout.steps:
            rollout.policy_version = rollout.steps[0].generation.version
        (self.kept if rollout.status in VERDICTS else self.others).append(rollout)
        for attempt in ended.start:
            self._start(attempt)
        if self.group.closed:
            self._cancel_stragglers()
        await self.driver.ended(rollout)

    def _cancel_stragglers(self) -> None:
        for attempt_task, rollout in self.attempts.items():
            if rollout.rollout_id not in self.grading:
                attempt_task.cancel()

    async def _stop_all(self) -> None:
        """On the way out by an error or a cancellation: nothing of the group keeps running.

        A verdict that waited for an earlier one to be written is told all the same.
        """
        for attempt_task in self.attempts:
            attempt_task.cancel()
        await asyncio.gather(*self.attempts, return_exceptions=True)
        stopped, self.attempts = self.attempts, {}
        for attempt_task, rollout in stopped.items():
            if attempt_task.cancelled() or attempt_task.exception() is not None:
                continue
            if rollout.error_kind is None:
                await self._ended(attempt_task, rollout)

    def _result(self) -> GroupResult:
        group = self.group
        if len(group.rewards) < group.size:
            log.warning(
                "group %s is short: %d of %d verdicts%s",
                self.group_id,
                len(group.rewards),
                group.size,
                ""
                if len(group.rewards) >= self.driver.groups.min_group
                else ", too few for advantages",
            )
        return GroupResult(
            group_id=self.group_id,
            task_id=self.task.task_id,
            rollouts=sorted(self.kept, key=lambda r: r.attempt),
            rewards=dict(group.rewards),
            advantages=group_advantages(group.rewards, min_group=self.driver.groups.min_group),
            wanted=group.size,
            refills=group.refills,
            others=self.others,
        )
