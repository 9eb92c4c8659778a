"""verl's ``main_ppo`` on a CPU as a child process: bounded, logged, and read step by step.

::

    with VerlRun("verl/laptop", [f"actor_rollout_ref.model.path={model}"], out) as run:
        for step, metrics in run.steps(timeout=480):
            ...
        code = run.wait(60)
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

REPO = Path(__file__).resolve().parent.parent
ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "HF_HUB_OFFLINE": "1",
    "RAY_DEDUP_LOGS": "0",
    "PYTHONUNBUFFERED": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
MANAGER = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
SHUFFLED = f"{MANAGER}=tools.verl_shuffled.ShuffledManager"
"""Advantages change hands inside each group."""
SWAPPED = f"{MANAGER}=tools.verl_swapped.SwappedManager"
"""Screenshots change hands between two groups of the last step."""
MARK = "LEGATO_VERL_RUN"
"""Environment variable by which the processes of a run are told from all others."""
LOOK_S = 0.5
STOP_S = 60.0
"""How long a run that is stopped may take to close its desktops and Ray."""


class VerlRun:
    """One run, from ``__enter__`` to ``__exit__``; its output goes to ``OUT/output.log``."""

    def __init__(
        self, recipe: str, overrides: Sequence[str], out: Path, *, env: dict[str, str] | None = None
    ) -> None:
        self.out = out.resolve()
        self.log = self.out / "output.log"
        self._metrics = self.out / "metrics.jsonl"
        self._env = os.environ | ENVIRONMENT | {"VERL_FILE_LOGGER_PATH": str(self._metrics)}
        path = [str(REPO), *filter(None, [self._env.get("PYTHONPATH")])]
        self._mark = uuid.uuid4().hex
        self._env |= {"PYTHONPATH": os.pathsep.join(path), MARK: self._mark} | (env or {})
        self._command = [
            *(sys.executable, "-m", "verl.trainer.main_ppo", "--config-name", recipe),
            f"trainer.default_local_dir={self.out}",
            "trainer.logger=[console,file]",
            f"hydra.run.dir={self.out / 'hydra'}",
            *overrides,
        ]
        self._read = 0

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            # The kernel ties "dies with its parent" to the parent's thread.
            raise RuntimeError("start the run from the main thread, it dies with the thread")
        self.out.mkdir(parents=True, exist_ok=True)
        self._metrics.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self._began = log.tell()
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "--", *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                process_group=0,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def steps(self, timeout: float) -> Iterator[tuple[int, dict[str, Any]]]:
        """Step and metrics of everything that verl logs, as it does, until the run ends.

        Raises ``TimeoutError`` if it has not ended within ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            ended = self.process.poll() is not None
            lines = self._metrics.read_bytes().split(b"\n")[:-1] if self._metrics.exists() else []
            for line in lines[self._read :]:
                self._read += 1
                entry = json.loads(line)
                yield int(entry["step"]), entry["data"]
            if ended:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the run did not end in {timeout:g} s; see {self.log}")
            time.sleep(LOOK_S)

    def wait(self, timeout: float) -> int:
        """The exit code; raises ``subprocess.TimeoutExpired``."""
        return self.process.wait(timeout)

    def left(self, timeout: float = 10.0) -> dict[int, str]:
        """The command lines of processes that outlive the run by ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while (found := dict(self.alive())) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return found

    def alive(self) -> Iterator[tuple[int, str]]:
        """Process ids and command lines of the run."""
        mark = f"{MARK}={self._mark}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            if mark in environment and command:
                yield int(folder.name), command.decode(errors="replace").strip()

    def output(self) -> str:
        """All that it has printed so far."""
        return self.log.read_bytes()[self._began :].decode(errors="replace")

    def tail(self, lines: int = 40) -> str:
        """The end of the output."""
        return "\n".join(self.output().splitlines()[-lines:])
