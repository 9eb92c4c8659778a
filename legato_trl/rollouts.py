"""Runs groups for a trainer: one driver on an event loop of its own thread.

A trainer is synchronous and owns the main thread; desktops, policy and record live on the loop
from the first step to the last, so that clean desktops wait when the next step begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from legato.desktop.contract import Task
from legato.errors import LegatoError, PolicyFailure
from legato.rl.board import Board
from legato.rl.collect import WRITE_DEADLINE_S, Batch, manifest, open_driver
from legato.rl.driver import Driver, GroupResult
from legato.rl.manifest import Manifest
from legato.rl.policy import HttpPolicy
from legato.rl.publish import published
from legato.rl.record import RunDir
from legato.rl.settings import Settings
from legato.rl.types import Policy, Rollout, Sampling, Tokenizer
from legato.rl.worker import Worker

T = TypeVar("T")
Mode = Literal["train", "eval"]

OPEN_S = 120.0
"""Deadline for the loop to have its driver; desktops go on booting after that."""
CLOSE_S = 120.0
POLL_S = 0.005
"""How often a caller who serves the policy itself is let at it."""


@dataclass(slots=True)
class BatchResult:
    """What became of the groups asked for."""

    groups: list[GroupResult | None]
    """In the order asked; ``None`` where the model server was lost first."""
    lost: PolicyFailure | None = None
    """The model server was lost on the way; what it took along may be asked for again."""
    seconds: float = 0.0

    @property
    def rollouts(self) -> list[Rollout]:
        """The kept ones, ``ok`` and ``truncated``."""
        return [rollout for group in self.groups if group for rollout in group.rollouts]

    @property
    def tries(self) -> list[Rollout]:
        """Every try, whatever became of it."""
        return [r for group in self.groups if group for r in (*group.rollouts, *group.others)]


class Rollouts:
    """``with Rollouts(...) as rollouts: rollouts.run(tasks)``; calls block the caller's thread."""

    def __init__(
        self,
        settings: Settings,
        tokenizer: Tokenizer | None,
        sampling: Sampling,
        record_dir: Path,
        policy: Callable[[], Policy] | None = None,
        board: Board | None = None,
    ) -> None:
        """``board`` is told of what happens; one that is a context manager is shown meanwhile.

        ``policy`` makes the policy on the loop; by default the server of ``settings``.

        Rollouts are recorded below ``record_dir``, those of evaluations beside it, in
        ``<record_dir>-eval``: they are not trained on.
        """
        self._settings = settings
        self._batch = Batch([], tokenizer, sampling)
        self.places: dict[Mode, Path] = {
            "train": record_dir,
            "eval": record_dir.with_name(f"{record_dir.name}-eval"),
        }
        self._make_policy = policy or (lambda: HttpPolicy(settings.policy, tokenizer=tokenizer))
        self._runs: dict[Mode, RunDir] = {}
        self._mode: Mode = "train"
        self._taken: dict[Mode, set[str]] = {}
        self.board = board or Board()
        self.version = "0"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stack = AsyncExitStack()
        self._policy: Policy | None = None

    def __enter__(self) -> Rollouts:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Start the loop, the record and the desktops. Idempotent.

        Raises :class:`~legato.errors.ConfigError` if the record directory holds something else.
        """
        if self._loop is not None:
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="legato-rollouts", daemon=True
        )
        self._thread.start()
        try:
            self._call(self._open(), OPEN_S)
        except BaseException:
            self.close()
            raise

    def run(
        self,
        tasks: Sequence[Task],
        *,
        mode: Mode = "train",
        size: int | None = None,
        sampling: Sampling | None = None,
        waiting: Callable[[], object] | None = None,
    ) -> BatchResult:
        """Run one group per task and return when all have come to their end.

        ``size`` replaces the group size of the settings. ``waiting`` is called from the caller's
        thread until then, again and again: a policy that the caller serves.
        """
        return self._call(self._run(tasks, mode, size, sampling), None, waiting)

    def set_version(self, version: str) -> None:
        """Name the weights that sample from now on; they are noted with every step."""
        self.version = version
        set_version = getattr(self._policy, "set_version", None)
        if set_version is not None:
            set_version(version)

    def close(self) -> None:
        """Stop what runs, close the desktops, finish the record. Idempotent."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        closing = asyncio.run_coroutine_threadsafe(self._stack.aclose(), loop)
        try:
            closing.result(CLOSE_S)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            assert self._thread is not None
            self._thread.join(5.0)

    def _call(
        self,
        work: Coroutine[Any, Any, T],
        deadline: float | None,
        waiting: Callable[[], object] | None = None,
    ) -> T:
        assert self._loop is not None, "open() first"
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while waiting is not None and not future.done():
                waiting()
                with contextlib.suppress(TimeoutError):
                    future.exception(POLL_S)
            return future.result(deadline)
        except BaseException:
            # Ctrl-C, too: attempts are stopped, and what ended until then is in the record.
            future.cancel()
            raise

    # --- on the loop -----------------------------------------------------------------------------

    async def _open(self) -> None:
        stack = self._stack
        self._writer = Worker("record-writer")
        stack.callback(self._writer.stop)
        stack.callback(self._close_runs)
        stack.push_async_callback(self._writer.idle, WRITE_DEADLINE_S)
        self._record("train")
        stack.enter_context(self.board)
        self._policy = self._make_policy()
        stack.push_async_callback(self._policy.aclose)
        await stack.enter_async_context(published(self.board, self.places["train"]))
        self._driver: Driver = await stack.enter_async_context(
            open_driver(self._batch, self._settings, self._policy, self._keep, self.board)
        )

    def _record(self, mode: Mode) -> None:
        if mode not in self._runs:
            run = RunDir.create_or_resume(self.places[mode], _manifest(self._settings, mode))
            self._runs[mode] = run
            self._taken[mode] = {group for group, _ in run.tries}

    def _close_runs(self) -> None:
        for run in self._runs.values():
            run.close()

    async def _keep(self, rollout: Rollout) -> None:
        run = self._runs[self._mode]
        await self._writer.call(lambda: run.append(rollout), WRITE_DEADLINE_S)
        self.board.rollout_ended(rollout)

    async def _run(
        self, tasks: Sequence[Task], mode: Mode, size: int | None, sampling: Sampling | None
    ) -> BatchResult:
        self._record(mode)
        self._mode = mode
        started = time.monotonic()
        result = BatchResult([None] * len(tasks))
        self.board.batch_started(len(tasks), len(tasks) * (size or self._settings.rollout.group), 0)

        async def one(number: int, task: Task) -> None:
            group = await self._driver.run_group(
                task, self._group_id(mode, task), priority=number, size=size, sampling=sampling
            )
            self.board.group_ended(group)
            lost = next((r for r in group.others if r.error_kind == "policy"), None)
            if lost is not None and len(group.rewards) < min(group.wanted, self._least):
                result.lost = PolicyFailure(lost.error or "the model server was lost")
            else:
                result.groups[number] = group

        try:
            async with asyncio.TaskGroup() as groups:
                for number, task in enumerate(tasks):
                    groups.create_task(one(number, task))
        except* PolicyFailure as failures:
            result.lost = _first(failures)
        except* LegatoError as failures:
            raise _first(failures) from None
        result.seconds = time.monotonic() - started
        return result

    @property
    def _least(self) -> int:
        return self._settings.rollout.min_group

    def _group_id(self, mode: Mode, task: Task) -> str:
        """Version and task; numbered where a step is repeated, or a resumed run goes over it."""
        name = base = f"{self.version}/{task.task_id}"
        again = 0
        while name in self._taken[mode]:
            again += 1
            name = f"{base}~{again}"
        self._taken[mode].add(name)
        return name


def _manifest(settings: Settings, mode: Mode) -> Manifest:
    """Tasks stream in and versions move on, so that neither can be part of it."""
    whole = manifest([], settings)
    policy = {k: v for k, v in whole.settings["policy"].items() if k != "version"}
    return replace(
        whole,
        group=whole.group if mode == "train" else None,
        settings={**whole.settings, "policy": policy},
    )


def _first(group: BaseExceptionGroup[Any]) -> Any:
    return group.exceptions[0]
