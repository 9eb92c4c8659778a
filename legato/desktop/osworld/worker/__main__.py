"""The worker's loop: one request at a time on the main thread, and a lifeline on another.

Request: ``{"op", ...}``; reply: ``{"result"}`` or ``{"error": {"kind", "message", "transient"}}``,
and a screenshot's bytes as the blob. Before a reply there may be ``{"own": {...}}``: what the other
side is to remove should this process be unable to. When the socket closes, the machine is destroyed
at once, whatever the main thread is doing.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from typing import Any

from legato.desktop.guest import wire
from legato.desktop.osworld.worker import owner, providers, stubs, waits
from legato.desktop.osworld.worker.faults import Fault

SEND_S = 60.0
IDLE_S = 3600.0
Request = dict[str, Any]


class Worker:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._machine: Any = None
        self._options: dict[str, Any] = {}
        self._owned: dict[str, Any] = {}

    def run(self) -> None:
        threading.Thread(target=self._listen, name="lifeline", daemon=True).start()
        while True:
            request = self._requests.get()
            op, blob, reply = request.pop("op"), b"", dict[str, Any]()
            try:
                result = self._serve(op, request)
                blob, result = (result, None) if isinstance(result, bytes) else (b"", result)
                reply["result"] = result
            except Fault as e:
                reply["error"] = {"kind": e.kind, "message": str(e), "transient": e.transient}
            wire.send(self._channel, reply, blob, deadline=time.monotonic() + SEND_S)
            if op == "close":
                return

    def _serve(self, op: str, request: Request) -> Any:
        match op:
            case "check":
                return check(request["options"])
            case "boot":
                from legato.desktop.osworld.worker.machine import Machine

                options = self._options = request["options"]
                rules = options["rules"]
                options["settle"] = lambda server: waits.wait_ready(server, rules, 60.0)
                self._machine = Machine(options, self._own)
                return None
            case "close":
                if self._machine is not None:
                    self._machine.close()
                self._destroy()
                return None
            case _:
                return getattr(self._machine, op)(**request)

    def _own(self, what: dict[str, Any]) -> None:
        self._owned.update(what)
        wire.send(self._channel, {"own": what}, deadline=time.monotonic() + SEND_S)

    def _listen(self) -> None:
        channel = self._channel.dup()  # a socket's time limit belongs to one thread
        while True:
            try:
                header, _, _ = wire.receive(channel, deadline=time.monotonic() + IDLE_S)
            except TimeoutError:
                continue
            except (OSError, ValueError):
                self._destroy()
                os._exit(0)
            self._requests.put(header)

    def _destroy(self) -> None:
        if pid := self._owned.get("pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._options.get("provider") == "docker":
            owner.remove(providers.docker_client(), self._options["desktop"])


def check(options: dict[str, Any]) -> None:
    """What can be known without a machine. Raises :class:`Fault` of kind ``config``."""
    try:
        importlib.import_module("desktop_env.desktop_env")
    except ImportError as e:
        raise Fault(
            "config",
            f"OSWorld's environment is incomplete ({e}): run `python -m legato.rl osworld-setup`",
        ) from None
    if options["provider"] == "docker":
        providers.check_docker(providers.docker_client())


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.dup2(2, 1)  # OSWorld's code prints
    stubs.install()
    Worker(channel).run()


if __name__ == "__main__":
    main()
