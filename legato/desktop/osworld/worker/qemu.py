"""QEMU started and driven by us: boots a qcow2 once and goes back to it by ``loadvm``.

The image itself is never written: the machine runs on an overlay, which also holds the snapshot
with its memory. Formats: QEMU's machine protocol (QMP,
https://www.qemu.org/docs/master/interop/qmp-spec.html).
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from legato.desktop.osworld.worker.faults import Fault
from legato.desktop.osworld.worker.server import GuestServer

GUEST_PORTS = (5000, 9222, 8006, 8080)
"""OSWorld's server, the browser's devtools, VNC and VLC, in the order DesktopEnv expects."""
PORT_TRIES = 5
SNAPSHOT = "legato"
SPARE_MIB = 2048
"""Room for what the guest writes, on top of its memory in the snapshot."""
MONITOR_S = 180.0
"""Longest a snapshot may take to write or to load."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


class QemuProvider:
    """An OSWorld provider (``desktop_env.providers.base.Provider``).

    Called from the process's main thread: the machine dies with the thread that started it.
    """

    def __init__(self, options: dict[str, Any], own: Callable[[dict[str, Any]], None]) -> None:
        self._options, self._own = options, own
        self._folder = Path(options["run_dir"])
        self._process: subprocess.Popen[bytes] | None = None
        self._monitor: Monitor | None = None
        self._ports: tuple[int, ...] = ()

    def start_emulator(self, path_to_vm: str, headless: bool, os_type: str = "Ubuntu") -> None:
        """Boot and keep the snapshot; a machine that runs is left running."""
        if self._process is not None and self._process.poll() is None:
            return
        self._check_room()
        overlay = self._folder / "disk.qcow2"
        overlay.unlink(missing_ok=True)
        _tool(
            [
                "qemu-img",
                "create",
                "-q",
                "-f",
                "qcow2",
                "-F",
                "qcow2",
                "-b",
                path_to_vm,
                str(overlay),
            ],
            f"{path_to_vm} is no usable qcow2 image",
        )
        self._start(overlay)
        assert self._monitor is not None
        ends = time.monotonic() + self._options["boot_timeout"]
        server = GuestServer("localhost", self._ports[0])
        while not server.answers():
            self._check_alive("while it booted")
            if time.monotonic() >= ends:
                raise Fault(
                    "env",
                    f"the guest's server did not answer within {self._options['boot_timeout']:g} s "
                    "of booting: is this OSWorld's image?",
                )
            time.sleep(0.2)
        self._options["settle"](server)
        self._monitor.human(f"savevm {SNAPSHOT}")

    def get_ip_address(self, path_to_vm: str) -> str:
        return ":".join(["localhost", *map(str, self._ports)])

    def save_state(self, path_to_vm: str, snapshot_name: str) -> None:
        assert self._monitor is not None
        self._monitor.human(f"savevm {snapshot_name}")

    def revert_to_snapshot(self, path_to_vm: str, snapshot_name: str) -> str:
        self._check_alive("before it was reverted")
        assert self._monitor is not None
        self._monitor.human(f"loadvm {SNAPSHOT}")
        self._set_clock()
        return path_to_vm

    def stop_emulator(self, path_to_vm: str, *_: Any, **__: Any) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def _start(self, overlay: Path) -> None:
        for attempt in range(PORT_TRIES):
            self._ports = _free_ports(len(GUEST_PORTS))
            monitor = self._folder / "monitor"
            monitor.unlink(missing_ok=True)
            with open(self._folder / "qemu.log", "wb") as log:
                self._process = subprocess.Popen(
                    self._command(overlay, monitor),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=_die_with_parent,
                )
            self._own({"pid": self._process.pid})
            try:
                self._monitor = Monitor(monitor, self._process)
                return
            except Fault:
                said = (self._folder / "qemu.log").read_text(errors="replace").strip()
                self.stop_emulator("")
                taken = "host forwarding rule" in said
                if not taken or attempt == PORT_TRIES - 1:
                    reason = said.splitlines()[0] if said else "no reason given"
                    raise Fault("env", f"QEMU did not start: {reason[-300:]}") from None

    def _command(self, overlay: Path, monitor: Path) -> list[str]:
        options = self._options
        forwards = "".join(
            f",hostfwd=tcp:127.0.0.1:{port}-:{guest}"
            for port, guest in zip(self._ports, GUEST_PORTS, strict=True)
        )
        kvm = options["acceleration"] == "kvm"
        return [
            "qemu-system-x86_64",
            *("-accel", "kvm" if kvm else "tcg,thread=multi"),
            *("-cpu", "host" if kvm else "max"),
            *("-smp", str(options["cpus"]), "-m", str(options["memory_mib"])),
            *("-display", "none", "-no-reboot"),
            *("-qmp", f"unix:{monitor},server=on,wait=off"),
            *("-drive", f"file={overlay},if=virtio,format=qcow2,cache=unsafe,discard=unmap"),
            *("-netdev", f"user,id=net0{forwards}"),
            *("-device", "virtio-net-pci,netdev=net0"),
            *options["qemu_args"],
        ]

    def _check_room(self) -> None:
        wanted = self._options["memory_mib"] + SPARE_MIB
        free = shutil.disk_usage(self._folder).free // 2**20
        if free < wanted:
            raise Fault(
                "env",
                f"{self._folder} has {free} MiB free and the machine needs {wanted}: free some "
                "space or set TMPDIR",
            )

    def _check_alive(self, when: str) -> None:
        if self._process is None or self._process.poll() is not None:
            said = (self._folder / "qemu.log").read_text(errors="replace").strip()
            raise Fault("env", f"QEMU ended {when}: {said[-300:] or 'no reason given'}")

    def _set_clock(self) -> None:
        """The snapshot's clock stood still; certificates and tasks go by the true one."""
        server = GuestServer("localhost", self._ports[0])
        command = f"sudo -S -p '' date -s @{time.time():.0f} >/dev/null"
        password = self._options["client_password"]
        try:
            ran = server.run(
                ["sh", "-c", f'printf "%s\\n" "$0" | {command}', password], timeout=60.0
            )
            said = ran.error.strip() if ran.returncode else ""
        except Fault as e:
            said = str(e)
        if said:
            print(f"the guest's clock could not be set: {said[-200:]}", flush=True)


class Monitor:
    """QEMU's machine protocol over its socket."""

    def __init__(self, path: Path, process: subprocess.Popen[bytes]) -> None:
        ends = time.monotonic() + 30.0
        while True:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(str(path))
                break
            except OSError:
                sock.close()
                if process.poll() is not None or time.monotonic() >= ends:
                    raise Fault("env", "QEMU did not start") from None
                time.sleep(0.05)
        sock.settimeout(MONITOR_S)
        self._sock, self._stream = sock, sock.makefile("rwb")
        self._read()  # the greeting
        self._ask("qmp_capabilities")

    def human(self, line: str) -> None:
        """A command of the human monitor; whatever it prints is a complaint."""
        said = str(self._ask("human-monitor-command", **{"command-line": line}))
        if said.strip():
            raise Fault("env", f"QEMU refused {line!r}: {said.strip()[:300]}")

    def _ask(self, command: str, **arguments: Any) -> Any:
        try:
            self._sock.settimeout(MONITOR_S)
            body = {"execute": command, "arguments": arguments}
            self._stream.write(json.dumps(body).encode() + b"\n")
            self._stream.flush()
            while True:
                reply = self._read()
                if "return" in reply:
                    return reply["return"]
                if "error" in reply:
                    raise Fault("env", f"QEMU refused {command}: {reply['error']['desc']}")
        except (OSError, ValueError) as e:
            raise Fault("env", f"QEMU's monitor does not answer: {e}") from None

    def _read(self) -> dict[str, Any]:
        try:
            line = self._stream.readline()
        except ConnectionError:
            line = b""
        if not line:
            raise Fault("env", "QEMU is gone")
        reply: dict[str, Any] = json.loads(line)
        return reply


def _free_ports(count: int) -> tuple[int, ...]:
    """Ports that nobody listens on now; another process may be faster, so the caller retries."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return tuple(sock.getsockname()[1] for sock in sockets)
    finally:
        for sock in sockets:
            sock.close()


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setpgid(0, 0)


def _tool(argv: list[str], what: str) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    except OSError as e:
        raise Fault("env", f"{argv[0]}: {e.strerror}") from None
    if done.returncode:
        raise Fault("env", f"{what}: {done.stderr.strip().splitlines()[-1][-300:]}")
