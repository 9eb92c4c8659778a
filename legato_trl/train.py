"""``python -m legato_trl.train --config-name RECIPE model=... [trainer.FIELD=VALUE ...]``.

Trains a recipe of ``recipes/trl``, or of a folder of your own given by ``--config-dir``. Runs as
it stands under ``accelerate launch -m legato_trl.train``.
"""

from __future__ import annotations

import logging
import sys

import hydra
from omegaconf import DictConfig
from rich.logging import RichHandler

from legato.errors import ConfigError, LegatoError
from legato_trl.recipe import Recipe, read_recipe, recipe_dir, use_config_groups
from legato_trl.trainer import LegatoGRPOTrainer

log = logging.getLogger(__name__)


def train(recipe: Recipe) -> LegatoGRPOTrainer:
    """Train, evaluating before and after where variants are held out; the model is saved.

    ``resume_from_checkpoint`` goes on from a checkpoint of TRL's; the record goes on with it.
    """
    trainer = LegatoGRPOTrainer(recipe.model, recipe.trainer)
    try:
        resume = recipe.trainer.resume_from_checkpoint
        if trainer.eval_dataset is not None and not resume:
            trainer.evaluate()
        trainer.train(resume_from_checkpoint=resume)
        if trainer.eval_dataset is not None:
            trainer.evaluate()
        trainer.save_model()
    finally:
        trainer.close()
    return trainer


def _compose() -> list[DictConfig]:
    """What the command line asks for: one recipe, or as many as ``--multirun`` makes of it."""
    composed: list[DictConfig] = []
    # Nothing but composing happens inside: Hydra ends the process at an exception, and its way.
    hydra.main(version_base="1.3", config_path=None)(composed.append)()
    return composed


def main() -> None:
    """Errors of ours end in one line, and exit code 2 (1: lost on the way)."""
    use_config_groups()
    flags = [argument.partition("=")[0] for argument in sys.argv[1:]]
    if not {"--config-dir", "-cd", "--config-path", "-cp"} & set(flags):
        sys.argv[1:1] = ["--config-dir", str(recipe_dir())]
    # Hydra would change the folder, and write its own logs beside the trainer's.
    sys.argv += ["hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=none"]
    logging.basicConfig(
        level=logging.INFO, format="%(message)s", handlers=[RichHandler(show_path=False)]
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        for tree in _compose():
            if not tree:
                names = ", ".join(sorted(path.stem for path in recipe_dir().glob("*.yaml")))
                raise ConfigError(f"give --config-name: a recipe of yours, or one of {names}")
            train(read_recipe(tree))
    except ConfigError as e:
        print(f"error: {e}", file=sys.stderr)
        sys.exit(2)
    except LegatoError as e:
        print(f"failed: {e}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
