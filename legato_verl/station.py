"""One agent-loop worker's driver: groups of attempts on the cluster's desktops."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import ray

from legato.desktop.contract import Task
from legato.errors import ConfigError
from legato.rl.board import Board
from legato.rl.driver import Driver, GroupResult
from legato.rl.harness import make_harness
from legato.rl.images import ImageSpec
from legato.rl.samples import Vision
from legato.rl.tokens import HFTokenizer, load_tokenizer
from legato.rl.types import Rollout
from legato_verl.desktops import ClusterDesktops
from legato_verl.policy import VerlPolicy
from legato_verl.pool import Offer, pool_actor
from legato_verl.recorder import GroupNews, Mode, recorder_actor
from legato_verl.settings import Settings
from legato_verl.tasks import read_task

IMAGE_TOKEN = "<|image_pad|>"
PLACEHOLDERS = (IMAGE_TOKEN, "<|video_pad|>")
"""verl's vLLM server never samples these."""


class Station:
    """Belongs to the event loop of one Ray actor, which must have a ``stay`` method, and the
    ``look`` and ``picture`` of :attr:`board`."""

    def __init__(self, settings: Settings, client: Any, checkpoint: str) -> None:
        self.settings = settings
        self.board = Board()
        """What this worker's desktops are doing."""
        tokenizer = load_tokenizer(checkpoint)
        self.vision = vision_of(checkpoint, tokenizer)
        found = (tokenizer.special(token) for token in PLACEHOLDERS)
        self._banned = tuple(token_id for token_id in found if token_id is not None)
        self._policy = VerlPolicy(
            client,
            tokenizer,
            self.vision,
            settings.lengths,
            step_timeout=settings.step_timeout,
            max_inflight=settings.max_inflight,
        )
        self._harness = make_harness(
            settings.harness.name,
            tokenizer=tokenizer,
            image_max=settings.harness.image_max,
            **settings.harness.options,
        )
        self._recorder = recorder_actor(settings)
        self._modes: dict[str, Mode] = {}
        self._opening: asyncio.Task[None] | None = None

    async def run_group(
        self, text: str, version: int, asked: Mapping[str, Any], *, mode: Mode, size: int
    ) -> GroupResult:
        """Run one group of ``size`` on the task of a row's text.

        ``asked`` are verl's sampling parameters. Only training groups of the usual size are
        oversampled. Raises :class:`~legato.errors.Failure` when no run can go on like this.
        """
        await self._open()
        task = self.task(text)
        group_id: str = await self._recorder.begin_group.remote(mode, str(version), task.task_id)
        self._modes[group_id] = mode
        usual = mode == "train" and size == self.settings.rollout.group
        try:
            return await self._driver.run_group(
                task,
                group_id,
                priority=version,
                size=None if usual else size,
                sampling=self.settings.sampling(asked, self._banned),
            )
        finally:
            del self._modes[group_id]

    def task(self, text: str) -> Task:
        desktop = self.settings.desktop
        return read_task(
            text,
            backend=desktop.backend_name,
            osworld_path=desktop.osworld_path,
            environment=desktop.options.get("environment"),
        )

    async def group_ended(self, uid: str, result: GroupResult, rows: int, *, mode: Mode) -> None:
        """Tell the recorder, before the trainer can ask."""
        news = GroupNews(
            uid,
            result.group_id,
            result.task_id,
            result.rewards,
            result.advantages,
            result.wanted,
            result.refills,
            rows,
        )
        await self._recorder.group_ended.remote(mode, news)

    async def settled(self, uid: str) -> None:
        await self._recorder.settled.remote(uid)

    async def give_up(self, why: str) -> None:
        """End the run, for a reason that no retry mends."""
        await self._recorder.give_up.remote(why)

    async def _open(self) -> None:
        if self._opening is None:
            self._opening = asyncio.create_task(self._connect())
        await asyncio.shield(self._opening)

    async def _connect(self) -> None:
        settings = self.settings
        pool = pool_actor()
        owner = f"worker-{uuid.uuid4().hex[:8]}"
        worker = ray.get_runtime_context().current_actor
        await pool.enrol.remote(owner, worker)
        await self._recorder.enrol.remote(owner, worker)
        offer: Offer = await pool.open.remote(settings.desktop, settings.rollout.desktops)
        self._driver = Driver(
            ClusterDesktops(pool, owner, settings.desktop, offer),
            self._policy,
            self._harness,
            policy_model=settings.model,
            sampling=settings.sampling(
                {"temperature": 1.0, "top_p": 1.0, "top_k": -1}, self._banned
            ),
            limits=settings.limits,
            groups=settings.groups,
            on_rollout=self._keep,
            observer=self.board,
        )

    async def _keep(self, rollout: Rollout) -> None:
        await self._recorder.record.remote(self._modes[rollout.group_id], rollout)


def vision_of(checkpoint: str, tokenizer: HFTokenizer) -> Vision:
    """How screenshots become tokens. Raises :class:`~legato.errors.ConfigError`."""
    token = tokenizer.special(IMAGE_TOKEN)
    if token is None:
        raise ConfigError(f"actor_rollout_ref.model.path: {checkpoint!r} has no {IMAGE_TOKEN}")
    return Vision(token, ImageSpec.load(checkpoint))
