"""First prompts of tasks with their screenshots, as a dataset that TRL's own trainer can carry.

TRL builds pixels only for images that the dataset holds. A rollout of one turn shows exactly one,
the screen its task begins with, and a task looks the same in every attempt: so each task is set
up once beforehand, and its first prompt becomes a row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from datasets import Dataset, Features, Image, Value
from datasets import Sequence as ListOf

from legato.desktop.contract import Desktop, Screenshot, Task
from legato.errors import ConfigError
from legato.rl.harness import make_harness
from legato.rl.pool import Pool
from legato.rl.settings import Settings
from legato.rl.types import Harness, ImagePart, Message, Prompt
from legato_trl.config import LegatoGRPOConfig
from legato_trl.prompts import training_tasks

OPENING_S = 300.0
"""Deadline for one task to be set up and looked at, in seconds."""

FEATURES = Features(
    {
        "prompt": [{"role": Value("string"), "content": Value("string")}],
        "images": ListOf(Image()),
        "task_id": Value("string"),
    }
)


def openings(config: LegatoGRPOConfig) -> Dataset:
    """One row for every training task: ``prompt`` (a conversation), ``images``, ``task_id``.

    Runs the tasks' set-up on the config's desktops. Raises
    :class:`~legato.errors.ConfigError` for a harness whose first prompt TRL would write otherwise,
    ``EnvFailure`` when a task cannot be set up.
    """
    settings = config.settings("model", "")
    tasks = training_tasks(config)
    harness = make_harness(
        settings.harness.name,
        tokenizer=None,
        image_max=settings.harness.image_max,
        **settings.harness.options,
    )
    prompts = asyncio.run(_all(tasks, settings, harness))
    return Dataset.from_list(
        [
            {
                "prompt": [_plain(message) for message in prompt.messages],
                "images": [{"bytes": image.png} for image in prompt.images],
                "task_id": task.task_id,
            }
            for task, prompt in zip(tasks, prompts, strict=True)
        ],
        features=FEATURES,
    )


def opening(instruction: str, screen: Screenshot, harness: Harness) -> Prompt:
    """The first prompt of an episode that begins with this screen."""
    conversation = harness.start(instruction, (screen.width, screen.height))
    conversation.observe(screen)
    return conversation.prompt()


async def _all(tasks: Sequence[Task], settings: Settings, harness: Harness) -> list[Prompt]:
    desktop = settings.desktop
    options = desktop.desktop_options()
    size = min(settings.rollout.desktops, len(tasks))
    async with Pool(desktop.factory(), options, size=size, standby=desktop.standby) as pool:

        async def one(number: int, task: Task) -> Prompt:
            lease = await pool.lease(number)
            try:
                return await lease.call("opening", lambda d: _look(d, task, harness), OPENING_S)
            finally:
                lease.release()

        return await asyncio.gather(*(one(n, task) for n, task in enumerate(tasks)))


def _look(desktop: Desktop, task: Task, harness: Harness) -> Prompt:
    desktop.reset(task)
    desktop.wait_after_reset()
    return opening(task.instruction, desktop.observe(), harness)


def _plain(message: Message) -> dict[str, Any]:
    """The message as TRL's dataset has it: words alone, since TRL puts images first by itself."""
    shown = [isinstance(part, ImagePart) for part in message.parts]
    if any(shown[1:]):
        raise ConfigError("TRL puts a prompt's image before its words, and this harness does not")
    words = (part.text for part in message.parts if not isinstance(part, ImagePart))
    return {"role": message.role, "content": "".join(words)}
