"""What a run is told in verl's own fields and under ``legato:``, as the driver's settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from legato.errors import ConfigError
from legato.rl.config import DesktopConfig, HarnessConfig, RolloutConfig
from legato.rl.driver import GroupOptions
from legato.rl.manifest import Manifest
from legato.rl.rollout import Limits
from legato.rl.settings import build
from legato.rl.types import Sampling

ESTIMATOR = "legato"
"""``algorithm.adv_estimator`` that takes the driver's advantages as they are."""
ESTIMATORS = ("grpo", ESTIMATOR)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Bounds of a row, in tokens with images expanded."""

    prompt: int
    """``data.max_prompt_length``: of a prompt that begins a row."""
    response: int
    """``data.max_response_length``: a whole row, screenshots included, may hold this much more."""
    model: int | None = None
    """``rollout.max_model_len``."""
    reply: int = 512
    """Of one turn's reply."""

    @property
    def whole(self) -> int:
        total = self.prompt + self.response
        return total if self.model is None else min(total, self.model)


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked; see ``conf/actor_rollout_ref.rollout.agent/legato.yaml`` for what each is."""

    model: str
    desktop: DesktopConfig
    harness: HarnessConfig
    rollout: RolloutConfig
    lengths: Lengths
    step_timeout: float
    max_inflight: int | None
    """Of one agent-loop worker."""
    record_dir: Path
    seed: int | None
    sheet_steps: int
    """Steps between two contact sheets in the trackers; 0: none."""

    def record_of(self, *, validation: bool) -> Path:
        """Where training rollouts, or those of validation, are recorded."""
        place = self.record_dir
        return place.with_name(f"{place.name}-val") if validation else place

    @property
    def groups(self) -> GroupOptions:
        chosen = self.rollout
        return GroupOptions(chosen.group, chosen.oversample, chosen.env_retries, chosen.min_group)

    @property
    def limits(self) -> Limits:
        return Limits(self.rollout.max_steps, self.rollout.rollout_timeout)

    def sampling(self, asked: Mapping[str, Any], banned: tuple[int, ...]) -> Sampling:
        """verl's sampling parameters of a batch; ``banned`` is what verl's server never samples."""
        return Sampling(
            temperature=float(asked["temperature"]),
            top_p=float(asked["top_p"]),
            top_k=max(0, int(asked["top_k"])),
            max_tokens=self.lengths.reply,
            banned_ids=banned,
            seed=self.seed,
        )

    def manifest(self, *, validation: bool) -> Manifest:
        """What the run directory says; tasks stream in and versions move on."""
        desktop = self.desktop
        return Manifest(
            group=None if validation else self.rollout.group,
            min_group=self.rollout.min_group,
            settings={
                "policy": {"model": self.model, "api": "verl"},
                "harness": {
                    "name": self.harness.name,
                    "image_max": self.harness.image_max,
                    "options": dict(self.harness.options),
                },
                "desktop": {
                    "backend": desktop.backend_name,
                    "width": desktop.width,
                    "height": desktop.height,
                    "ready_signal": desktop.ready_signal,
                    "fixed_wait": desktop.fixed_wait,
                    "options": dict(desktop.options),
                },
                "max_steps": self.rollout.max_steps,
                "rollout_timeout": self.rollout.rollout_timeout,
                "oversample": self.rollout.oversample,
                "seed": self.seed,
            },
            session={
                "desktops": self.rollout.desktops,
                "env_retries": self.rollout.env_retries,
                "step_timeout": self.step_timeout,
                "max_inflight": self.max_inflight,
            },
        )


_FIELDS = frozenset(
    {
        "desktop",
        "desktops",
        "env_retries",
        "harness",
        "infeasible",
        "live",
        "max_inflight",
        "max_reply_length",
        "max_turns",
        "min_group",
        "oversample",
        "record_dir",
        "rollout_timeout",
        "seed",
        "sheet_steps",
        "step_timeout",
    }
)


def read_settings(config: DictConfig) -> Settings:
    """The settings of a composed verl config.

    Raises :class:`~legato.errors.ConfigError` naming the field.
    """
    node = OmegaConf.select(config, "legato")
    if node is None:
        raise ConfigError(
            "the config has no legato: node: add +actor_rollout_ref.rollout.agent=legato"
        )
    chosen = OmegaConf.to_container(node, resolve=True)
    assert isinstance(chosen, dict)
    if unknown := sorted(map(str, set(chosen) - _FIELDS)):
        raise ConfigError(
            f"unknown setting legato.{unknown[0]}; known: {', '.join(sorted(_FIELDS))}"
        )
    rollout = config.actor_rollout_ref.rollout
    step_timeout = _number(chosen, "step_timeout", 1)
    inflight = chosen.get("max_inflight")
    if inflight is not None:
        inflight = int(_number(chosen, "max_inflight", 1))
        workers = max(1, int(rollout.agent.num_workers))
        if inflight < workers:
            raise ConfigError(
                f"legato.max_inflight={inflight} is shared by {workers} agent-loop workers: set "
                f"at least {workers}, or fewer actor_rollout_ref.rollout.agent.num_workers"
            )
        inflight //= workers
    desktop = build(DesktopConfig, chosen.get("desktop") or {}, "legato.desktop")
    if desktop.osworld_path:
        place = str(Path(desktop.osworld_path).expanduser().resolve())
        desktop = replace(desktop, osworld_path=place)
    return Settings(
        model=str(config.actor_rollout_ref.model.path),
        desktop=desktop,
        harness=build(HarnessConfig, chosen.get("harness") or {}, "legato.harness"),
        rollout=build(
            RolloutConfig,
            {
                "desktops": chosen.get("desktops", 4),
                "group": int(rollout.n),
                "oversample": chosen.get("oversample", 0.0),
                "max_steps": chosen.get("max_turns", 15),
                "rollout_timeout": chosen.get("rollout_timeout"),
                "env_retries": chosen.get("env_retries", 1),
                "min_group": chosen.get("min_group", 2),
                "seed": chosen.get("seed"),
                "infeasible": chosen.get("infeasible", True),
            },
            "legato",
        ),
        lengths=Lengths(
            prompt=int(rollout.prompt_length),
            response=int(rollout.response_length),
            model=None if rollout.max_model_len is None else int(rollout.max_model_len),
            reply=int(_number(chosen, "max_reply_length", 1)),
        ),
        step_timeout=step_timeout,
        max_inflight=inflight,
        record_dir=Path(str(chosen.get("record_dir") or "rollouts")).expanduser().resolve(),
        seed=chosen.get("seed"),
        sheet_steps=int(_number(chosen, "sheet_steps", 0)),
    )


def _number(chosen: Mapping[Any, Any], name: str, least: float) -> float:
    value = chosen.get(name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value < math.inf:  # type: ignore[operator]
        raise ConfigError(f"legato.{name} must be a number of at least {least:g}, got {value!r}")
    return float(value)  # type: ignore[arg-type]
