"""TRL trains vision-language policies on desktops: GRPO whose reward is the verdict."""

from legato_trl.config import LegatoGRPOConfig
from legato_trl.dataset import to_dataset
from legato_trl.openings import openings
from legato_trl.recipe import Recipe, load_recipe
from legato_trl.stock import rollout_func, verdict_reward
from legato_trl.trainer import LegatoGRPOTrainer

__all__ = [
    "LegatoGRPOConfig",
    "LegatoGRPOTrainer",
    "Recipe",
    "load_recipe",
    "openings",
    "rollout_func",
    "to_dataset",
    "verdict_reward",
]
