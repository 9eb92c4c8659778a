"""Composes configs as verl's own entry point does, in a process that knows our entry point."""

from __future__ import annotations

from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from legato_verl.search_path import use_config_groups


def composed(name: str = "ppo_trainer", *overrides: str, **_: Any) -> DictConfig:
    use_config_groups()
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(name, overrides=list(overrides))
