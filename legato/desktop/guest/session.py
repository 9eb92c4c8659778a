"""The X session of a desktop: X server, window manager, message bus, panel.

All but the X server run in the agent's view (:mod:`.view`), as does whatever they start.
Everything here is started again from nothing by every reset.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from . import execution, view
from .frames import HELLO
from .processes import ENDED, Process, Processes, state_of

DISPLAY = ":0"
WM = "the window manager"
X_SOCKET = f"/tmp/.X11-unix/X{DISPLAY[1:]}"
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
        """bubblewrap, which ends with the window manager inside."""
        self._wm_pid = -1
        self._parts: dict[str, Process] = {}

    def ended(self) -> list[str]:
        """Names of the session's own programs that ended. No agent has a way to end them."""
        gone = [name for name, part in self._parts.items() if part.exit_code is not None]
        # bubblewrap takes a moment to follow the window manager in it
        if self._wm is not None and WM not in gone and state_of(self._wm_pid) in ENDED:
            gone.append(WM)
        return gone

    @property
    def serving(self) -> list[int]:
        """Pids of the X server and the window manager."""
        wm = [self._wm_pid] if self._wm is not None and self._wm.exit_code is None else []
        return self.x_pid + wm

    @property
    def own_pids(self) -> list[int]:
        """Pids of what runs here outside of the agent's view."""
        return self.x_pid + ([] if self._wm is None else [self._wm.pid])

    @property
    def x_pid(self) -> list[int]:
        return [self._x.pid] if self._x is not None and self._x.exit_code is None else []

    def answers(self, timeout: float) -> bool:
        """Whether the X server, if there is one, lets a new client in within ``timeout`` s.

        It does not while another client has it for itself (``XGrabServer``).
        """
        if not self.x_pid:
            return True
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout)
            try:
                client.connect(X_SOCKET)
                client.sendall(HELLO)
                return bool(client.recv(1))
            except OSError:
                return False

    def inside(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv``, its program named by full path, in the view."""
        if self._wm is None or self._wm.exit_code is not None:
            raise view.NotLocked("the window manager is gone, and the agent's view with it")
        return view.join_command(self._wm_pid, self.env["HOME"], argv)

    def outsiders(self, own: set[int]) -> list[str]:
        """Names of running programs outside of the agent's view, pids in ``own`` apart."""
        return [] if self._wm is None else view.outsiders(self._wm_pid, own)

    def start(self, width: int, height: int, timeout: float) -> tuple[socket.socket, int]:
        """Start everything and wait until the window manager manages windows.

        Returns a connection to the X server, on which nothing was said yet, and the descriptor of
        its screen memory (an XWD file). Both exist before any program of the agent can put
        something else in their place. Raises :class:`SessionFailed`, or
        :class:`~.view.NotLocked` if the agent's view could not be made as it must be.
        """
        if self._x is not None:
            raise view.NotLocked("a desktop runs already: its programs may have left the view")
        deadline = time.monotonic() + timeout
        memory = _screen_memory(width, height)
        managed = -1
        try:
            self._x = self._start_x(f"{width}x{height}x24", memory, deadline)
            self.env["DISPLAY"] = DISPLAY
            managed = self._start_wm(deadline)
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(X_SOCKET)
            # openbox sets its "running" property before it manages windows; its start-up
            # command runs after.
            self._await_wm(managed, deadline)
            self._forbid_execution()
            self._start_bus()
            # Without a window manager it would look again only a second later.
            panel = self._launch("tint2", "-c", str(STAGE / "session" / "tint2rc"))
            self._parts |= {"the X server": self._x, "the panel": panel}
            if self._wm is not None:
                self._parts[WM] = self._wm
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
        argv = [DISPLAY, "-screen", "0", geometry, "-nolisten", "tcp", "-noreset", "-ac"]
        argv += ["-maxclients", "2048", "-dpi", "96", "-extension", "GLX", "-fbdir", screen]
        argv += ["-displayfd", str(ready_in)]

        program = shutil.which("Xvfb", path=self.env["PATH"]) or "/usr/bin/Xvfb"
        try:
            x = self._processes.launch_with(lambda log: _spawn([program, *argv], self.env, log))
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
        if "dbus-daemon" in view.installed_programs():
            address = self.env["DBUS_SESSION_BUS_ADDRESS"]
            options = (
                f"--config-file={STAGE}/session/bus.conf",
                "--nofork",
                "--nopidfile",
                f"--address={address}",
            )
            self._parts["the message bus"] = self._launch("dbus-daemon", *options)

    def _start_wm(self, deadline: float) -> int:
        if "dbus-daemon" in view.installed_programs():
            self.env["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={self.env['XDG_RUNTIME_DIR']}/bus"
        fifo = f"{PRIVATE}/managed"
        if os.path.exists(fifo):
            os.unlink(fifo)
        os.mkfifo(fifo, 0o600)
        managed = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        config = str(STAGE / "session" / "openbox.xml")
        argv = ["openbox", "--config-file", config, "--startup", f"touch {fifo}"]
        info, info_in = os.pipe()
        os.set_inheritable(info_in, True)
        types = view.open_types()
        try:
            argv[0] = f"{view.SHOWN_AT}/{argv[0]}"
            command = view.view_command(self.env["HOME"], str(STAGE), info_in, types, argv)
            self._wm = self._processes.launch_with(lambda log: _spawn(command, self.env, log))
            os.close(info_in)
            info_in = -1
            self._wm_pid = view.read_pid(info, deadline)
        except BaseException:
            os.close(managed)
            raise
        finally:
            os.close(info)
            for fd in (info_in, types):
                if fd >= 0:
                    os.close(fd)
        return managed

    def _forbid_execution(self) -> None:
        """Nothing of the agent's runs yet, and the window manager has loaded what it needs."""
        try:
            execution.forbid_execution(self._wm_pid, view.SHOWN_AT)
        except OSError as e:
            raise view.NotLocked(f"the agent's view lets everything be executed: {e}") from e

    def _launch(self, *argv: str) -> Process:
        return self._processes.launch(self.inside(view.locate(argv)), self.env)

    def _await_wm(self, managed: int, deadline: float) -> None:
        """Wait until the window manager has run its start-up command on our fifo."""
        while not select.select([managed], [], [], 0.05)[0]:
            self._check_start("openbox", self._wm, deadline)

    def _await(self, fd: int, deadline: float, name: str, process: Process | None) -> None:
        """Wait for a line from a program that starts; notice soon if it ends instead."""
        said = b""
        while not said.endswith(b"\n"):  # closing the pipe any sooner would kill the writer
            if select.select([fd], [], [], 0.05)[0]:
                chunk = os.read(fd, 64)
                said += chunk
                if chunk:
                    continue
            self._check_start(name, process, deadline)

    def _check_start(self, name: str, process: Process | None, deadline: float) -> None:
        self._processes.reap()
        if process is not None and process.exit_code is not None:
            self._processes.drain(process)
            complaint = process.stderr.text.strip()
            raise SessionFailed(f"{name} ended with {process.exit_code}: {complaint[-500:]}")
        if time.monotonic() > deadline:
            raise SessionFailed(f"{name} did not come up in time")


def _spawn(command: list[str], env: dict[str, str], log: int) -> int:
    """Start a program in a session of its own. Unlike ``Popen`` it leaves descriptors open."""
    stdio = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
    ]
    return os.posix_spawn(command[0], command, env, file_actions=stdio, setsid=True)


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


def browser_command() -> str:
    """How panel and menu start a browser."""
    return f"chromium {' '.join(BROWSER_FLAGS)}"


def chromium_defaults() -> str:
    """A file for ``/etc/chromium.d``: the same flags for a browser that the agent starts.

    Debian's start script reads that directory.
    """
    return f'export CHROMIUM_FLAGS="$CHROMIUM_FLAGS {" ".join(BROWSER_FLAGS)}"\n'
