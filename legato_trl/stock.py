"""Desktop rollouts for TRL's own ``GRPOTrainer``, where it can carry them.

TRL's ``rollout_func`` hands back token ids; images reach its forward pass only from the dataset.
An episode that shows a screenshot the dataset does not hold would train on placeholders without
pixels, so it is refused here: :class:`~legato_trl.LegatoGRPOTrainer` carries it. What is left are
harnesses that describe the screen in words, and rollouts of one turn on the screens of
:func:`~legato_trl.openings.openings`.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import apply_chat_template

from legato.desktop.contract import Task
from legato.errors import ConfigError
from legato.rl.collect import resolve_sampling
from legato.rl.driver import GroupResult
from legato.rl.samples import Vision, samples_from, screenshots
from legato.rl.tokens import load_tokenizer
from legato.rl.types import Rollout
from legato_trl.config import LegatoGRPOConfig
from legato_trl.model import vision_of
from legato_trl.prompts import training_tasks
from legato_trl.ranks import gather, on_main, scatter_from_main
from legato_trl.rollouts import Rollouts
from legato_trl.weights import FileWeights, Server

Output = dict[str, list[Any]]
Shown = tuple[str, tuple[str, ...]]
"""What tells a prompt from others: its words, and a digest of each image's pixels."""
INSTEAD = "use legato_trl.LegatoGRPOTrainer, which carries every screenshot"
COLUMNS = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "verdict")


def verdict_reward(verdict: Sequence[float | None], **_: Any) -> list[float | None]:
    """The reward function to give ``GRPOTrainer`` beside :func:`rollout_func`.

    ``None`` for an attempt that infrastructure took: TRL leaves it out of its group.
    """
    return list(verdict)


def rollout_func(
    config: LegatoGRPOConfig, dataset: Dataset | None = None
) -> Callable[[list[Any], Any], Output]:
    """``GRPOTrainer(rollout_func=rollout_func(config), reward_funcs=verdict_reward, ...)``.

    The trainer's dataset is :func:`legato_trl.prompts.as_dataset` of the config's tasks, or any
    whose prompts end with their instructions. For a harness that shows screenshots it is
    :func:`~legato_trl.openings.openings`; give it here, too. Raises
    :class:`~legato.errors.ConfigError`, now or when called, for rollouts that TRL would train
    wrongly.
    """
    if config.banned_tokens:
        raise ConfigError(
            "banned_tokens must be empty: GRPOTrainer computes logprobs of the whole vocabulary; "
            f"or {INSTEAD}"
        )
    if config.colocated:
        raise ConfigError(f"rollout_func needs a vLLM server, not vllm_mode=colocate; or {INSTEAD}")
    return _RolloutFunc(config, dataset)


class _RolloutFunc:
    def __init__(self, config: LegatoGRPOConfig, dataset: Dataset | None) -> None:
        self._config = config
        self._tasks = {key: cycle(tasks) for key, tasks in _by_prompt(config, dataset).items()}
        self._rollouts: Rollouts | None = None
        self._weights: FileWeights | None = None
        self._version: int | None = None

    def __call__(self, prompts: list[Any], trainer: Any) -> Output:
        if len(gather(prompts)) % self._config.num_generations:
            raise ConfigError("num_generations of the trainer and of rollout_func's config differ")
        self._prepare(trainer)
        everyones = gather(prompts)[:: self._config.num_generations]
        return scatter_from_main(lambda: self._run(everyones, trainer))

    def close(self) -> None:
        """Close the desktops and finish the record. Idempotent."""
        if self._rollouts is not None:
            self._rollouts.close()

    def _prepare(self, trainer: Any) -> None:
        if self._rollouts is None:
            checkpoint = str(trainer.model.config._name_or_path)
            server = Server(self._config.server)
            settings = self._config.settings(on_main(server.model), checkpoint)
            tokenizer = load_tokenizer(checkpoint)
            sampling = resolve_sampling(settings, tokenizer)
            self._rollouts = Rollouts(settings, tokenizer, sampling, self._config.record_dir)
            if self._config.weight_sync == "file":
                folder = Path(self._config.output_dir or "trainer_output") / "weights"
                self._weights = FileWeights(server, trainer.accelerator, trainer.model, folder)
        step = int(trainer.state.global_step)
        if step != self._version:
            if self._weights is not None:  # else TRL has sent them itself
                self._weights.push(str(step))
            on_main(self._open)
            self._rollouts.version = str(step)
            self._version = step

    def _open(self) -> None:
        assert self._rollouts is not None
        self._rollouts.open()

    def _run(self, prompts: Sequence[Any], trainer: Any) -> list[Output]:
        assert self._rollouts is not None
        self._rollouts.set_version(self._rollouts.version)
        result = self._rollouts.run([self._task(prompt) for prompt in prompts])
        if result.lost is not None:
            raise result.lost
        carry = _Carrier(trainer.processing_class, str(trainer.model.config._name_or_path))
        lines = [
            line
            for prompt, group in zip(prompts, result.groups, strict=True)
            if group
            for line in carry.group(prompt, group)
        ]
        processes = trainer.accelerator.num_processes
        size = len(lines) // processes
        return [_columns(lines[rank * size : (rank + 1) * size]) for rank in range(processes)]

    def _task(self, prompt: Any) -> Task:
        key = _shown(prompt)
        if key not in self._tasks:
            raise ConfigError(
                f"no task has the prompt {key[0]!r} with {len(key[1])} images: give rollout_func "
                "the trainer's dataset, and make it by openings() if prompts show screenshots"
            )
        return next(self._tasks[key])


class _Carrier:
    """Turns groups into what TRL takes, refusing what it would train wrongly."""

    def __init__(self, processing_class: Any, checkpoint: str) -> None:
        self._processing = processing_class
        # A tokenizer alone: the trainer is one of texts, and no rollout may show anything.
        images = getattr(processing_class, "image_processor", None)
        self._vision: Vision | None = images and vision_of(checkpoint, processing_class)

    def group(self, prompt: Any, group: GroupResult) -> list[dict[str, Any]]:
        lines = [self._line(prompt, rollout) for rollout in group.rollouts]
        if not lines:
            raise ConfigError(f"group {group.group_id}: no attempt came to a verdict")
        # An attempt that could not be refilled still needs a place: nothing of it is trained.
        while len(lines) < group.wanted:
            spare = lines[0]
            nothing = [0] * len(spare["env_mask"])
            lines.append({**spare, "env_mask": nothing, "verdict": None})
        return lines

    def _line(self, prompt: Any, rollout: Rollout) -> dict[str, Any]:
        name, rows = rollout.rollout_id, samples_from([rollout])
        if len(rows) != 1:
            raise ConfigError(
                f"rollout {name} makes {len(rows)} rows, and GRPOTrainer takes one: {INSTEAD}"
            )
        (row,) = rows
        if row.logprobs is None:
            raise ConfigError(f"rollout {name} has no logprobs: is the server vLLM?")
        prompt_ids = list(row.prompt_ids)
        if row.images:
            shown = tuple(_digest(image.pil()) for image in screenshots([rollout]).values())
            if shown != _shown(prompt)[1] or row.n_prompt_images != len(row.images):
                raise ConfigError(
                    f"rollout {name} holds screenshots that are not its prompt's own in the "
                    f"dataset, and GRPOTrainer would silently drop them: {INSTEAD}"
                )
            assert self._vision is not None
            prompt_ids = row.expanded(self._vision.image_token_id).prompt_ids
            if prompt_ids != self._rendered(prompt):
                raise ConfigError(
                    f"GRPOTrainer renders the prompt of rollout {name} otherwise than the harness, "
                    f"so its pixels would be put elsewhere: {INSTEAD}"
                )
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": list(row.response_ids),
            "logprobs": list(row.logprobs),
            "env_mask": list(row.loss_mask),
            "verdict": row.reward,
        }

    def _rendered(self, prompt: Any) -> list[int]:
        """The ids that TRL aligns a dataset's images with."""
        text = apply_chat_template({"prompt": prompt}, self._processing)["prompt"]
        images = [part["image"] for part in _parts(prompt) if part["type"] == "image"]
        ids: list[int] = self._processing(images=[images], text=[text])["input_ids"][0]
        return list(ids)


def _by_prompt(config: LegatoGRPOConfig, dataset: Dataset | None) -> dict[Shown, list[Task]]:
    found: dict[Shown, list[Task]] = defaultdict(list)
    tasks = training_tasks(config)
    if dataset is None or "images" not in dataset.column_names:
        for task in tasks:
            found[task.instruction, ()].append(task)
        return found
    by_id = {task.task_id: task for task in tasks}
    for row in dataset:
        if row["task_id"] not in by_id:
            raise ConfigError(f"the dataset's task {row['task_id']!r} is none of the config's")
        words = row["prompt"][-1]["content"]
        found[words, tuple(_digest(image) for image in row["images"])].append(by_id[row["task_id"]])
    return found


def _shown(prompt: Any) -> Shown:
    if isinstance(prompt, str):
        return prompt, ()
    last = _parts(prompt[-1:])
    words = "".join(part["text"] for part in last if part["type"] == "text")
    images = (part["image"] for part in _parts(prompt) if part["type"] == "image")
    return words, tuple(map(_digest, images))


def _parts(messages: Iterable[Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for message in messages:
        content = message["content"]
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return parts


def _digest(image: Any) -> str:
    rgb = image.convert("RGB")
    return hashlib.sha256(repr(rgb.size).encode() + rgb.tobytes()).hexdigest()


def _columns(lines: Sequence[dict[str, Any]]) -> Output:
    return {name: [line[name] for line in lines] for name in COLUMNS}
