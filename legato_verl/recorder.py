"""The run directory's one writer, a named Ray actor beside the trainer.

Workers tell it of every try as it ends, as the record wants it, and of every group; the trainer
asks it for the figures of the groups it trained on. It shows the run to whoever looks while it goes
on, and carries the news that it cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import ray
from PIL import Image
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from legato.rl.driver import GroupResult
from legato.rl.figures import effort, outcome
from legato.rl.publish import published
from legato.rl.record import RunDir
from legato.rl.types import VERDICTS, Prompt, Rollout
from legato.rl.worker import Worker
from legato.view.gaps import Gap, note_gaps
from legato.view.sheet import make_sheet
from legato.view.strip import Strip, strip_of
from legato.view.trackers import ROLLOUTS
from legato_verl.board import ClusterBoard
from legato_verl.settings import Settings

NAME = "legato-recorder"
CONCURRENCY = 10_000
WRITE_S = 300.0
"""Longest that one record may wait for the disk, behind others."""
EMPTY_IN_A_ROW = 16
"""Groups without a row, one after another, upon which a run is given up."""
UNTOLD = 4096
"""Groups kept until the trainer asks for them; of some, gone stale, it never does."""

Mode = Literal["train", "val"]


@dataclass(frozen=True, slots=True)
class GroupNews:
    """What became of a group, rollouts apart."""

    uid: str
    """verl's."""
    group_id: str
    task_id: str
    rewards: dict[int, float]
    advantages: dict[int, float]
    wanted: int
    refills: int
    rows: int


@dataclass(slots=True)
class _Group:
    result: GroupResult
    rows: int


@dataclass(slots=True)
class _Run:
    directory: RunDir
    taken: set[str] = field(default_factory=set)


class Recorder:
    """Body of the actor."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._writer = Worker("record-writer")
        self._runs: dict[Mode, _Run] = {}
        self._tries: dict[str, list[Rollout]] = {}
        self._groups: dict[str, _Group] = {}
        self._done: set[str] = set()
        self._empty = 0
        self._board = ClusterBoard()
        self._shown = contextlib.AsyncExitStack()
        self._latest: deque[Strip] = deque(maxlen=ROLLOUTS if settings.sheet_steps else 0)
        self._fatal: asyncio.Future[str] | None = None

    async def open(self) -> None:
        """Create the run directory, or go on with that of an earlier run.

        Raises :class:`~legato.errors.ConfigError` if it holds something else.
        """
        run = self._run("train")
        await self._shown.enter_async_context(published(self._board, run.directory.path))

    async def enrol(self, name: str, worker: Any) -> None:
        """Show the desktops of this worker, an actor."""
        self._board.enrol(name, worker)

    async def more_groups(self, title: str, groups: int, verdicts: int) -> None:
        """Groups are about to start, ``verdicts`` wanted of them all."""
        self._board.more_groups(title, groups, verdicts)

    async def look(self) -> dict[str, Any]:
        """The state of the run's board; see :meth:`legato.rl.board.Board.state`."""
        return await self._board.look()

    async def sheet(self) -> Image.Image | None:
        """A contact sheet of the latest training rollouts; ``None`` while there is none."""
        strips = list(self._latest)
        return await self._writer.call(lambda: make_sheet(strips), WRITE_S) if strips else None

    async def note_gaps(self, gaps: Mapping[str, Sequence[Gap]]) -> None:
        """Keep how far the trainer's logprobs were from the server's, by rollout id."""
        place = self._run("train").directory.path
        await self._writer.call(lambda: note_gaps(place, gaps), WRITE_S)

    async def begin_group(self, mode: Mode, version: str, task_id: str) -> str:
        """A name for one more group: version and task, numbered where a step is repeated."""
        run = self._run(mode)
        name = base = f"{version}/{task_id}"
        again = 0
        while name in run.taken:
            again += 1
            name = f"{base}~{again}"
        run.taken.add(name)
        return name

    async def record(self, mode: Mode, rollout: Rollout) -> None:
        """Write one try; it is on disk when this returns."""
        run = self._run(mode)
        await self._writer.call(lambda: run.directory.append(rollout), WRITE_S)
        self._board.rollout_ended(rollout)
        if mode == "train" and rollout.status in VERDICTS and rollout.steps and self._latest.maxlen:
            self._latest.append(strip_of(rollout, self._settings.desktop.screen))
        self._tries.setdefault(rollout.group_id, []).append(_lean(rollout))

    async def group_ended(self, mode: Mode, news: GroupNews) -> None:
        tries = self._tries.pop(news.group_id, [])
        kept = [r for r in tries if r.attempt in news.rewards and r.status in ("ok", "truncated")]
        result = GroupResult(
            group_id=news.group_id,
            task_id=news.task_id,
            rollouts=kept,
            rewards=news.rewards,
            advantages=news.advantages,
            wanted=news.wanted,
            refills=news.refills,
            others=[r for r in tries if not any(r is k for k in kept)],
        )
        self._board.group_ended(result)
        if mode == "train":
            self._groups[news.uid] = _Group(result, news.rows)
            while len(self._groups) > UNTOLD:
                self._groups.pop(next(iter(self._groups)))
            self._empty = 0 if news.rows else self._empty + 1
            if self._empty >= EMPTY_IN_A_ROW:
                said = next((r.error for r in tries if r.error), None)
                await self.give_up(
                    f"{self._empty} groups in a row came to no row to train on; "
                    + (f"the last failure said: {said}" if said else _too_long(self._settings))
                )

    async def settled(self, uid: str) -> None:
        """The group's rows, if any, are where the trainer finds them."""
        self._done.add(uid)

    async def unsettled(self, uids: Sequence[str]) -> list[str]:
        """Those of ``uids`` that a worker still has to bring to an end."""
        return [uid for uid in uids if uid not in self._done]

    async def figures(self, uids: Sequence[str]) -> dict[str, float]:
        """Of these groups, and of those that came to nothing meanwhile; each is told once."""
        chosen = [uid for uid in uids if uid in self._groups]
        chosen += [uid for uid, group in self._groups.items() if not group.rows]
        groups = [self._groups.pop(uid) for uid in dict.fromkeys(chosen)]
        results = [group.result for group in groups]
        tries = [r for result in results for r in (*result.rollouts, *result.others)]
        told = dict([*outcome(results), *effort(tries)])
        kept = sum(len(result.rollouts) for result in results)
        told["rows/per_rollout"] = sum(group.rows for group in groups) / kept if kept else 0.0
        told["rollout/empty_groups"] = sum(not group.rows for group in groups)
        told["rollout/too_long"] = sum(r.truncated_by == "context" for r in tries)
        return told

    async def give_up(self, why: str) -> None:
        """Tell whoever waits in :meth:`verdict` that the run cannot go on."""
        future = self._future()
        if not future.done():
            future.set_result(why)

    async def verdict(self) -> str:
        """Why the run cannot go on, once it cannot."""
        return await asyncio.shield(self._future())

    async def close(self) -> None:
        """Finish the record. Idempotent."""
        await self._shown.aclose()
        with contextlib.suppress(TimeoutError):
            await self._writer.idle(WRITE_S)
        for run in self._runs.values():
            run.directory.close()

    def _future(self) -> asyncio.Future[str]:
        if self._fatal is None:
            self._fatal = asyncio.get_running_loop().create_future()
        return self._fatal

    def _run(self, mode: Mode) -> _Run:
        if mode not in self._runs:
            place = self._settings.record_of(validation=mode == "val")
            manifest = self._settings.manifest(validation=mode == "val")
            directory = RunDir.create_or_resume(place, manifest)
            self._runs[mode] = _Run(directory, {group for group, _ in directory.tries})
        return self._runs[mode]


def recorder_actor(settings: Settings) -> Any:
    """The program's recorder, made on the node that asks first."""
    here = ray.get_runtime_context().get_node_id()
    return (
        ray.remote(Recorder)
        .options(
            name=NAME,
            get_if_exists=True,
            num_cpus=0,
            max_concurrency=CONCURRENCY,
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
        )
        .remote(settings)
    )


def _lean(rollout: Rollout) -> Rollout:
    """The rollout without its screenshots, which are on disk."""
    steps = [replace(step, prompt=Prompt((), None)) for step in rollout.steps]
    return replace(rollout, steps=steps, final_screenshot=None)


def _too_long(settings: Settings) -> str:
    return (
        "no rollout could take a step: is data.max_prompt_length="
        f"{settings.lengths.prompt} too short for the first prompt and its screenshot?"
    )
