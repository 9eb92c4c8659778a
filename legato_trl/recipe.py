"""Recipes: YAML files that Hydra composes with the config groups of the command line tools.

A recipe names a ``model``, a ``desktop`` and a ``harness`` (members of those groups, changed where
it says so), and under ``trainer`` the fields of :class:`~legato_trl.config.LegatoGRPOConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, get_type_hints

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from legato.errors import ConfigError
from legato.rl.settings import config_dir
from legato_trl.config import LegatoGRPOConfig

_PARTS = frozenset({"model", "desktop", "harness", "trainer"})


@dataclass(frozen=True, slots=True)
class Recipe:
    model: str
    """Checkpoint directory or hub id."""
    trainer: LegatoGRPOConfig


class ConfigGroups(SearchPathPlugin):
    """Lets recipes draw on the groups in ``configs/``."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append(provider="legato", path=f"file://{config_dir()}")


def recipe_dir() -> Path:
    """Where the recipes are: inside the installed package, or beside it in a checkout."""
    package = Path(str(files("legato")))
    for place in (package / "recipes", package.parent / "recipes"):
        if (place / "trl").is_dir():
            return (place / "trl").resolve()
    raise ConfigError("legato's recipes are missing: reinstall the package")


def load_recipe(name: str, overrides: Sequence[str] = (), *, place: Path | None = None) -> Recipe:
    """Compose and check a recipe of ours, or of the folder ``place``.

    Raises :class:`~legato.errors.ConfigError` naming the field.
    """
    use_config_groups()
    try:
        folder = str(place or recipe_dir())
        with initialize_config_dir(version_base="1.3", config_dir=folder):
            return read_recipe(compose(name, overrides=list(overrides)))
    except HydraException as e:
        raise ConfigError(str(e)) from None


def use_config_groups() -> None:
    """Make the groups in ``configs/`` known to Hydra. Idempotent."""
    Plugins.instance().register(ConfigGroups)


def read_recipe(tree: DictConfig) -> Recipe:
    """Check a composed recipe. Raises :class:`~legato.errors.ConfigError` naming the field."""
    try:
        plain = OmegaConf.to_container(tree, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as e:
        raise ConfigError(f"recipe: {str(e).splitlines()[0]}") from None
    assert isinstance(plain, dict)
    unknown = sorted(set(map(str, plain)) - _PARTS)
    if unknown:
        raise ConfigError(f"unknown part {unknown[0]!r} in the recipe; known: {sorted(_PARTS)}")
    chosen: Mapping[str, Any] = plain.get("trainer") or {}
    known = {f.name for f in fields(LegatoGRPOConfig) if f.init} - {"desktop", "harness"}
    for key in chosen:
        if key not in known:
            raise ConfigError(f"unknown field trainer.{key}; it takes those of LegatoGRPOConfig")
    chosen = {str(key): _typed(str(key), value) for key, value in chosen.items()}
    parts = {key: plain[key] for key in ("desktop", "harness") if key in plain}
    try:
        trainer = LegatoGRPOConfig(**parts, **chosen)
    except (TypeError, ValueError) as e:
        raise ConfigError(f"trainer: {e}") from None
    return Recipe(str(plain["model"]), trainer)


def _typed(key: str, value: Any) -> Any:
    """The value as its field's type; dataclasses themselves take anything."""
    hint = get_type_hints(LegatoGRPOConfig)[key]
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as e:
        problem = e.errors(include_url=False)[0]["msg"]
        raise ConfigError(f"trainer.{key}: {problem}, got {value!r}") from None
