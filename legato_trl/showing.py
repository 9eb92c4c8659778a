"""What is to be seen of a run: desktops on the terminal, contact sheets in the tracker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import get_console
from tqdm.auto import tqdm
from transformers import TrainerCallback
from transformers.integrations import TensorBoardCallback

from legato.rl.board import Board
from legato.rl.progress import LiveTable, PlainLines
from legato.rl.types import Rollout
from legato.view.trackers import SheetLogger
from legato_trl.config import LegatoGRPOConfig


def board_for(args: LegatoGRPOConfig) -> Board:
    """What the main process shows: a live table on a terminal, where tqdm's bar would write into
    it; elsewhere a plain line now and then, beside that bar and the trainer's lines."""
    if not args.live or args.process_index != 0:
        return Board()
    console = get_console()
    if console.is_terminal:
        args.disable_tqdm = True
        return LiveTable(console)
    return _BesideBar(console, every_group=False)


class _BesideBar(PlainLines):
    """Puts tqdm's bar aside meanwhile: in a log both may be in one file."""

    def report(self, news: str = "") -> None:
        with tqdm.external_write_mode():
            super().report(news)


class Sheets:
    """Contact sheets for the trackers of ``report_to``, begun once those have begun."""

    def __init__(self, args: LegatoGRPOConfig, screen: tuple[int, int]) -> None:
        self._args = args
        self._screen = screen
        self._logger: SheetLogger | None = None

    def log(
        self, step: int, rollouts: Sequence[Rollout], callbacks: Sequence[TrainerCallback]
    ) -> None:
        """A sheet of these rollouts, if it is time for one.

        Raises :class:`~legato.errors.ConfigError` if a tracker is not installed.
        """
        if self._logger is None:
            self._logger = SheetLogger(
                self._args.report_to or (),
                every=self._args.sheet_steps,
                screen=self._screen,
                log_dir=self._events(callbacks),
            )
        self._logger.log(step, rollouts)

    def close(self) -> None:
        if self._logger is not None:
            self._logger.close()

    def _events(self, callbacks: Sequence[TrainerCallback]) -> Path:
        """Tensorboard's directory of this very run, so that it shows both as one."""
        for callback in callbacks:
            writer = getattr(callback, "tb_writer", None)
            if isinstance(callback, TensorBoardCallback) and writer is not None:
                return Path(writer.log_dir)
        return Path(self._args.output_dir or "trainer_output") / "runs"
