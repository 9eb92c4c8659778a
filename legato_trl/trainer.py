"""TRL's GRPO trainer on desktop rollouts: the reward is the verdict.

One override carries all of it, :meth:`GRPOTrainer._generate_and_score_completions`: where TRL
would sample one completion per prompt, whole groups of rollouts are run, and rows come back with
their screenshots, their own advantages and the server's logprobs. Loss, optimizer, checkpoints and
logging are TRL's.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from legato.desktop.contract import Task
from legato.errors import ConfigError, LegatoError, PolicyFailure
from legato.rl import figures
from legato.rl.collect import resolve_sampling
from legato.rl.driver import GroupResult
from legato.rl.policy import PolicyConfig
from legato.rl.probe import probe
from legato.rl.row import Row
from legato.rl.samples import Vision, samples_from, screenshots
from legato.rl.tokens import load_tokenizer
from legato.rl.types import Sampling, Tokenizer
from legato.view.gaps import note_gaps
from legato_trl.colocate import ColocatedPolicy, vllm_engine
from legato_trl.config import LegatoGRPOConfig
from legato_trl.gaps import gaps_of, merged
from legato_trl.logprobs import importance_ratio, without
from legato_trl.metrics import mismatch
from legato_trl.model import load_processor, vision_of
from legato_trl.prompts import as_dataset, held_out_tasks, training_tasks
from legato_trl.ranks import gather, on_main, scatter_from_main
from legato_trl.rollouts import BatchResult, Mode, Rollouts
from legato_trl.rows import FORWARD, Share, Tensoriser, shares, take
from legato_trl.showing import Sheets, board_for
from legato_trl.weights import ColocatedWeights, FileWeights, Server, TrlWeights, Weights

log = logging.getLogger(__name__)

STEP_RETRIES = 3
"""How often a step is repeated whose model server was lost."""

_MEAN_OVER_ROWS = frozenset({"grpo", "sapo", "dr_grpo", "luspo"})
"""Losses that TRL averages over the rows of a batch, padding included."""


class LegatoGRPOTrainer(GRPOTrainer):
    """``LegatoGRPOTrainer("Qwen/Qwen3-VL-8B-Instruct", LegatoGRPOConfig(suite=...)).train()``.

    Prompts come from ``args.tasks`` or ``args.suite``. Raises
    :class:`~legato.errors.ConfigError` before a model is loaded or a desktop started.
    """

    _name = "Legato GRPO"

    def __init__(
        self,
        model: str | Any,
        args: LegatoGRPOConfig,
        *,
        processing_class: Any = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        peft_config: Any = None,
    ) -> None:
        if not isinstance(args, LegatoGRPOConfig):
            raise ConfigError("args must be a LegatoGRPOConfig: it says which tasks to run")
        checkpoint = model if isinstance(model, str) else str(model.config._name_or_path)
        self.checkpoint = checkpoint
        trust = bool(args.trust_remote_code)
        processor = processing_class or load_processor(checkpoint, trust_remote_code=trust)
        self.vision: Vision = vision_of(checkpoint, processor)
        tasks, held_out = training_tasks(args), held_out_tasks(args)
        self._tasks: dict[str, Task] = {task.task_id: task for task in (*tasks, *held_out)}
        args.settings("model", checkpoint).desktop.factory()
        server = None if args.colocated else Server(args.server)
        served = on_main(server.model) if server else checkpoint
        self._settings = settings = args.settings(served, checkpoint)
        tokenizer = load_tokenizer(checkpoint)
        sampling = resolve_sampling(settings, tokenizer)
        if server is not None and args.probe:
            on_main(partial(_must_be_fit, settings.policy, sampling))
        board = board_for(args)
        # TRL would connect to a server by NCCL, which needs GPUs on both sides.
        args.use_vllm = args.weight_sync == "trl"
        try:
            super().__init__(
                model=model,
                reward_funcs=verdict,
                args=args,
                train_dataset=as_dataset(tasks),
                eval_dataset=as_dataset(held_out) if held_out else None,
                processing_class=processor,
                callbacks=callbacks,
                optimizers=optimizers,
                peft_config=peft_config,
            )
        finally:
            args.use_vllm = True
        self.use_vllm = True
        self._last_loaded_step = -1
        self._banned = sampling.banned_ids
        self.weights: Weights = self._make_weights(args, server)
        self._colocated = served_here = self._make_colocated(args, tokenizer)
        self.rollouts = Rollouts(
            settings,
            tokenizer,
            sampling,
            args.record_dir,
            policy=None if served_here is None else lambda: served_here,
            board=board,
        )
        self._sheets = Sheets(args, settings.desktop.screen)
        self._tensoriser = Tensoriser(
            processor, self.vision, self._tokenizer.pad_token_id, self.pad_to_multiple_of
        )
        self._rollout_seconds = 0.0
        self._sampled_at = 0
        self.add_callback(_Steps(self))
        atexit.register(self.close)

    def close(self) -> None:
        """Close the desktops and finish the record. Idempotent; also done when Python exits."""
        atexit.unregister(self.close)
        self.rollouts.close()
        self._sheets.close()

    # --- sampling --------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Run a group of rollouts for every prompt of this step, over all processes together."""
        mode: Mode = "train" if self.model.training else "eval"
        started = time.monotonic()
        share = self._collect(inputs, mode)
        self._rollout_seconds += time.monotonic() - started
        self._metrics[mode]["rollout/seconds"].append(time.monotonic() - started)
        self._sampled_at = self.state.global_step
        batch, turns = self._tensoriser.tensors(share)
        batch["row_scale"] = torch.tensor(share.total / share.real)
        trained = (batch["completion_mask"] * batch["tool_mask"]).sum().to(self.accelerator.device)
        batch["num_items_in_batch"] = self.accelerator.gather(trained).sum()
        difference = self._score(batch, mode)
        self._compare(share.rows, difference, turns, mode)
        return batch

    def _collect(self, inputs: list[dict[str, Any]], mode: Mode) -> Share:
        """This process's rows. Repeats the step, weights and all, when the server is lost."""
        group = self.num_generations if mode == "train" else self.num_generations_eval
        names = gather([example["task_id"] for example in inputs])[::group]
        for attempt in range(STEP_RETRIES + 1):
            try:
                self._load_weights()
                if self._colocated is not None and not self.accelerator.is_main_process:
                    self._colocated.follow()
                return scatter_from_main(partial(self._run, names, mode))
            except PolicyFailure as e:
                if attempt == STEP_RETRIES:
                    raise
                log.warning("the model server was lost (%s); the step is repeated", e)
                self._last_loaded_step = -1
                self.weights.revive()
        raise AssertionError("unreachable")

    def _load_weights(self) -> None:
        if self.state.global_step == self._last_loaded_step:
            return
        started = time.monotonic()
        version = str(self.state.global_step)
        self.weights.push(version)
        on_main(partial(self._open_rollouts, version))
        self._last_loaded_step = self.state.global_step
        self._metrics["train"]["weights/seconds"].append(time.monotonic() - started)

    def _open_rollouts(self, version: str) -> None:
        self.rollouts.open()
        self.rollouts.set_version(version)

    # --- on the main process ---------------------------------------------------------------------

    def _run(self, names: Sequence[str], mode: Mode) -> list[Share]:
        size = None if mode == "train" else self.num_generations_eval
        served = self._colocated
        try:
            result = self.rollouts.run(
                [self._tasks[name] for name in names],
                mode=mode,
                size=size,
                waiting=None if served is None else served.round,
            )
        finally:
            if served is not None:
                served.finish()
        if result.lost is not None:
            raise result.lost
        if not self.weights.holds(self.rollouts.version):
            raise PolicyFailure("the vLLM server was restarted, and with it went the weights")
        groups = [group for group in result.groups if group is not None]
        rows = [row for group in groups for row in self._rows(group)]
        if not rows:
            raise LegatoError(_no_rows(result))
        self._log_rollouts(groups, result, mode)
        if mode == "train":
            callbacks = self.callback_handler.callbacks
            self._sheets.log(self.state.global_step, result.rollouts, callbacks)
        for name, value in figures.economy(rows, self.vision.image_token_id):
            self._metrics[mode][name].append(value)
        return shares(
            rows,
            screenshots(result.rollouts),
            processes=self.accelerator.num_processes,
            chunks=self.args.steps_per_generation if mode == "train" else 1,
        )

    def _rows(self, group: GroupResult) -> list[Row]:
        return samples_from(group.rollouts, min_group=self.args.min_group, vision=self.vision)

    def _log_rollouts(self, groups: list[GroupResult], result: BatchResult, mode: Mode) -> None:
        for told in (figures.outcome(groups), figures.effort(result.tries)):
            for name, value in told:
                self._metrics[mode][name].append(value)
        generations = [step.generation for r in result.tries for step in r.steps]
        if mode == "train":
            self.state.num_input_tokens_seen += sum(
                (g.prompt_tokens or 0) + (g.completion_tokens or 0) for g in generations
            )
        self._metrics[mode]["num_tokens"] = [self.state.num_input_tokens_seen]
        for group in groups:
            for rollout in group.rollouts:
                said = [step.generation.text for step in rollout.steps]
                self._logs["prompt"].append(self._tasks[group.task_id].instruction)
                self._logs["completion"].append("\n".join(said))
                self._logs["rewards"]["verdict"].append(rollout.reward)
                self._logs["advantages"].append(group.advantages[rollout.attempt])

    # --- scoring ---------------------------------------------------------------------------------

    def _score(self, batch: dict[str, Any], mode: Mode) -> torch.Tensor:
        """Add the logprobs of the trainer and of the reference model.

        Returns how far the trainer's are from the server's, (R, C) in nats.
        """
        size = (
            self.args.per_device_train_batch_size
            if mode == "train"
            else self.args.per_device_eval_batch_size
        )
        logps = self._logps(self.model, batch, size)
        sampled, mask = batch["sampling_per_token_logps"], batch["tool_mask"]
        batch["old_per_token_logps"] = logps
        if self.vllm_importance_sampling_correction:
            batch["importance_sampling_ratio"] = importance_ratio(
                logps,
                sampled,
                mask,
                mode=self.vllm_importance_sampling_mode,
                low=self.vllm_importance_sampling_clip_min,
                high=self.vllm_importance_sampling_clip_max,
            )
        if self.beta != 0.0:
            batch["ref_per_token_logps"] = self._reference_logps(batch, size)
        difference: torch.Tensor = (logps - sampled).abs()
        return difference

    def _compare(
        self, rows: list[Row], difference: torch.Tensor, turns: torch.Tensor, mode: Mode
    ) -> None:
        for name, value in mismatch(difference, turns):
            self._metrics[mode][name].append(value)
        found = merged(gather([gaps_of(rows, difference, turns)]))
        on_main(lambda: note_gaps(self.rollouts.places[mode], found))

    @torch.no_grad()
    def _logps(self, model: Any, batch: dict[str, Any], size: int) -> torch.Tensor:
        """Logprobs (R, C) on the CPU, ``size`` rows at a time on the device."""
        rows = len(batch["num_images"])
        found = []
        kwargs = self.args.gradient_checkpointing_kwargs
        with disable_gradient_checkpointing(self.model, kwargs):
            for start in range(0, rows, size):
                part = self._to_device(take(batch, start, min(start + size, rows)))
                logps, _, _ = self._get_per_token_logps_and_entropies(
                    model,
                    torch.cat([part["prompt_ids"], part["completion_ids"]], dim=1),
                    torch.cat([part["prompt_mask"], part["completion_mask"]], dim=1),
                    part["completion_ids"].size(1),
                    **{name: part[name] for name in FORWARD if name in part},
                )
                found.append(logps.float().cpu())
        return torch.cat(found)

    def _reference_logps(self, batch: dict[str, Any], size: int) -> torch.Tensor:
        if self.ref_model is not None:
            return self._logps(self.ref_model, batch, size)
        bare = self.accelerator.unwrap_model(self.model)
        with use_adapter(bare, adapter_name="ref" if "ref" in bare.peft_config else None):
            return self._logps(self.model, batch, size)

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        with without(self._banned, self.accelerator.unwrap_model(model)):
            return super()._get_per_token_logps_and_entropies(model, *args, **kwargs)

    # --- training --------------------------------------------------------------------------------

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        # Pixels of a whole generation batch are large: only those of this step go to the device.
        return self._to_device(super()._prepare_inputs(generation_batch))

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        mode = "train" if self.model.training else "eval"
        self._metrics[mode]["staleness"].append(self.state.global_step - self._sampled_at)
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        return loss * inputs["row_scale"] if self.loss_type in _MEAN_OVER_ROWS else loss

    def _to_device(self, batch: dict[str, Any]) -> dict[str, Any]:
        device = self.accelerator.device
        return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}

    def _make_weights(self, args: LegatoGRPOConfig, server: Server | None) -> Weights:
        if server is None:
            return ColocatedWeights(self.vllm_generation)
        if args.weight_sync == "file":
            folder = Path(args.output_dir or "trainer_output") / "weights"
            return FileWeights(server, self.accelerator, self.model, folder)
        return TrlWeights(server, self.vllm_generation, self.accelerator.device)

    def _make_colocated(
        self, args: LegatoGRPOConfig, tokenizer: Tokenizer
    ) -> ColocatedPolicy | None:
        if not args.colocated:
            return None
        engine = vllm_engine(self.vllm_generation.llm)
        parallel = args.vllm_tensor_parallel_size
        return ColocatedPolicy(engine, tokenizer, self.vision.image_token_id, parallel=parallel)


class _Steps(TrainerCallback):
    """Names each step to who watches, and logs its seconds that no rollout took."""

    def __init__(self, trainer: LegatoGRPOTrainer) -> None:
        self._trainer = trainer
        self._began = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.rollouts.board.title = f"step {state.global_step + 1}/{state.max_steps}"
        self._began = time.monotonic()
        self._trainer._rollout_seconds = 0.0

    def on_step_end(self, *_: Any, **__: Any) -> None:
        spent = time.monotonic() - self._began - self._trainer._rollout_seconds
        self._trainer._metrics["train"]["update/seconds"].append(spent)


def verdict(**_: Any) -> list[float]:
    """The reward source that TRL asks for by name; the driver's verdicts are what is used."""
    raise AssertionError("rewards are the verdicts of the rollouts")


def _must_be_fit(policy: PolicyConfig, sampling: Sampling) -> None:
    """Ask the server what it can do, as ``python -m legato.rl probe`` does."""
    report = asyncio.run(probe(policy, sampling))
    for line in report.found:
        if line.mark == "note":
            log.info("server: %s: %s", line.subject, line.text)
    if not report.ok:
        wrong = "; ".join(f"{x.subject}: {x.text}" for x in report.found if x.mark == "wrong")
        raise ConfigError(
            f"training on the server at {policy.url} would be wrong: {wrong} (probe=false trains "
            "all the same)"
        )


def _no_rows(result: BatchResult) -> str:
    said = next((r.error for r in result.tries if r.error), "no rollout took a step")
    return f"no rollout of this step came to a verdict; the last failure said: {said}"
