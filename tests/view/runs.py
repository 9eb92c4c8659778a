"""Run directories made by the driver itself, on fake desktops, under a policy that mostly knows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from legato.desktop.actions import Action, AnyAction
from legato.desktop.contract import DesktopOptions
from legato.desktop.fake import fake_tasks, make_desktop, reference_actions
from legato.rl.board import Board
from legato.rl.driver import Driver, GroupOptions
from legato.rl.harness import make_harness
from legato.rl.manifest import Manifest
from legato.rl.observer import Observer, Several, Silent
from legato.rl.pool import Pool
from legato.rl.publish import published
from legato.rl.record import RunDir
from legato.rl.rollout import Limits
from legato.rl.tokens import HFTokenizer
from legato.rl.types import Generation, Prompt, Rollout, Sampling
from legato.tasks import parse_tasks
from tests.rl.servers import byte_level

SCREEN = (1280, 720)
TOKENIZER = HFTokenizer(byte_level())
HARNESS = make_harness("compact", tokenizer=TOKENIZER, image_max=20, width=640, height=360)


class Knows:
    """Follows each task's reference actions; slips with a certain probability."""

    def __init__(self, tasks: Sequence[Mapping[str, Any]], slips: float, seconds: float) -> None:
        self._solutions = {
            task["config"]["instruction"]: reference_actions(task["task_id"], task["config"])
            for task in tasks
        }
        self._slips = slips
        self._seconds = seconds
        self._rng = random.Random(0)

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        await asyncio.sleep(self._seconds)
        words = str(prompt.messages)
        solution = next(s for told, s in self._solutions.items() if told in words)
        text = self._reply(solution, sum(m.role == "assistant" for m in prompt.messages))
        ids = (*TOKENIZER.encode(text), TOKENIZER.special("<|im_end|>") or 0)
        return Generation(
            text=text,
            token_ids=ids,
            logprobs=tuple(-self._rng.expovariate(2.0) for _ in ids),
            prompt_ids=prompt.token_ids,
            image_tokens=None,
            version=str(sampling.seed or 0),
            finish_reason="stop",
            seconds=self._seconds,
        )

    def _reply(self, solution: Sequence[AnyAction], step: int) -> str:
        if self._rng.random() < self._slips:
            return self._rng.choice(["click somewhere", "scroll 50 50 down 3", "drag 10 10 60 60"])
        action = solution[step] if step < len(solution) else Action(action_type="done")
        return HARNESS.render_reply(action, SCREEN)

    async def aclose(self) -> None:
        return


def make_run(
    path: Path,
    *,
    tasks: int = 3,
    group: int = 4,
    slips: float = 0.15,
    seconds: float = 0.0,
    seed: int = 0,
    names: Mapping[str, str] | None = None,
    observer: Observer | None = None,
) -> list[Rollout]:
    """Collect ``tasks`` groups into ``path`` and return what was recorded.

    ``seconds`` is how long the policy thinks. ``names`` renames tasks, by their id.
    """
    entries = fake_tasks(tasks, seed=seed)
    for entry in entries:
        entry["task_id"] = (names or {}).get(entry["task_id"], entry["task_id"])
    loaded = parse_tasks(entries, backend="fake")
    manifest = Manifest(
        tasks=[
            {"task_id": t.task_id, "instruction": t.instruction, "config": dict(t.config)}
            for t in loaded
        ],
        group=group,
        settings={
            "policy": {"model": "knows", "version": str(seed)},
            "desktop": {"width": SCREEN[0], "height": SCREEN[1]},
        },
        session={"desktops": 4},
    )
    recorded: list[Rollout] = []

    async def run() -> None:
        board = Board()
        watch = Several(board, observer or Silent())
        with RunDir.create_or_resume(path, manifest) as out:

            async def keep(rollout: Rollout) -> None:
                out.append(rollout)
                recorded.append(rollout)
                watch.rollout_ended(rollout)

            async with (
                published(board, path),
                Pool(make_desktop, DesktopOptions(), size=4) as pool,
            ):
                driver = Driver(
                    pool,
                    Knows(entries, slips, seconds),
                    HARNESS,
                    policy_model="knows",
                    sampling=Sampling(seed=None),
                    limits=Limits(max_steps=12),
                    groups=GroupOptions(size=group),
                    on_rollout=keep,
                    observer=watch,
                )
                watch.batch_started(len(loaded), group * len(loaded), 0)

                async def one(number: int) -> None:
                    task = loaded[number]
                    watch.group_ended(await driver.run_group(task, task.task_id, priority=number))

                await asyncio.gather(*map(one, range(len(loaded))))

    asyncio.run(run())
    return recorded
