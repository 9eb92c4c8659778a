"""The OSWorld desktop: one machine of OSWorld's, driven by a worker process of its own."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import threading
import time
import uuid
from dataclasses import asdict
from typing import Any

from legato.desktop import ready
from legato.desktop.actions import (
    Answer,
    AnyAction,
    Done,
    Fail,
    TakeScreenshot,
    Wait,
    check_on_screen,
)
from legato.desktop.contract import (
    ActResult,
    Desktop,
    DesktopOptions,
    Ready,
    Score,
    Screenshot,
    Task,
)
from legato.desktop.extras import Deadlines
from legato.desktop.osworld.environment import Environment
from legato.desktop.osworld.options import OSWorldOptions
from legato.desktop.osworld.process import WorkerProcess
from legato.desktop.osworld.pyautogui_code import write_code
from legato.errors import ConfigError, EnvFailure

log = logging.getLogger(__name__)

CHECK_S = 300.0
"""Deadline of the first look at OSWorld's environment; its imports take seconds, cold."""
_POLL_S = 0.05


class OSWorldDesktop(Desktop):
    """Implements ``Desktop``, ``CanPrepare``, ``CanKill`` and ``CanCheckHealth``.

    The machine is booted once and kept up between rollouts; after a failure the next call of
    :meth:`prepare` or :meth:`reset` makes a new one. A machine takes gigabytes, so there is no
    standby.
    """

    standby = False

    def __init__(self, options: DesktopOptions, slot: int = 0) -> None:
        self._options = options
        self._osworld = OSWorldOptions.read(options.extra)
        self._slot = slot
        self._environment = Environment(self._osworld.environment.expanduser().absolute())
        self._cwd, self._image = self._osworld.checkout, self._osworld.image
        self._environment.check()
        self.deadlines = Deadlines(
            prepare=self._osworld.boot_timeout + 300.0,
            reset=self._osworld.boot_timeout + 600.0,
            act=120.0 + self._osworld.wait_after_reset,
            observe=60.0,
            evaluate=600.0,
            close=60.0,
        )
        """OSWorld's set-up steps download files, and its getters open pages of the internet."""
        self._worker: WorkerProcess | None = None
        self._task: Task | None = None
        self._killed = False
        self._guard = threading.Lock()
        self.last_reset: str | None = None
        """How the last reset made the machine clean: ``first``, ``fast`` or ``revert``."""
        _check_once(self._osworld, self._environment)

    def prepare(self) -> None:
        """Boot the machine, if it is not up."""
        self._running()

    def reset(self, task: Task) -> None:
        self._task = task
        config = {**task.config, "id": task.task_id, "instruction": task.instruction}
        result, _ = self._call("reset", self.deadlines.reset, task=config, domain=task.domain)
        self.last_reset = result["how"]

    def wait_after_reset(self) -> Ready:
        ready = self._wait(self._osworld.wait_after_reset, self._options.ready_timeout)
        self._call("check_unlocked", self.deadlines.observe)
        return ready

    def observe(self) -> Screenshot:
        taken_at = time.time()
        _, png = self._call("screenshot", self.deadlines.observe)
        return Screenshot.from_png(png, taken_at)

    def act(self, action: AnyAction) -> ActResult:
        check_on_screen(action, self._options.width, self._options.height)
        code = write_code(action)
        started = time.monotonic()
        self._call("act", self.deadlines.act, code=code)
        if isinstance(action, Wait):
            time.sleep(action.seconds)
        act_s = time.monotonic() - started
        if isinstance(action, TakeScreenshot | Done | Fail | Answer):
            return ActResult(act_s, Ready("none", 0.0))
        return ActResult(act_s, self._wait(self._options.fixed_wait, self._options.ready_timeout))

    def wait_before_eval(self) -> Ready:
        return self._wait(self._osworld.wait_before_eval, self._options.ready_timeout)

    def evaluate(self) -> Score:
        if self._task is None:
            raise EnvFailure("there is no task to evaluate: reset the desktop to one first")
        reward, _ = self._call("evaluate", self.deadlines.evaluate)
        return Score(reward, output=f"OSWorld's evaluator: {reward:g}")

    def check_health(self) -> None:
        self.observe()
        self._call("check_unlocked", self.deadlines.observe)

    def kill(self) -> None:
        with self._guard:
            self._killed = True
            worker = self._worker
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        self.kill()

    # --- the worker ------------------------------------------------------------------------------

    def _call(self, op: str, deadline: float, **arguments: Any) -> tuple[Any, bytes]:
        worker = self._running() if op == "reset" else self._worker
        if worker is None:
            raise EnvFailure("this desktop is not running: prepare or reset it first")
        try:
            return worker.call(op, arguments, deadline)
        except EnvFailure:
            self._drop()
            raise

    def _running(self) -> WorkerProcess:
        if self._worker is not None:
            return self._worker
        desktop = f"{self._slot}-{uuid.uuid4().hex[:12]}"
        with self._guard:
            if self._killed:
                raise EnvFailure("this desktop was killed; make a new one")
            worker = self._worker = WorkerProcess(self._environment, self._cwd, desktop)
        worker.owns(provider=self._osworld.provider)
        try:
            worker.call(
                "boot", {"options": self._wire_options(desktop, worker)}, self.deadlines.prepare
            )
        except ConfigError as e:
            self._drop()  # it was all right when the run began
            raise EnvFailure(str(e)) from e
        except EnvFailure:
            self._drop()
            raise
        return worker

    def _drop(self) -> None:
        """A machine that failed is never used again."""
        with self._guard:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()

    def _wire_options(self, desktop: str, worker: WorkerProcess) -> dict[str, Any]:
        return {
            "desktop": desktop,
            "run_dir": str(worker.folder),
            "width": self._options.width,
            "height": self._options.height,
            "ready_signal": self._options.ready_signal,
            "fast_reset": self._options.fast_reset,
            "rules": _rules(),
            "vm_image": str(self._image),
            **self._osworld.model_dump(
                mode="json",
                include={
                    *("provider", "cpus", "memory_mib", "acceleration", "qemu_args"),
                    *("client_password", "home", "boot_timeout"),
                },
            ),
        }

    def _wait(self, fixed: float, timeout: float) -> Ready:
        if self._options.ready_signal:
            result, _ = self._call(
                "wait", timeout + self.deadlines.act, rules=_rules(), timeout=timeout
            )
            return Ready(result["reason"], result["seconds"])
        ends = time.monotonic() + fixed
        while (left := ends - time.monotonic()) > 0:
            if self._killed:
                raise EnvFailure("the desktop was killed during a wait")
            time.sleep(min(left, _POLL_S))
        return Ready("fixed", fixed)


def make_desktop(options: DesktopOptions, slot: int) -> OSWorldDesktop:
    """The factory behind the entry point ``osworld``. Raises ``ConfigError``."""
    return OSWorldDesktop(options, slot)


def _rules() -> dict[str, float]:
    """The ready signal's numbers, for the script that applies them inside the guest."""
    return {
        **asdict(ready.ReadyRules()),
        "tile": ready.TILE,
        "slot_s": ready.SLOT_S,
        "slots": ready.SLOTS,
        "mask_slots": ready.MASK_SLOTS,
        "steady_slots": ready.STEADY_SLOTS,
        "poll_s": ready.POLL_S[0],
    }


def _check_once(options: OSWorldOptions, environment: Environment) -> None:
    if options.acceleration == "kvm" and not os.access("/dev/kvm", os.R_OK | os.W_OK):
        raise ConfigError(
            "OSWorld's machines need KVM and /dev/kvm cannot be used: run on a host with "
            "virtualisation, join the group kvm, or accept software emulation with "
            "desktop.options.acceleration=tcg"
        )
    for program in ("qemu-system-x86_64", "qemu-img") if options.provider == "qemu" else ():
        if shutil.which(program) is None:
            raise ConfigError(
                f"the provider qemu needs {program}: install QEMU (Debian: qemu-system-x86 and "
                "qemu-utils)"
            )
    _ask_worker(options.provider, environment, options.checkout)


@functools.lru_cache(maxsize=8)
def _ask_worker(provider: str, environment: Environment, cwd: Any) -> None:
    """What only OSWorld's environment can tell, asked once a process."""
    worker = WorkerProcess(environment, cwd, "check")
    try:
        worker.call("check", {"options": {"provider": provider}}, CHECK_S)
    except EnvFailure as e:
        raise ConfigError(f"OSWorld's environment does not work: {e}") from e
    finally:
        worker.kill()
