"""Collect one batch: every task a group, every attempt a record in the run directory.

Everything that can be wrong with the request is found before a desktop or a file exists. After
that the order of teardown is fixed: attempts stop, desktops close, the log closes, and whatever
ended until then is in the record.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from legato.desktop.contract import Task
from legato.desktop.osworld.catalogue import is_infeasible

# Nothing here uses it; this is where its users import it from.
from legato.desktop.osworld.desktop import OSWorldDesktop as OSWorldDesktop
from legato.errors import ConfigError, LegatoError, StorageError
from legato.rl.board import Board
from legato.rl.config import DesktopConfig, HarnessConfig, RolloutConfig, SamplingConfig
from legato.rl.driver import Driver, GroupOptions, OnRollout
from legato.rl.group import Group, extra_attempts
from legato.rl.harness import make_harness
from legato.rl.harness.osworld import OSWorldAgents
from legato.rl.interrupt import before_hard_exit, interruptible
from legato.rl.manifest import Manifest
from legato.rl.observer import Observer, Several, Silent
from legato.rl.policy import KEY_VARIABLE, HttpPolicy, PolicyConfig, tokenizer_for
from legato.rl.pool import Pool
from legato.rl.publish import published, withdraw
from legato.rl.record import RunDir
from legato.rl.rollout import Limits
from legato.rl.settings import Settings
from legato.rl.summary import Summary, summarise
from legato.rl.types import Harness, Policy, Rollout, Sampling, Status, Tokenizer
from legato.rl.worker import Worker
from legato.tasks import load_tasks, parse_tasks

Tasks = str | Path | Sequence[Mapping[str, Any]] | Sequence[Task]

WRITE_DEADLINE_S = 300.0
"""Longest that one record may wait for the disk, behind others."""


def collect(
    tasks: Tasks,
    policy: PolicyConfig,
    *,
    out: str | Path,
    desktops: int = 4,
    group: int = 4,
    oversample: float = 0.0,
    max_steps: int = 15,
    max_inflight: int | None = None,
    rollout_timeout: float | None = None,
    env_retries: int = 1,
    min_group: int = 2,
    seed: int | None = None,
    infeasible: bool = True,
    harness: HarnessConfig | str = "qwen3_5",
    sampling: SamplingConfig | None = None,
    desktop: DesktopConfig | None = None,
    observer: Observer | None = None,
) -> Summary:
    """Run one group of attempts per task, write them to ``out`` and return the summary.

    ``tasks`` is a tasks.json path, its entries, or tasks already loaded. An existing ``out`` is
    resumed: attempts that came to an end are neither repeated nor counted twice.

    Raises ``ConfigError`` before anything starts when the request cannot be served,
    ``PolicyFailure`` or ``EnvFailure`` when the model server or every desktop is lost on the way;
    what finished until then is in ``out``.
    """
    if max_inflight is not None:
        policy = replace(policy, max_inflight=max_inflight)
    settings = Settings(
        policy=policy,
        sampling=sampling or SamplingConfig(),
        desktop=desktop or DesktopConfig(),
        harness=HarnessConfig(harness) if isinstance(harness, str) else harness,
        rollout=RolloutConfig(
            desktops=desktops,
            group=group,
            oversample=oversample,
            max_steps=max_steps,
            rollout_timeout=rollout_timeout,
            env_retries=env_retries,
            min_group=min_group,
            seed=seed,
            infeasible=infeasible,
        ),
    )
    return run_collect(tasks, settings, out=out, observer=observer)


def run_collect(
    tasks: Tasks, settings: Settings, *, out: str | Path, observer: Observer | None = None
) -> Summary:
    """:func:`collect` with everything decided in ``settings``.

    Ctrl-C (and SIGTERM) once stops the attempts, finishes writing and closes the desktops; twice
    kills the desktops and ends the process at once.
    """
    return asyncio.run(interruptible(collect_async(tasks, settings, out=out, observer=observer)))


async def collect_async(
    tasks: Tasks, settings: Settings, *, out: str | Path, observer: Observer | None = None
) -> Summary:
    """:func:`run_collect` on a running event loop. Cancelling it stops the batch cleanly."""
    board = Board()
    watch = Several(board, observer or Silent())
    run_dir = Path(out)
    batch = _check(tasks, settings)
    policy = HttpPolicy(settings.policy, tokenizer=batch.tokenizer)
    try:
        # A new directory must not pin settings that the server then turns out not to serve.
        greeted = not (run_dir / "run.json").exists()
        if greeted:
            await greet(policy)
        run = RunDir.create_or_resume(run_dir, manifest(batch.tasks, settings))
        writer = Worker("record-writer")

        async def keep(rollout: Rollout) -> None:
            await writer.call(lambda: run.append(rollout), WRITE_DEADLINE_S)
            watch.rollout_ended(rollout)

        try:
            if plans := _plan(batch.tasks, run, settings.rollout, watch):
                if not greeted:
                    await greet(policy)
                with before_hard_exit(lambda: withdraw(run_dir)):
                    async with (
                        published(board, run_dir),
                        open_driver(batch, settings, policy, keep, watch) as driver,
                    ):
                        await _run_groups(driver, plans, watch)
        finally:
            await writer.idle(WRITE_DEADLINE_S)
            writer.stop()
            run.close()
            summary = summarise(run_dir)
            summary.write(run_dir)
        return summary
    finally:
        await policy.aclose()


@dataclass(frozen=True, slots=True)
class Batch:
    """A checked request: nothing in it can fail for a reason known beforehand."""

    tasks: list[Task]
    tokenizer: Tokenizer | None
    sampling: Sampling


def _check(tasks: Tasks, settings: Settings) -> Batch:
    # Made and thrown away: what this machine or these options lack is told before anything starts.
    settings.desktop.factory()(settings.desktop.desktop_options(), 0).close()
    loaded = load(tasks, settings.desktop, infeasible=settings.rollout.infeasible)
    tokenizer = tokenizer_for(settings.policy)
    _harness(settings, tokenizer)
    return Batch(loaded, tokenizer, resolve_sampling(settings, tokenizer))


@contextlib.asynccontextmanager
async def open_driver(
    batch: Batch,
    settings: Settings,
    policy: Policy,
    on_rollout: OnRollout | None = None,
    observer: Observer | None = None,
) -> AsyncIterator[Driver]:
    """A driver whose desktops are booting; they are closed on the way out."""
    rollout = settings.rollout
    pool = Pool(
        settings.desktop.factory(),
        settings.desktop.desktop_options(),
        size=rollout.desktops,
        standby=settings.desktop.standby,
    )
    with before_hard_exit(pool.kill_all):  # also while the desktops are being closed
        async with pool:
            yield Driver(
                pool,
                policy,
                _harness(settings, batch.tokenizer),
                policy_model=settings.policy.model,
                sampling=batch.sampling,
                limits=Limits(rollout.max_steps, rollout.rollout_timeout),
                groups=GroupOptions(
                    rollout.group, rollout.oversample, rollout.env_retries, rollout.min_group
                ),
                on_rollout=on_rollout,
                observer=observer,
            )


async def greet(policy: HttpPolicy) -> None:
    """Find out in one request that the server is up, takes the key and serves the model.

    Raises ``ConfigError`` or ``PolicyFailure``. A server that lists no models is believed.
    """
    answer = await policy.get(f"{policy.config.url}/models")
    if answer.status_code in (401, 403):
        raise ConfigError(
            f"the model server refused the key (HTTP {answer.status_code}): set {KEY_VARIABLE}"
        )
    if 300 <= answer.status_code < 400:
        raise ConfigError(
            f"{policy.config.url} answers with a redirect (HTTP {answer.status_code}): give the "
            "final address as the policy url"
        )
    try:
        served = [str(model["id"]) for model in answer.json()["data"]]
    except (ValueError, LookupError, TypeError):
        return
    if served and policy.config.model not in served:
        raise ConfigError(
            f"the server does not serve {policy.config.model!r}; it serves {', '.join(served)}"
        )


def load(tasks: Tasks, desktop: DesktopConfig, *, infeasible: bool = True) -> list[Task]:
    """Load and check tasks against the backend they will run on. Raises ``ConfigError``.

    ``infeasible`` as in :class:`~legato.rl.config.RolloutConfig`.
    """
    loaded = _load(tasks, desktop)
    kept = [task for task in loaded if infeasible or not is_infeasible(task.config)]
    if loaded and not kept:
        raise ConfigError("all tasks are infeasible ones, which infeasible=false leaves out")
    return kept


def _load(tasks: Tasks, desktop: DesktopConfig) -> list[Task]:
    backend = desktop.backend_name
    checkout = Path(desktop.osworld_path).expanduser() if desktop.osworld_path else None
    environment = desktop.options.get("environment") if backend == "osworld" else None
    where = Path(environment).expanduser() if environment else None
    if isinstance(tasks, str | Path):
        return load_tasks(tasks, backend=backend, osworld_path=checkout, environment=where)
    entries = [task for task in tasks if isinstance(task, Mapping)]
    if entries or not tasks:
        return parse_tasks(entries, backend=backend, osworld_path=checkout, environment=where)
    return [task for task in tasks if not isinstance(task, Mapping)]


def resolve_sampling(settings: Settings, tokenizer: Tokenizer | None = None) -> Sampling:
    """The sampling to send: banned tokens as ids of the policy's own tokenizer."""
    chosen = settings.sampling
    tokenizer = tokenizer or tokenizer_for(settings.policy)
    banned = set(chosen.banned_ids)
    if tokenizer is not None:
        found = (tokenizer.special(token) for token in chosen.banned_tokens)
        banned.update(token_id for token_id in found if token_id is not None)
    return Sampling(
        temperature=chosen.temperature,
        top_p=chosen.top_p,
        top_k=chosen.top_k,
        max_tokens=chosen.max_tokens,
        banned_ids=tuple(sorted(banned)),
        seed=settings.rollout.seed,
    )


def manifest(tasks: Sequence[Task], settings: Settings) -> Manifest:
    """What a run directory says of its batch; the policy's key is no part of it."""
    policy, desktop, rollout = settings.policy, settings.desktop, settings.rollout
    return Manifest(
        tasks=[
            {
                "task_id": task.task_id,
                "domain": task.domain,
                "instruction": task.instruction,
                "config": dict(task.config),
            }
            for task in tasks
        ],
        group=rollout.group,
        min_group=rollout.min_group,
        settings={
            "policy": {"model": policy.model, "version": policy.version, "api": policy.api},
            "sampling": asdict(settings.sampling),
            "harness": asdict(settings.harness),
            "desktop": {
                "backend": desktop.backend_name,
                "width": desktop.screen[0],
                "height": desktop.screen[1],
                "ready_signal": desktop.ready_signal,
                "fixed_wait": desktop.fixed_wait,
                "options": dict(desktop.options),
            },
            "max_steps": rollout.max_steps,
            "rollout_timeout": rollout.rollout_timeout,
            "oversample": rollout.oversample,
            "seed": rollout.seed,
        },
        session={
            "url": policy.url,
            "tokenizer": policy.tokenizer,
            "step_timeout": policy.step_timeout,
            "retries": policy.retries,
            "max_inflight": policy.max_inflight,
            "desktops": rollout.desktops,
            "env_retries": rollout.env_retries,
            "fast_reset": desktop.fast_reset,
            "standby": desktop.standby,
            "ready_timeout": desktop.ready_timeout,
        },
    )


def _harness(settings: Settings, tokenizer: Tokenizer | None) -> Harness:
    options = dict(settings.harness.options)
    if settings.harness.name == OSWorldAgents.name and settings.desktop.osworld_path:
        options.setdefault("osworld_path", settings.desktop.osworld_path)
    return make_harness(
        settings.harness.name,
        tokenizer=tokenizer,
        image_max=settings.harness.image_max,
        **options,
    )


@dataclass(frozen=True, slots=True)
class _OpenGroup:
    """A group with attempts to run, and what an earlier run left of it."""

    task: Task
    finished: list[tuple[int, Status, float | None]]
    tries: dict[int, int]


def _plan(
    tasks: Sequence[Task], run: RunDir, rollout: RolloutConfig, watch: Observer
) -> list[_OpenGroup]:
    plans = {task.task_id: _OpenGroup(task, [], {}) for task in tasks}
    if strange := sorted({group_id for group_id, _ in run.tries} - plans.keys()):
        raise StorageError(
            f"{run.path}/rollouts.jsonl holds attempts of {strange[0]!r}, which is no task of this "
            "run; move those lines out of the file to go on"
        )
    for (group_id, number), end in run.finished.items():
        plans[group_id].finished.append((number, end.status, end.reward))
    for (group_id, number), count in run.tries.items():
        plans[group_id].tries[number] = count
    todo: list[_OpenGroup] = []
    done = 0
    for plan in plans.values():
        group = Group(rollout.group, extra_attempts(rollout.group, rollout.oversample))
        if group.begin(plan.finished, plan.tries):
            todo.append(plan)
        done += len(group.rewards)
    watch.batch_started(len(todo), rollout.group * len(tasks), done)
    return todo


async def _run_groups(driver: Driver, plans: Sequence[_OpenGroup], watch: Observer) -> None:
    async def one(number: int, plan: _OpenGroup) -> None:
        result = await driver.run_group(
            plan.task,
            plan.task.task_id,
            priority=number,
            finished=plan.finished,
            tries=plan.tries,
        )
        watch.group_ended(result)

    try:
        async with asyncio.TaskGroup() as groups:
            for number, plan in enumerate(plans):
                groups.create_task(one(number, plan))
    except* LegatoError as failures:
        raise failures.exceptions[0] from None
