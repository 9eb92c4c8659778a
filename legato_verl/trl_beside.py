"""verl 0.9 takes a class from TRL, if that is installed, which TRL no longer has.

It is of no use to verl's present trainers, so where TRL lacks it verl is told that there is no TRL
(verl ``models/transformers/monkey_patch.py``). This lets both trainers live in one environment.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import verl.utils.import_utils as import_utils

NAME = "is_trl_available"
HOME = Path("experimental") / "ppo"
"""Where in TRL verl looks for the class."""


def settle() -> None:
    """Idempotent."""
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None or (Path(found.origin).parent / HOME).exists():
        return
    for module in [import_utils, *list(sys.modules.values())]:
        if getattr(module, "__name__", "").startswith("verl.") and NAME in vars(module):
            setattr(module, NAME, _never)


def _never() -> bool:
    return False
