"""Contact sheets of the latest batch in a trainer's experiment tracker."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from legato.errors import ConfigError
from legato.rl.types import Rollout
from legato.view.sheet import make_sheet
from legato.view.strip import strip_of

Tracker = Literal["tensorboard", "wandb", "trackio"]
TAG = "legato/rollouts"
ROLLOUTS = 8
"""How many a sheet shows."""


class SheetLogger:
    """Logs a sheet every so many training steps to the trackers that the trainer reports to.

    ::

        sheets = SheetLogger(["wandb"], every=10, screen=(1280, 720))
        ...
        sheets.log(step, rollouts)     # after each batch; cheap on the steps in between
    """

    def __init__(
        self,
        trackers: Iterable[str],
        *,
        every: int,
        screen: tuple[int, int],
        log_dir: str | Path | None = None,
    ) -> None:
        """``trackers`` may name others, too (a trainer's ``report_to``): they get no sheet.

        ``every`` is in training steps, 0 for never. ``screen`` is the desktop's (width, height)
        in pixels, ``log_dir`` the directory of tensorboard's events. Wandb and trackio log to the
        run that is active in this process. Raises :class:`ConfigError` if a tracker is not
        installed or tensorboard has no directory.
        """
        known: dict[str, Any] = {
            "tensorboard": lambda: _Tensorboard(log_dir),
            "wandb": _Wandb,
            "trackio": _Trackio,
        }
        self._every = every
        self._screen = screen
        self._targets = (
            [known[name]() for name in dict.fromkeys(trackers) if name in known] if every else []
        )

    def due(self, step: int) -> bool:
        """Whether this step wants a sheet, and somebody would see it."""
        return bool(self._targets) and step % self._every == 0

    def log(self, step: int, rollouts: Sequence[Rollout]) -> bool:
        """Log a sheet if it is time for one; ``True`` if it was. Blocks for some 100 ms."""
        if not self.due(step):
            return False
        strips = [strip_of(rollout, self._screen) for rollout in rollouts if rollout.steps]
        if not strips:
            return False
        self.put(step, make_sheet(strips[:ROLLOUTS]))
        return True

    def put(self, step: int, sheet: Image.Image) -> None:
        """Log a sheet that was made elsewhere."""
        for target in self._targets:
            target.log(sheet, step)

    def close(self) -> None:
        for target in self._targets:
            target.close()


class _Tensorboard:
    """Its own event file in the trainer's directory; tensorboard shows both as one run."""

    def __init__(self, log_dir: str | Path | None) -> None:
        if log_dir is None:
            raise ConfigError("sheets for tensorboard need log_dir, the trainer's event directory")
        module = _module("torch.utils.tensorboard", "tensorboard")
        self._writer = module.SummaryWriter(str(log_dir))

    def log(self, sheet: Image.Image, step: int) -> None:
        import numpy as np

        self._writer.add_image(TAG, np.asarray(sheet), step, dataformats="HWC")
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """The run that the trainer has begun in this process."""

    def __init__(self) -> None:
        self._module = _module("wandb", "wandb")

    def log(self, sheet: Image.Image, step: int) -> None:
        # With a step nothing is committed, so the sheet joins the trainer's row of that step; a
        # step that wandb has passed would be dropped.
        at = max(step, self._module.run.step) if self._module.run else step
        self._module.log({TAG: self._module.Image(sheet, caption=_caption(step))}, step=at)

    def close(self) -> None:
        """The run is the trainer's."""


class _Trackio:
    """The run that the trainer has begun in this process."""

    def __init__(self) -> None:
        self._module = _module("trackio", "trackio")

    def log(self, sheet: Image.Image, step: int) -> None:
        # Without a step trackio would put it at a step of its own count.
        self._module.log({TAG: self._module.Image(sheet, caption=_caption(step))}, step=step)

    def close(self) -> None:
        """The run is the trainer's."""


def _caption(step: int) -> str:
    return f"training step {step}"


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise ConfigError(f"sheets for {package} need it installed: pip install {package}") from e
