"""The X session of a desktop: X server, message bus, window manager, panel.

Everything here is started again from nothing by every reset.
"""

from __future__ import annotations

import fcntl
import os
import select
import shlex
import shutil
import socket
import time
from pathlib import Path

from .processes import Process, Processes

DISPLAY = ":0"
PRIVATE = "/run/desk"
"""Directory of the session's own files (screen memory, start signal)."""
STAGE = Path(__file__).resolve().parent.parent
"""Where this program was put; ``session/`` beside it holds the configuration files."""

BROWSER_FLAGS = (
    # Quiet from the first start, with no network to ask.
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-search-engine-choice-screen",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--disable-domain-reliability",
    "--disable-breakpad",
    "--hide-crash-restore-bubble",
    "--password-store=basic",
    # The X server has no GL: without this every start probes for it first.
    "--disable-gpu",
    "--disable-features=Translate,MediaRouter,OptimizationHints,DialMediaRouteProvider",
)


class SessionFailed(RuntimeError):  # noqa: N818 - a state
    """The X session did not come up."""


class Session:
    """A running X session; ``env`` is what programs in it need."""

    def __init__(self, processes: Processes, env: dict[str, str]) -> None:
        self._processes = processes
        self.env = dict(env)
        self._x: Process | None = None
        self._wm: Process | None = None

    @property
    def serving(self) -> list[int]:
        """Pids of the X server and the window manager."""
        return [p.pid for p in (self._x, self._wm) if p is not None and p.exit_code is None]

    @property
    def x_pid(self) -> list[int]:
        return self.serving[:1]

    def start(self, width: int, height: int, timeout: float) -> tuple[socket.socket, int]:
        """Start everything and wait until the window manager manages windows.

        Returns a connection to the X server, on which nothing was said yet, and the descriptor of
        its screen memory (an XWD file). Both exist before any program of the agent can put
        something else in their place. Raises :class:`SessionFailed`.
        """
        deadline = time.monotonic() + timeout
        memory = _screen_memory(width, height)
        managed = -1
        try:
            self._x = self._start_x(f"{width}x{height}x24", memory, deadline)
            self.env["DISPLAY"] = DISPLAY
            self._start_bus()
            managed = self._start_wm()
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(f"/tmp/.X11-unix/X{DISPLAY[1:]}")
            # openbox sets its "running" property before it manages windows; its start-up
            # command runs after.
            self._await(managed, deadline, "openbox", self._wm)
            # Without a window manager it would look again only a second later.
            self._launch("tint2", "-c", str(STAGE / "session" / "tint2rc"))
        except BaseException:
            os.close(memory)
            raise
        finally:
            if managed >= 0:
                os.close(managed)
        return connection, memory

    def _start_x(self, geometry: str, memory: int, deadline: float) -> Process:
        screen = f"{PRIVATE}/screen"
        shutil.rmtree(screen, ignore_errors=True)
        os.mkdir(screen, 0o700)
        os.symlink(f"/proc/self/fd/{memory}", f"{screen}/Xvfb_screen0")
        os.makedirs("/tmp/.X11-unix", exist_ok=True)  # a server that is not root does not
        ready, ready_in = os.pipe()
        os.set_inheritable(ready_in, True)
        argv = ["Xvfb", DISPLAY, "-screen", "0", geometry, "-nolisten", "tcp", "-noreset", "-ac"]
        argv += ["-maxclients", "2048", "-dpi", "96", "-extension", "GLX", "-fbdir", screen]
        argv += ["-displayfd", str(ready_in)]

        def spawn(log: int) -> int:
            # Not by Popen, which would close the descriptors for memory and ready signal.
            stdio = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ]
            program = shutil.which("Xvfb", path=self.env["PATH"]) or "/usr/bin/Xvfb"
            return os.posix_spawn(program, argv, self.env, file_actions=stdio, setsid=True)

        try:
            x = self._processes.launch_with(spawn)
            os.close(ready_in)
            ready_in = -1
            self._await(ready, deadline, "Xvfb", x)
            os.set_inheritable(memory, False)
            return x
        finally:
            os.close(ready)
            if ready_in >= 0:
                os.close(ready_in)

    def _start_bus(self) -> None:
        """A message bus of the session: GTK programs look for it and stall without one."""
        if shutil.which("dbus-daemon", path=self.env["PATH"]) is None:
            return
        address = f"unix:path={self.env['XDG_RUNTIME_DIR']}/bus"
        self._launch("dbus-daemon", "--session", "--nofork", "--nopidfile", f"--address={address}")
        self.env["DBUS_SESSION_BUS_ADDRESS"] = address

    def _start_wm(self) -> int:
        fifo = f"{PRIVATE}/managed"
        if os.path.exists(fifo):
            os.unlink(fifo)
        os.mkfifo(fifo, 0o600)
        managed = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        config = str(STAGE / "session" / "openbox.xml")
        told = f"sh -c {shlex.quote(f'echo > {fifo}')}"
        self._wm = self._launch("openbox", "--config-file", config, "--startup", told)
        return managed

    def _launch(self, *argv: str) -> Process:
        return self._processes.launch(argv, self.env)

    def _await(self, fd: int, deadline: float, name: str, process: Process | None) -> None:
        """Wait for a line from a program that starts; notice soon if it ends instead."""
        said = b""
        while not said.endswith(b"\n"):  # closing the pipe any sooner would kill the writer
            if select.select([fd], [], [], 0.05)[0]:
                chunk = os.read(fd, 64)
                said += chunk
                if chunk:
                    continue
            self._processes.reap()
            if process is not None and process.exit_code is not None:
                self._processes.drain(process)
                complaint = process.stderr.text.strip()
                raise SessionFailed(f"{name} ended with {process.exit_code}: {complaint[-500:]}")
            if time.monotonic() > deadline:
                raise SessionFailed(f"{name} did not come up in time")


def _screen_memory(width: int, height: int) -> int:
    """A memory file for Xvfb's screen that no one can cut short under the driver that maps it.

    Xvfb writes header, colour map and pixels (4 bytes each); a little more than that is fine.
    """
    memory = os.memfd_create("screen", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, width * height * 4 + 2**16)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    os.set_inheritable(memory, True)
    return memory


def quiet_flags(argv: list[str]) -> list[str]:
    """``argv`` of a browser with the first-run flags it lacks."""
    return [argv[0], *(flag for flag in BROWSER_FLAGS if flag not in argv), *argv[1:]]


def chromium_defaults() -> str:
    """A file for ``/etc/chromium.d``: the same flags for a browser that the agent starts.

    Debian's start script reads that directory.
    """
    return f'export CHROMIUM_FLAGS="$CHROMIUM_FLAGS {" ".join(BROWSER_FLAGS)}"\n'
