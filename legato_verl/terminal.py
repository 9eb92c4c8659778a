"""The desktops of a run, live on the terminal where ``main_ppo`` was started.

verl trains in an actor whose output Ray carries here, line by line. A thread beside it asks the
run's recorder what the desktops do, and draws that under those lines; where output is no terminal,
it adds a line of its own now and then.
"""

from __future__ import annotations

import atexit
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import ray
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from ray.exceptions import GetTimeoutError, RayError
from rich import get_console
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from legato.rl.progress import LINE_EVERY_S, REFRESH_PER_S, draw, say, tally
from legato_verl.recorder import NAME

ASK_S = 5.0
STOP_S = 10.0


class Terminal(Callback):
    """Hydra calls it around the run."""

    def __init__(self) -> None:
        self._showing: Showing | None = None

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        if OmegaConf.select(config, "legato.live"):
            console = get_console()
            self._showing = Drawing(console) if console.is_terminal else Lines(console)
            self._showing.start()

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        if self._showing is not None:
            self._showing.stop()


class Showing(ABC):
    """A thread that shows what the recorder of this process's Ray job tells."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="legato-terminal", daemon=True)

    def start(self) -> None:
        # An interrupted program comes to no end of its job, and would leave a hidden cursor.
        atexit.register(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """Leave the last lines where they are. Idempotent."""
        self._over.set()
        self._thread.join(STOP_S)

    @abstractmethod
    def _run(self) -> None:
        """Show until it is over."""


class Drawing(Showing):
    """The live table, under the lines that Ray carries here."""

    _state: Mapping[str, Any] | None = None

    def _run(self) -> None:
        with Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=REFRESH_PER_S,
            transient=True,
        ):
            while not self._over.wait(1 / REFRESH_PER_S):
                self._state = told()

    def _render(self) -> RenderableType:
        return Text() if self._state is None else draw(self._state, self._console.height)


class Lines(Showing):
    """A plain line every :data:`~legato.rl.progress.LINE_EVERY_S`, while there is news."""

    def _run(self) -> None:
        said = None
        while not self._over.wait(LINE_EVERY_S):
            state = told()
            if state is None:
                continue
            news = [state[key] for key in ("title", "verdicts", "groups_done", "lost")]
            if news != said:
                said = news
                say(self._console, tally(state))


def told() -> Mapping[str, Any] | None:
    """The state of the run's board, ``None`` while there is none."""
    if not ray.is_initialized():
        return None
    try:
        state: Mapping[str, Any] = ray.get(ray.get_actor(NAME).look.remote(), timeout=ASK_S)
    except (ValueError, GetTimeoutError, RayError):
        return None  # not begun yet, over, or too busy to say
    return state
