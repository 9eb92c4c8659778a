"""The guest program itself: the machine's state, and what each request does with it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence

from . import files, session, view
from .browsers import Browsers, is_browser
from .busy import BusyMeter
from .frames import Frames
from .launched import Episode, Launched
from .loop import Loop, Reply, Request, failed
from .mux import Mux
from .processes import NotClean, Processes
from .relay import HeldServer, Relay

KILL_S = 5.0
ANSWER_S, THAWED_S, GRABBED_S = 0.5, 0.05, 10.0
"""An X server that takes longer to answer may be held by a program that was stopped; how long that
one then has to let go of it; and for how long this is repeated. In seconds."""
FLUSH_S = 3.0
"""How long an answer to a request from before a freeze is waited for, in seconds."""

BASE_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/games",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "xterm-256color",
    "NO_AT_BRIDGE": "1",  # no accessibility bus: it costs memory and start-up time
    "GTK_A11Y": "none",
    # openbox reads this table again, 70 ms of work, for every key that the driver adds. No one
    # types by dead keys here.
    "XCOMPOSEFILE": "/dev/null",
}

WRITABLE = ("/tmp", "/dev/shm")
"""Emptied by a reset, besides home and runtime directory."""

QUEUES = "/dev/mqueue"
"""POSIX message queues, where the machine shows them."""

WATCH = 0
"""The timer of the watch; the others are known by the pid of their process."""


class Guest:
    """Holds the machine's state; ``handle_*`` are the requests."""

    def __init__(self, home: str, runtime: str, max_processes: int) -> None:
        self.home = home
        self._runtime = runtime
        self.loop = Loop(self._answer)
        self._processes = Processes(self.loop.selector, max_processes)
        self._env = BASE_ENV | {
            "HOME": home,
            "USER": "user",
            "LOGNAME": "user",
            "SHELL": "/bin/bash",
            "XDG_RUNTIME_DIR": runtime,
            "XDG_CONFIG_DIRS": f"{session.STAGE / 'session' / 'xdg'}:/etc/xdg",
        }
        self._session = session.Session(self._processes, self._env)
        self._browsers = Browsers()
        self._busy = BusyMeter(lambda: frozenset((os.getpid(), *self._session.x_pid)))
        self._relays: list[Relay] = []
        self._frames: Frames | None = None
        self._x: socket.socket | None = None
        """The driver's connection to the X server, until its channel is opened."""
        self._episode = Episode()

    def _answer(self, op: str, request: Request) -> Reply | None:
        handler: Callable[[Request], Reply | None] = getattr(self, f"handle_{op}")
        return handler(request)

    def open_channel(self, name: str) -> socket.socket:
        """What is behind a channel that the driver opens; raises ``ConnectionRefusedError``."""
        x, self._x = self._x, None
        if name != "x" or x is None:
            raise ConnectionRefusedError(name)
        return x

    def handle_ping(self, _: Request) -> Reply:
        return Reply()

    def handle_clean(self, _: Request) -> Reply:
        """Kill everything and restore the clean files; raises :class:`NotClean`."""
        for relay in self._relays:
            relay.close()
        self._relays.clear()
        self.loop.timers.clear()
        self._episode = Episode()
        self._processes.kill_all(KILL_S)
        if self._frames is not None:
            self._frames.close()
            self._frames = None
        self._session = session.Session(self._processes, self._env)
        try:
            _remove_ipc(self._processes, self._env)
            for directory in (self.home, self._runtime, *WRITABLE):
                files.empty(directory)
            files.fill(self.home, str(session.STAGE / "home"))
        except (OSError, RecursionError) as e:
            raise NotClean(f"the agent's files could not be removed: {e}") from e
        return Reply()

    def handle_session(self, request: Request) -> Reply:
        """Start the X session; replies with its connection and its screen memory.

        Over a stream the connection is behind the channel ``x``, and the screen is told by looks.
        """
        size = request.args["width"], request.args["height"]
        x, memory = self._session.start(*size, timeout=request.args["timeout"])
        if self.loop.mux is None:
            return Reply(fds=[x.detach(), memory])
        self._x = x
        try:
            self._frames = Frames(memory, session.X_SOCKET)
        finally:
            os.close(memory)
        return Reply()

    def handle_look(self, _: Request) -> Reply:
        """What changed on the screen since the last look, or watch, told it."""
        rects, pixels = self._screen().changes()
        return Reply({"rects": rects}, pixels)

    def handle_watch(self, request: Request) -> None:
        """Look again and again, ``interval`` seconds apart, and tell what the ready signal needs.

        Every message bears the ``number`` of the watch. The time of a look is that of this
        machine's ``time.monotonic()``.
        """
        args, connection = request.args, request.connection
        number, interval = args["number"], args["interval"]

        def look() -> None:
            try:
                rects, pixels = self._screen().changes()
                told = {"watch": number, "rects": rects, "at": time.monotonic()}
                told["requests"] = self._pending()
                told["lost"] = self._lost()
                if not rects:  # else nothing can be at rest yet, and this takes a while
                    told["seconds"] = self._busy.seconds()
            except (OSError, ValueError, RuntimeError) as e:
                self.loop.reply(connection, Reply({"watch": number, **failed(e).header}))
                return
            self.loop.timers[WATCH] = time.monotonic() + interval, look
            self.loop.reply(connection, Reply(told, pixels))

        look()

    def handle_unwatch(self, _: Request) -> None:
        self.loop.timers.pop(WATCH, None)

    def _screen(self) -> Frames:
        if self._frames is None:
            raise RuntimeError("there is no session to look at")
        return self._frames

    def handle_run(self, request: Request) -> None:
        """Run a command as the operator; the reply follows when it has ended."""
        args = request.args
        env, cwd = self._session.env | args["env"], args["cwd"] or self.home
        self._run(request, args["argv"], env, cwd)

    def handle_probe(self, request: Request) -> None:
        """Try the lockdown from within, as a program of the agent; ``ports`` may be open.

        The reply is that of a command whose output is what :mod:`.probe` says.
        """
        interpreter = view.open_interpreter()
        try:
            stage, ports = str(session.STAGE), request.args["ports"]
            command = view.probe_command(interpreter, self.home, stage, ports)
            argv = self._session.inside(command)
            self._run(request, argv, self._session.env, self.home, [interpreter])
        finally:
            os.close(interpreter)

    def handle_outsiders(self, _: Request) -> Reply:
        """Programs that run outside of the agent's view and are not this machine's own."""
        own = {os.getpid(), *self._session.own_pids}
        return Reply({"programs": self._session.outsiders(own)})

    def _run(
        self,
        request: Request,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        keep: Sequence[int] = (),
    ) -> None:
        process = self._processes.start(argv, env, cwd, keep)

        def finish(timed_out: bool) -> None:
            self.loop.timers.pop(process.pid, None)
            process.on_exit = None
            if timed_out:
                self._processes.kill_group(process)
            self._processes.drain(process)
            self._processes.forget(process)
            header = {
                "code": process.exit_code,
                "timed_out": timed_out,
                "stdout_bytes": len(process.stdout.data),
            }
            blob = bytes(process.stdout.data + process.stderr.data)
            self.loop.reply(request.connection, Reply(header, blob))

        process.on_exit = lambda: finish(False)
        due = time.monotonic() + request.args["timeout"]
        self.loop.timers[process.pid] = due, lambda: finish(True)

    def handle_launch(self, request: Request) -> Reply:
        """Start a program; with ``locked``, in the agent's view."""
        argv, env = request.args["argv"], self._session.env | request.args["env"]
        locked = request.args["locked"]
        if locked:
            argv = view.locate(argv)
        within: Callable[[Sequence[str]], list[str]] = self._session.inside if locked else list
        if is_browser(argv, env["PATH"]):
            quiet = session.quiet_flags(argv)
            process = self._processes.launch_with(
                lambda log: self._browsers.start(quiet, env, log, within)
            )
        else:
            process = self._processes.launch(within(argv), env)
        browser, name = is_browser(argv, env["PATH"]), os.path.basename(argv[0])
        self._episode.launched.append(Launched(name, process, locked, browser))
        return Reply({"pid": process.pid})

    def handle_begin(self, _: Request) -> Reply:
        """Set-up is over: what runs now is the agent's to end, and :meth:`handle_lost` looks."""
        self._processes.reap()
        self._episode.begin()
        return Reply()

    def handle_lost(self, _: Request) -> Reply:
        """Names of what ended since :meth:`handle_begin` though not by the agent's doing."""
        return Reply({"names": self._lost()})

    def _lost(self) -> list[str]:
        self._processes.reap()
        return self._session.ended() + self._episode.lost()

    def handle_process(self, request: Request) -> Reply:
        """How a launched program is doing."""
        process = self._processes.get(request.args["pid"])
        if process is None:
            raise ValueError(f"process {request.args['pid']} was not launched here")
        return Reply({"code": process.exit_code, "said": process.stdout.text})

    def handle_write_file(self, request: Request) -> Reply:
        files.write_file(request.args["path"], request.blob, request.args["mode"])
        return Reply()

    def handle_read_file(self, request: Request) -> Reply:
        data = files.read_file(request.args["path"], self.home, request.args["limit"])
        return Reply({"found": data is not None}, data or b"")

    def handle_list_files(self, request: Request) -> Reply:
        return Reply({"files": files.list_files(request.args["path"])})

    def handle_expose(self, request: Request) -> Reply:
        """Open a port that leads to the server whose socket came along.

        Over a stream it leads to the channel that is named after the port.
        """
        port, mux = request.args["port"], self.loop.mux
        server = HeldServer(request.fds[0]) if mux is None else _FarServer(mux, port)
        self._relays.append(Relay(self.loop.selector, port, server))
        return Reply()

    def handle_freeze(self, _: Request) -> Reply:
        """Stop the agent's programs; what they had asked of servers outside is answered first.

        None is stopped while it has the X server for itself: there no one would be heard again.
        """
        until = time.monotonic() + GRABBED_S
        while True:
            self._processes.freeze(keep=self._session.serving)
            if self._session.answers(ANSWER_S):
                break
            if time.monotonic() > until:
                raise NotClean("the X server does not answer once the agent's programs are stopped")
            self._processes.thaw()
            time.sleep(THAWED_S)
        until = time.monotonic() + FLUSH_S
        for relay in self._relays:
            relay.flush(until)
        return Reply()

    def handle_busy(self, _: Request) -> Reply:
        return Reply({"seconds": self._busy.seconds()})

    def handle_pending(self, _: Request) -> Reply:
        return Reply({"requests": self._pending()})

    def _pending(self) -> int:
        """Requests that will end soon, as the browsers and our own relays see them.

        A relay also sees what no devtools do: the first request of a page in a new tab, which is
        sent before we are attached, and browsers that the agent started. What it sees beyond the
        background requests of the browsers is therefore awaited as well.
        """
        awaited, background = self._browsers.in_flight()
        relayed = sum(relay.unanswered() for relay in self._relays)
        return max(awaited, relayed - background)


class _FarServer:
    """A server at the other end of a stream."""

    def __init__(self, mux: Mux, port: int) -> None:
        self._mux, self._name = mux, f"port {port}"

    def connect(self) -> socket.socket:
        return self._mux.open(self._name)

    def close(self) -> None:
        """It is the driver's."""


def _remove_ipc(processes: Processes, env: dict[str, str]) -> None:
    """Segments and queues outlive their makers; the namespace keeps them."""
    if os.path.isdir(QUEUES):
        files.empty(QUEUES)
    for kind in ("shm", "sem", "msg"):
        with open(f"/proc/sysvipc/{kind}") as f:
            if len(f.readlines()) > 1:
                process = processes.start(["ipcrm", "--all"], env)
                if not processes.wait(process, KILL_S):
                    raise NotClean("System V segments could not be removed")
                processes.forget(process)
                return
