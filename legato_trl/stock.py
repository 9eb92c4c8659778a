"""Desktop rollouts for TRL's own ``GRPOTrainer``, where it can carry them.

TRL's ``rollout_func`` hands back token ids; images reach its forward pass only from the dataset.
An episode whose prompts hold screenshots would train on placeholders without pixels, so such
rollouts are refused here: :class:`~legato_trl.LegatoGRPOTrainer` carries them. What is left are
harnesses that describe the screen in words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from legato.desktop.contract import Task
from legato.errors import ConfigError
from legato.rl.collect import resolve_sampling
from legato.rl.driver import GroupResult
from legato.rl.row import Row
from legato.rl.samples import samples_from
from legato.rl.tokens import load_tokenizer
from legato_trl.config import LegatoGRPOConfig
from legato_trl.prompts import training_tasks
from legato_trl.ranks import gather, on_main, scatter_from_main
from legato_trl.rollouts import Rollouts
from legato_trl.weights import FileWeights, Server

Output = dict[str, list[Any]]
INSTEAD = "use legato_trl.LegatoGRPOTrainer, which carries every screenshot"


def verdict_reward(verdict: Sequence[float | None], **_: Any) -> list[float | None]:
    """The reward function to give ``GRPOTrainer`` beside :func:`rollout_func`.

    ``None`` for an attempt that infrastructure took: TRL leaves it out of its group.
    """
    return list(verdict)


def rollout_func(config: LegatoGRPOConfig) -> Callable[[list[Any], Any], Output]:
    """``GRPOTrainer(rollout_func=rollout_func(config), reward_funcs=verdict_reward, ...)``.

    The dataset is :func:`legato_trl.prompts.as_dataset` of the config's tasks, or any whose
    prompts end with their instructions. Raises :class:`~legato.errors.ConfigError` when called, for
    rollouts that TRL would train wrongly.
    """
    if config.banned_tokens:
        raise ConfigError(
            "banned_tokens must be empty: GRPOTrainer computes logprobs of the whole vocabulary; "
            f"or {INSTEAD}"
        )
    if config.colocated:
        raise ConfigError(f"rollout_func needs a vLLM server, not vllm_mode=colocate; or {INSTEAD}")
    return _RolloutFunc(config)


class _RolloutFunc:
    def __init__(self, config: LegatoGRPOConfig) -> None:
        self._config = config
        by_instruction: dict[str, list[Task]] = defaultdict(list)
        for task in training_tasks(config):
            by_instruction[task.instruction].append(task)
        self._tasks = {said: cycle(tasks) for said, tasks in by_instruction.items()}
        self._rollouts: Rollouts | None = None
        self._weights: FileWeights | None = None
        self._version: int | None = None

    def __call__(self, prompts: list[Any], trainer: Any) -> Output:
        if len(gather(prompts)) % self._config.num_generations:
            raise ConfigError("num_generations of the trainer and of rollout_func's config differ")
        self._prepare(trainer)
        everyones = gather(prompts)[:: self._config.num_generations]
        processes = trainer.accelerator.num_processes
        return scatter_from_main(lambda: self._run(everyones, processes))

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

    def _run(self, prompts: Sequence[Any], processes: int) -> list[Output]:
        assert self._rollouts is not None
        self._rollouts.set_version(self._rollouts.version)
        result = self._rollouts.run([self._task(prompt) for prompt in prompts])
        if result.lost is not None:
            raise result.lost
        lines = [line for group in result.groups if group for line in self._lines(group)]
        size = len(lines) // processes
        return [_columns(lines[rank * size : (rank + 1) * size]) for rank in range(processes)]

    def _task(self, prompt: Any) -> Task:
        said = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        if not isinstance(said, str):
            said = "".join(part.get("text", "") for part in said)
        if said not in self._tasks:
            raise ConfigError(f"no task has the instruction {said!r}: is this the tasks' dataset?")
        return next(self._tasks[said])

    def _lines(self, group: GroupResult) -> list[dict[str, Any]]:
        lines = []
        for rollout in group.rollouts:
            rows = samples_from([rollout])
            lines.append(_line(rows, rollout.rollout_id))
        if not lines:
            raise ConfigError(f"group {group.group_id}: no attempt came to a verdict")
        # An attempt that could not be refilled still needs a place: nothing of it is trained.
        while len(lines) < group.wanted:
            spare = lines[0]
            nothing = [0] * len(spare["env_mask"])
            lines.append({**spare, "env_mask": nothing, "verdict": None})
        return lines


def _line(rows: list[Row], rollout_id: str) -> dict[str, Any]:
    if any(row.images for row in rows):
        raise ConfigError(
            f"rollout {rollout_id} holds screenshots, which GRPOTrainer would silently drop: "
            f"{INSTEAD}"
        )
    if len(rows) != 1:
        raise ConfigError(
            f"rollout {rollout_id} makes {len(rows)} rows, and GRPOTrainer takes one: {INSTEAD}"
        )
    (row,) = rows
    if row.logprobs is None:
        raise ConfigError(f"rollout {rollout_id} has no logprobs: is the server vLLM?")
    return {
        "prompt_ids": list(row.prompt_ids),
        "completion_ids": list(row.response_ids),
        "logprobs": list(row.logprobs),
        "env_mask": list(row.loss_mask),
        "verdict": row.reward,
    }


def _columns(lines: Sequence[dict[str, Any]]) -> Output:
    names = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "verdict")
    return {name: [line[name] for line in lines] for name in names}
