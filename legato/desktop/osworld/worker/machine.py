"""One OSWorld machine: its DesktopEnv, reset, waits and grading, with the hidden failures shown."""

from __future__ import annotations

import math
import re
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

from desktop_env import desktop_env as osworld

from legato.desktop.osworld.worker import providers, waits
from legato.desktop.osworld.worker.faults import LEDGER, Fault
from legato.desktop.osworld.worker.server import GuestServer, watch

DOWNLOADED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_")
"""Names of set-up files in the cache: the URL's UUID in front, so they stay true."""
TOUCHES_THE_SYSTEM = frozenset({"os", "multi_apps"})
"""Domains whose tasks change more than the home directory: only a snapshot undoes that."""


_NOTHING: dict[str, Any] = {}
"""What stands for "no command was run", apart from ``None``, "it failed"."""


class _Env(osworld.DesktopEnv):  # type: ignore[misc]
    """OSWorld's environment; screenshots are taken by whoever wants one, not with every call."""

    def _get_obs(self) -> dict[str, Any]:
        return {}


class Machine:
    """Serves the calls of one desktop. Every method may raise :class:`Fault`."""

    def __init__(self, options: dict[str, Any], own: providers.Own) -> None:
        self._options = options
        self._cache = Path(options["run_dir"]) / "cache"
        providers.inject(osworld, options, own)
        if options["ready_signal"]:
            waits.shorten_sleeps(lambda: self._env.chromium_port)
        self._ports: set[int] = set()
        self._ran: dict[str, Any] | None = _NOTHING
        self._set_up = True
        watch(lambda: self._ports)
        self._env: Any = self._boot()
        self._baseline: str | None = None
        self._notice_machine()

    def reset(self, task: dict[str, Any], domain: str) -> dict[str, Any]:
        """A clean machine, set up for the task. Says how it was made clean."""
        how = self._clean(domain)
        config = {**task, "config": task.get("config") or []}
        self._empty_cache(config["id"])
        LEDGER.take()
        try:
            self._env.reset(config)
        except Fault:
            raise
        except Exception as e:
            raise Fault("env", f"the task's set-up failed: {_short(e)}{_notes()}") from e
        self._notice_machine()
        if not self._set_up:
            # DesktopEnv.reset gives up after five attempts and returns a screenshot all the same.
            raise Fault("env", f"the task could not be set up: the guest does not answer{_notes()}")
        self._env.is_environment_used = True
        if failed := LEDGER.take():
            raise Fault("env", f"the task's set-up failed: {'; '.join(failed)}")
        return {"how": how}

    def act(self, code: str) -> None:
        """Run pyautogui code, or note ``WAIT``, ``DONE`` or ``FAIL``."""
        self._ran = _NOTHING
        self._env.step(code, pause=0)
        if self._ran is _NOTHING:
            return
        if self._ran is None:
            raise Fault("env", "the guest's server does not answer /execute")
        if self._ran.get("returncode"):
            said = str(self._ran.get("error") or self._ran.get("output")).strip()
            raise Fault(
                "env", f"the guest could not perform it: {said.rpartition(chr(10))[2][-300:]}"
            )

    def screenshot(self) -> bytes:
        return self._server.screenshot()

    def wait(self, rules: dict[str, float], timeout: float) -> dict[str, Any]:
        reason, seconds = waits.wait_ready(self._server, rules, timeout)
        return {"reason": reason, "seconds": seconds}

    def check_unlocked(self) -> None:
        """The guest answers and its screen is not locked."""
        waits.check_unlocked(self._server)

    def evaluate(self) -> float:
        """The verdict of OSWorld's evaluator, in [0, 1]."""
        LEDGER.take()
        try:
            score = self._env.evaluate()
        except Fault:
            raise
        except Exception as e:
            raise Fault("grade", f"the evaluator failed: {_short(e)}{_notes()}") from e
        failed = LEDGER.take()
        try:
            value = float(score)
        except (TypeError, ValueError):
            raise Fault("grade", f"the evaluator returned {score!r}, not a number") from None
        if not 0.0 <= value <= 1.0 or math.isnan(value):
            raise Fault("grade", f"the evaluator returned {value}, which is not in [0, 1]")
        if failed and value < 1.0:
            raise Fault("grade", f"the evaluator's {value:g} is no verdict: {'; '.join(failed)}")
        return value

    def close(self) -> None:
        self._env.close()

    # --- behind the calls ------------------------------------------------------------------------

    def _boot(self) -> _Env:
        options = self._options
        try:
            return _Env(
                provider_name="docker",
                path_to_vm=options["vm_image"],
                snapshot_name="legato",
                action_space="pyautogui",
                cache_dir=str(self._cache),
                screen_size=(options["width"], options["height"]),
                headless=True,
                require_a11y_tree=False,
                os_type="Ubuntu",
                client_password=options["client_password"],
            )
        except Fault:
            raise
        except Exception as e:
            if "no space left on device" in str(e).lower():
                raise Fault(
                    "env",
                    f"the disk of the docker engine is full: {_short(e)}; free some space "
                    "(docker system df)",
                    transient=False,
                ) from e
            raise Fault("env", f"the machine did not start: {_short(e)}") from e

    def _notice_machine(self) -> None:
        """Listen to the controllers, which are new after every revert."""
        env = self._env
        self._server = GuestServer(env.vm_ip, env.server_port)
        self._ports = {env.server_port, env.chromium_port, env.vlc_port}
        execute, setup = env.controller.execute_python_command, env.setup_controller.setup

        def noting_execute(command: str) -> Any:
            self._ran = execute(command)
            return self._ran

        def noting_setup(*args: Any, **more: Any) -> Any:
            self._set_up = bool(setup(*args, **more))
            return self._set_up

        env.controller.execute_python_command = noting_execute
        env.setup_controller.setup = noting_setup
        if self._options["ready_signal"]:
            env.controller.get_file = self._server.file

    def _clean(self, domain: str) -> str:
        env, server = self._env, self._server
        if not env.is_environment_used:
            if not server.answers(30.0):
                raise Fault("env", "the guest's server does not answer")
            if self._baseline is None and self._options["fast_reset"]:
                self._take_baseline()
            return "first"
        if self._options["fast_reset"] and domain not in TOUCHES_THE_SYSTEM and self._restore():
            env.is_environment_used = False
            return "fast"
        # Done here rather than by the reset that follows, to listen to the new controllers.
        env._revert_to_snapshot()
        env._start_emulator()
        env.is_environment_used = False
        self._notice_machine()
        self._set_up = True
        if self._options["fast_reset"]:
            self._take_baseline()
        return "revert"

    def _take_baseline(self) -> None:
        done = self._server.python(_script(), "take", self._options["home"], self._store)
        if "error" in done:
            raise Fault("env", f"the guest's clean state could not be kept: {done['error']}")
        self._baseline = done["sha256"]

    def _restore(self) -> bool:
        """Fast reset; ``False`` when only a snapshot is clean."""
        if self._baseline is None:
            return False
        done = self._server.python(
            _script(), "restore", self._options["home"], self._store, self._baseline
        )
        if "error" in done:
            print(f"fast reset refused: {done['error']}", flush=True)
            self._baseline = None
            return False
        self._baseline = done["sha256"]
        return True

    @property
    def _store(self) -> str:
        return f"/var/tmp/legato-{self._options['desktop']}"

    def _empty_cache(self, task_id: str) -> None:
        """What an earlier attempt left there must not be graded, nor half a download be used."""
        folder = self._cache / task_id
        for kept in folder.iterdir() if folder.is_dir() else ():
            if not DOWNLOADED.match(kept.name):
                shutil.rmtree(kept) if kept.is_dir() else kept.unlink()


def _script() -> str:
    return (files("legato.desktop.osworld.guest") / "baseline.py").read_text()


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:400]}"


def _notes() -> str:
    notes = LEDGER.take()
    return f" ({'; '.join(notes)})" if notes else ""
