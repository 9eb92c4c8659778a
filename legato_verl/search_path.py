"""Where Hydra finds ``+actor_rollout_ref.rollout.agent=legato``, our groups and our recipes.

The folder ``conf`` holds one named ``actor_rollout_ref.rollout.agent``: to Hydra a config group of
that very name, so the override reads like one of verl's own keys.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from legato.errors import ConfigError
from legato.rl.settings import config_dir


class LegatoConfigs(SearchPathPlugin):
    """Adds our folders behind those of the program that asks."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in (Path(__file__).parent / "conf", config_dir(), recipe_dir()):
            search_path.append(provider="legato", path=f"file://{folder}")


def recipe_dir() -> Path:
    """Parent of ``verl/``, the recipes: in the installed package, or beside it in a checkout."""
    package = Path(str(files("legato")))
    for place in (package / "recipes", package.parent / "recipes"):
        if (place / "verl").is_dir():
            return place.resolve()
    raise ConfigError("legato's recipes are missing: reinstall the package")


def use_config_groups() -> None:
    """Make them known to Hydra in this process. Idempotent."""
    Plugins.instance().register(LegatoConfigs)
