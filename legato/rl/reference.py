"""Reference episodes as supervised rows: what a model imitates before it is reinforced.

Every seeded task knows a way to solve it by GUI actions. Here these are performed on real
desktops, and each step is written down as the harness would have shown it to the policy, with the
reply that asks for the action::

    DIR/rows.jsonl         one line per step
    DIR/images/<sha256>.png

A line has ``prompt`` and ``completion`` as chat messages in the form TRL's ``SFTTrainer`` takes
(``{"type": "image"}`` parts, in the order of ``images``), ``images`` as paths below ``DIR``, and
``task_id``, ``step`` and ``action``. Only episodes that earned the full reward are written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from legato.desktop.actions import AnyAction, action_json
from legato.desktop.contract import Desktop, Machine, Score, Screenshot, Task
from legato.errors import ActionError, ConfigError, EnvFailure, Failure
from legato.rl.config import DesktopConfig, HarnessConfig
from legato.rl.harness import make_harness
from legato.rl.pool import Lease, Pool
from legato.rl.schema import dump_json
from legato.rl.store import Blobs, replacing
from legato.rl.summary import SUCCESS
from legato.rl.types import Generation, Harness, ImagePart, Message

log = logging.getLogger(__name__)

ROWS, IMAGES = "rows.jsonl", "images"
EPISODE_S = 600.0
"""Deadline of one whole reference episode."""
TRIES = 2
"""Desktops on which an episode is tried before its task is left out."""


@runtime_checkable
class HasReference(Task, Protocol):
    """A task that knows how it is solved."""

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]: ...


def write_reference(
    tasks: Sequence[Task],
    out: Path,
    *,
    desktop: DesktopConfig,
    harness: HarnessConfig,
    desktops: int = 4,
    on_task: Callable[[Task], object] = lambda task: None,
) -> int:
    """Play the reference of every task and write ``out``; returns the number of rows.

    Raises :class:`~legato.errors.ConfigError` before anything starts for a task without a
    reference, :class:`~legato.errors.EnvFailure` when no desktop can be started.
    """
    without = [task.task_id for task in tasks if not isinstance(task, HasReference)]
    if without:
        raise ConfigError(
            f"{without[0]} has no reference episode; only the seeded tasks of a suite do"
        )
    speak = make_harness(
        harness.name, tokenizer=None, image_max=harness.image_max, **harness.options
    )
    return asyncio.run(
        _write([cast(HasReference, t) for t in tasks], out, desktop, speak, desktops, on_task)
    )


@dataclass(slots=True)
class _Episode:
    rows: list[dict[str, Any]] = field(default_factory=list)
    images: dict[str, bytes] = field(default_factory=dict)


async def _write(
    tasks: Sequence[HasReference],
    out: Path,
    desktop: DesktopConfig,
    harness: Harness,
    desktops: int,
    on_task: Callable[[Task], object],
) -> int:
    images = Blobs(out / IMAGES, ".png")
    images.open_for_writing()
    played: dict[int, list[dict[str, Any]]] = {}
    options = desktop.desktop_options()
    async with Pool(desktop.factory(), options, size=desktops, standby=desktop.standby) as pool:

        async def one(number: int, task: HasReference) -> None:
            episode = await _play(pool, number, task, harness)
            if episode is not None:
                images.put(episode.images)
                played[number] = episode.rows
            on_task(task)

        async with asyncio.TaskGroup() as group:
            for number, task in enumerate(tasks):
                group.create_task(one(number, task))
    count = 0
    with replacing(out / ROWS) as file:
        for number in sorted(played):
            for row in played[number]:
                file.write(dump_json(row) + b"\n")
                count += 1
    if not count:
        raise EnvFailure("no reference episode earned its reward", transient=False)
    return count


async def _play(pool: Pool, number: int, task: HasReference, harness: Harness) -> _Episode | None:
    for _ in range(TRIES):
        lease: Lease = await pool.lease(number)
        try:
            return await lease.call(
                "reference episode", lambda d: _episode(d, task, harness), EPISODE_S
            )
        except Failure as e:
            log.warning("reference of %s: %s", task.task_id, e)
        finally:
            lease.release()
    return None


def _episode(desktop: Desktop, task: HasReference, harness: Harness) -> _Episode:
    """Runs on the desktop's thread. Raises ``EnvFailure`` if the reference is not rewarded."""
    kept = _Kept(task)
    desktop.reset(kept)
    desktop.wait_after_reset()
    machine = kept.machine
    if machine is None:
        raise EnvFailure("the backend sets tasks up by itself, so references cannot be played")
    conversation = harness.start(task.instruction, machine.screen)
    episode = _Episode()
    for step, action in enumerate(task.reference_actions(machine)):
        screenshot = harness.view(desktop.observe()).seal()
        conversation.observe(screenshot)
        prompt = conversation.prompt()
        try:
            reply = harness.render_reply(action, machine.screen)
        except ActionError as e:
            raise EnvFailure(f"step {step}: {e}", transient=False) from None
        episode.images.update({image.sha256: image.png for image in prompt.images})
        episode.rows.append(_row(task, step, action, prompt.messages, prompt.images, reply))
        conversation.reply(_spoken(reply))
        desktop.act(action)
    desktop.wait_before_eval()
    score = desktop.evaluate()
    if score.reward < SUCCESS:
        raise EnvFailure(f"earned {score.reward:g}: {score.output}")
    return episode


def _row(
    task: Task,
    step: int,
    action: AnyAction,
    messages: Sequence[Message],
    images: Sequence[Screenshot],
    reply: str,
) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "step": step,
        "action": action_json(action),
        "prompt": [_message(message) for message in messages],
        "completion": [{"role": "assistant", "content": [{"type": "text", "text": reply}]}],
        "images": [f"{IMAGES}/{image.sha256}.png" for image in images],
    }


def _message(message: Message) -> dict[str, Any]:
    parts = [
        {"type": "image"} if isinstance(part, ImagePart) else {"type": "text", "text": part.text}
        for part in message.parts
    ]
    return {"role": message.role, "content": parts}


def _spoken(reply: str) -> Generation:
    return Generation(
        text=reply,
        token_ids=None,
        logprobs=None,
        prompt_ids=None,
        image_tokens=None,
        version="reference",
        finish_reason="stop",
    )


class _Kept:
    """A task that keeps the machine it is set up on, for its reference to look at."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.machine: Machine | None = None
        self.task_id, self.domain = task.task_id, task.domain
        self.instruction, self.config = task.instruction, task.config

    def setup(self, machine: Machine) -> None:
        self.machine = machine
        self._task.setup(machine)

    def grade(self, machine: Machine) -> Score:
        return self._task.grade(machine)
