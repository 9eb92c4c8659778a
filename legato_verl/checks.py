"""What would make a run fail, or train on something else than it says, told before it starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from legato.errors import ConfigError
from legato.rl.harness import make_harness
from legato.rl.manifest import agree
from legato_verl.loop_names import LOOP, MANAGER
from legato_verl.settings import ESTIMATOR, ESTIMATORS, Settings, read_settings
from legato_verl.tasks import name_tasks

MODES = ("sync", "colocate_async")


class BeforeTheRun(Callback):
    """Hydra calls it with the composed config, before verl does anything with it."""

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        """A wrong config ends the program with one line and exit code 2."""
        try:
            settings = check(config)
            check_record(config, settings)
            check_model(config)
        except ConfigError as e:
            # Hydra turns an exception of a callback into a warning, and goes on
            print(f"error: {e}", file=sys.stderr)
            sys.exit(2)


def check(config: DictConfig) -> Settings:
    """Raise :class:`~legato.errors.ConfigError` naming the field and what to set instead."""
    if not config.trainer.get("use_v1", True):
        raise ConfigError(
            "trainer.use_v1=False: verl's old trainer takes one padded output per rollout and no "
            "groups; leave trainer.use_v1 at true"
        )
    agent = config.actor_rollout_ref.rollout.agent
    if agent.default_agent_loop != LOOP or not agent.get("agent_loop_manager_class"):
        raise ConfigError(
            "the agent loop is only partly set: add +actor_rollout_ref.rollout.agent=legato, and "
            f"leave default_agent_loop at {LOOP} and agent_loop_manager_class at {MANAGER}"
        )
    try:
        settings = read_settings(config)
    except OmegaConfBaseException as e:
        raise ConfigError(f"config: {e}") from None
    settings.desktop.factory()
    make_harness(
        settings.harness.name,
        tokenizer=None,
        image_max=settings.harness.image_max,
        **settings.harness.options,
    )
    _check_mode(config)
    _check_group(config, settings)
    _check_distribution(config)
    for files in (config.data.train_files, config.data.val_files):
        name_tasks(
            files if isinstance(files, str) else list(files),
            backend=settings.desktop.backend_name,
            osworld_path=settings.desktop.osworld_path,
            environment=settings.desktop.options.get("environment"),
            infeasible=settings.rollout.infeasible,
        )
    return settings


def check_record(config: DictConfig, settings: Settings) -> None:
    """Raise :class:`~legato.errors.ConfigError` if rollouts of another run would be mixed in."""
    for validation in (False, True):
        place = settings.record_of(validation=validation)
        if not (place / "run.json").exists():
            continue
        if str(config.trainer.resume_mode) == "disable" and _holds_rollouts(place):
            raise ConfigError(
                f"{place} holds the rollouts of an earlier run, and trainer.resume_mode=disable "
                "begins another: choose a new trainer.default_local_dir, or remove that directory"
            )
        agree(place, settings.manifest(validation=validation))


def _holds_rollouts(place: Path) -> bool:
    records = place / "rollouts.jsonl"
    return records.exists() and records.stat().st_size > 0


def check_model(config: DictConfig) -> None:
    """Raise :class:`~legato.errors.ConfigError` for a model that cannot see."""
    from transformers import AutoConfig, AutoProcessor

    model = config.actor_rollout_ref.model
    path, trust = str(model.path), bool(model.get("trust_remote_code", False))
    try:
        found: Any = AutoConfig.from_pretrained(path, trust_remote_code=trust)
    except (OSError, ValueError) as e:
        raise ConfigError(f"actor_rollout_ref.model.path: no checkpoint at {path!r}: {e}") from None
    if getattr(found, "vision_config", None) is None:
        raise ConfigError(
            f"actor_rollout_ref.model.path: {path!r} is a text-only {found.model_type}; desktops "
            "are seen through screenshots: name a vision-language checkpoint such as "
            "Qwen/Qwen3-VL-8B-Instruct"
        )
    why = "AutoProcessor finds a tokenizer only"
    try:
        processor = AutoProcessor.from_pretrained(path, trust_remote_code=trust)
    except (OSError, ValueError, TypeError, ImportError) as e:
        processor, why = None, str(e)
    if getattr(processor, "image_processor", None) is None:
        raise ConfigError(
            f"actor_rollout_ref.model.path: {path!r} has no image processor ({why}): copy "
            "preprocessor_config.json and processor_config.json of the original model into it, "
            "and see that torchvision is installed"
        )


def _check_mode(config: DictConfig) -> None:
    mode = str(config.trainer.v1.trainer_mode)
    if mode not in MODES:
        raise ConfigError(
            f"trainer.v1.trainer_mode={mode}: rollouts on desktops run under {' or '.join(MODES)}"
        )
    rollout = config.actor_rollout_ref.rollout
    server = None if OmegaConf.is_missing(rollout, "name") else rollout.name
    if server not in (None, "vllm"):  # verl tells itself when there is none
        raise ConfigError(
            f"actor_rollout_ref.rollout.name={server}: what the server must never sample, and "
            "whether it lives, is known of vllm alone"
        )


def _check_group(config: DictConfig, settings: Settings) -> None:
    estimator = str(config.algorithm.adv_estimator)
    if estimator not in ESTIMATORS:
        raise ConfigError(
            f"algorithm.adv_estimator={estimator}: rollouts come in groups; use "
            f"{' or '.join(ESTIMATORS)}"
        )
    if settings.rollout.group < 2:
        raise ConfigError("actor_rollout_ref.rollout.n must be at least 2: it is the group")
    if settings.rollout.min_group > settings.rollout.group:
        raise ConfigError(
            f"legato.min_group ({settings.rollout.min_group}) must not exceed "
            f"actor_rollout_ref.rollout.n ({settings.rollout.group}): nothing would be trained on"
        )
    if estimator == ESTIMATOR and config.algorithm.use_kl_in_reward:
        raise ConfigError(
            "algorithm.use_kl_in_reward would be ignored by adv_estimator=legato, whose "
            "advantages are of the verdicts; use actor_rollout_ref.actor.use_kl_loss"
        )
    if estimator == "grpo" and not config.algorithm.norm_adv_by_std_in_grpo:
        raise ConfigError(
            "algorithm.norm_adv_by_std_in_grpo=False: advantages are scaled within their group"
        )


def _check_distribution(config: DictConfig) -> None:
    rollout = config.actor_rollout_ref.rollout
    if float(rollout.temperature) <= 0:
        raise ConfigError("actor_rollout_ref.rollout.temperature must be above 0 to explore")
    if float(rollout.top_p) != 1.0 or int(rollout.top_k) > 0:
        raise ConfigError(
            "actor_rollout_ref.rollout.top_p and top_k must stay 1 and -1: the trainer's logprobs "
            "are of the whole vocabulary"
        )
    if not rollout.calculate_log_probs:
        raise ConfigError("actor_rollout_ref.rollout.calculate_log_probs must be true")
