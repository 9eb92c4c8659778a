"""Ends a run that would hang: verl waits without a limit for what a dead process owes it.

A thread beside the trainer's waits for the end of every agent-loop worker and model server, asks
the servers whether their engines live, and listens to what workers report as hopeless. A worker is
replaced. Anything else raises :class:`Hopeless`, with what was found or reported, in the
trainer's own thread, wherever it waits; a trainer that does not notice is ended with its process.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any

import ray
from ray.exceptions import RayError

from legato.errors import LegatoError

log = logging.getLogger(__name__)

LOOK_S = 5.0
"""How often engines are asked."""
NOTICE_S = 60.0
"""How long the trainer's thread has to notice."""
SIGNAL = signal.SIGUSR1


class Hopeless(LegatoError):  # noqa: N818 - the name says what is the case
    """The run cannot go on."""


class Watch:
    """``with Watch(manager, server_managers): train()``, from the process's main thread."""

    def __init__(self, manager: Any, server_managers: Sequence[Any]) -> None:
        self._manager = manager
        self._servers = {
            f"model server {address}": handle
            for servers in server_managers
            for address, handle in zip(
                servers.server_addresses, servers.server_handles, strict=True
            )
        }
        self._over = threading.Event()
        self._why: str | None = None
        self._thread = threading.Thread(target=self._run, name="legato-watch", daemon=True)
        self._before: Any = None

    def __enter__(self) -> Watch:
        self._before = signal.signal(SIGNAL, self._raise)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._over.set()
        signal.signal(SIGNAL, self._before)
        if self._why is not None and isinstance(error, KeyboardInterrupt):
            raise Hopeless(self._why) from None

    def _raise(self, number: int, frame: FrameType | None) -> None:
        # ray.get swallows whatever else a signal's handler raises while it waits
        if not self._over.is_set():
            raise KeyboardInterrupt(self._why)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._end(self._wait())
        except Exception as e:  # a watch that breaks must not leave the run unwatched
            self._end(f"the watch over the run broke: {type(e).__name__}: {e}")

    def _wait(self) -> str | None:
        """Why the run cannot go on; ``None`` when it is over."""
        verdict = self._manager.recorder.verdict.remote()
        workers = self._manager.agent_loop_workers
        stays = {worker.stay.remote(): number for number, worker in enumerate(workers)}
        asked: dict[Any, str] = {}
        while not self._over.wait(LOOK_S):
            for name, handle in self._servers.items():
                if name not in asked.values():
                    asked[handle.__ray_call__.remote(engine_problem)] = name
            ended, _ = ray.wait([verdict, *stays, *asked], num_returns=1, timeout=LOOK_S)
            while ended:
                ref = ended.pop()
                if ref is verdict or ref == verdict:
                    # workers see a dead engine as lost rollouts, and may tell before it is asked
                    return self._dead_server() or str(ray.get(ref))
                if ref in asked:
                    problem = _answer(ref, asked.pop(ref))
                    if problem is not None:
                        return problem
                elif ref in stays:
                    number = stays.pop(ref)
                    self._manager.replace(number)
                    stays[self._manager.agent_loop_workers[number].stay.remote()] = number
        return None

    def _dead_server(self) -> str | None:
        for name, handle in self._servers.items():
            ref = handle.__ray_call__.remote(engine_problem)
            answered, _ = ray.wait([ref], timeout=LOOK_S)
            if answered and (problem := _answer(ref, name)) is not None:
                return problem
        return None

    def _end(self, why: str | None) -> None:
        if why is None or self._over.is_set():
            return
        self._why = why
        print(f"error: {why}", file=sys.stderr, flush=True)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, SIGNAL)
        if not self._over.wait(NOTICE_S):
            os._exit(1)


def engine_problem(server: Any) -> str | None:
    """Runs in a model server: what is wrong with its engine; ``None`` if nothing is known."""
    if getattr(getattr(server, "engine", None), "errored", False):
        return str(getattr(server.engine, "dead_error", "the engine is dead"))
    return None


def _answer(ref: Any, name: str) -> str | None:
    try:
        problem = ray.get(ref)
    except RayError as e:
        return f"{name} died: {type(e).__name__}"
    return None if problem is None else f"the vLLM worker of {name} died: {problem}"
