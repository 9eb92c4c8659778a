"""Page requests in flight, told by the browsers of a desktop over their devtools pipe.

A browser is started with ``--remote-debugging-pipe``: it reads commands from descriptor 3 and
writes replies and events to descriptor 4, each message one JSON text ended by a NUL byte (the
DevTools protocol, https://chromedevtools.github.io/devtools-protocol/). The other end belongs to
the guest program alone, so the agent, who shares the machine but not its descriptors, has no
devtools; no port is ever opened.

Counted are requests and frame loads that will end by themselves. Not counted, because they would
keep a page "loading" for ever: event streams, sockets, media, beacons, a request older than
:data:`LONG_S` and later ones to the same address (long polls), and an address that a script asks
again and again (:data:`POLL_REPEATS` times, one after the other, within :data:`POLL_WINDOW_S`).
A page that stands still behind a dialog counts nothing until the dialog is closed.

Runs inside the sandbox under the system's own Python: standard library only.
"""

import collections
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

LONG_S = 5.0
"""A request or frame load older than this, in seconds, is not going to end soon."""
BODY_S = 0.5
"""A ``fetch()`` whose body has been silent for this long, in seconds, is over: the browser reports
no end for a body that the page does not read."""
POLL_REPEATS = 4
POLL_WINDOW_S = 5.0
MEMORY = 256
"""Addresses remembered per browser, oldest forgotten first."""

UNENDING = frozenset({"EventSource", "WebSocket", "Media", "Ping", "CSPViolationReport"})
"""Resource types that are open as long as the page likes, or that no one waits for."""
FETCHED = frozenset({"XHR", "Fetch"})
"""Resource types a script can ask for in a loop."""

Message = dict[str, Any]


@dataclass
class _Request:
    session: str
    kind: str
    address: str
    started: float
    heard: float
    """When its answer last showed a sign of life."""
    answered: bool = False
    background: bool = False
    """In flight, but not worth waiting for."""

    def unread(self, now: float) -> bool:
        return self.answered and self.kind == "Fetch" and now - self.heard >= BODY_S


class InFlight(NamedTuple):
    """Requests and frame loads under way."""

    awaited: int
    """Those that will end by themselves, and soon."""
    background: int
    """The others."""


@dataclass
class _Load:
    session: str
    started: float


class PageLoads:
    """The bookkeeping of one browser: devtools events in, follow-up commands and a count out.

    Requests and frames are kept by their ids, which are unique in a browser: one that starts in
    a page's session may end in that of the frame or worker it became. Thread-safe; ``clock``
    gives monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._requests: dict[str, _Request] = {}
        self._frames: dict[str, _Load] = {}
        self._dialogs: set[str] = set()
        self._held_tabs: dict[int, str] = {}
        """Id of the command whose reply lets a new tab go on, to its session."""
        self._asked_state: dict[int, tuple[str, str]] = {}
        """Id of the command whose reply says how far a page is, to its session and frame."""
        self._slow: dict[str, None] = {}
        self._asked: dict[str, collections.deque[float]] = {}
        self._last_id = 0

    def hello(self) -> list[Message]:
        """The commands to send first."""
        return [self._command("Target.setAutoAttach", **_TABS)]

    def handle(self, message: Message) -> list[Message]:
        """Take one message from the browser; returns the commands to send in answer."""
        handler = HANDLERS.get(message.get("method", ""))
        with self._lock:
            if (tab := self._held_tabs.pop(message.get("id", 0), None)) is not None:
                return [self._command("Runtime.runIfWaitingForDebugger", tab)]
            if (asked := self._asked_state.pop(message.get("id", 0), None)) is not None:
                self._state(*asked, message)
                return []
            if handler is None:
                return []
            return handler(self, message.get("sessionId", ""), message.get("params", {})) or []

    def in_flight(self) -> InFlight:
        """What is under way now."""
        with self._lock:
            self._sort_out(self._clock())
            requests = self._requests.values()
            owners = [r.session for r in requests if not r.background]
            owners += [f.session for f in self._frames.values()]
            awaited = sum(owner not in self._dialogs for owner in owners)
            return InFlight(awaited, len(requests) + len(self._frames) - awaited)

    def _sort_out(self, now: float) -> None:
        for key in [k for k, r in self._requests.items() if r.unread(now)]:
            del self._requests[key]
        for key in [k for k, f in self._frames.items() if now - f.started >= LONG_S]:
            del self._frames[key]
        for request in self._requests.values():
            if not request.background and now - request.started >= LONG_S:
                request.background = True
                if request.kind in FETCHED and not request.answered:
                    _remember(self._slow, request.address, None)

    def _command(self, method: str, session: str = "", **params: Any) -> Message:
        self._last_id += 1
        message: Message = {"id": self._last_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        return message

    def _attached(self, _parent: str, params: Message) -> list[Message]:
        session, kind = params["sessionId"], params["targetInfo"]["type"]
        attach = self._command("Target.setAutoAttach", session, **_WITHIN)
        if kind == "tab":
            # Held until its page, which is announced before the reply to this, is listened to:
            # the page itself is not stopped at its start.
            self._held_tabs[attach["id"]] = session
            return [attach]
        commands = [attach, self._command("Network.enable", session, **_KEEP_NOTHING)]
        follow_up: list[Message] = []
        if kind in ("page", "iframe"):
            commands.append(self._command("Page.enable", session))
            commands.append(self._command("Inspector.enable", session))
            # A window's first page may have begun to load by now, and nothing tells of what is
            # past: so it is asked. A document that comes only later is announced.
            commands.append(self._command("Page.setLifecycleEventsEnabled", session, enabled=True))
            asked = self._command("Runtime.evaluate", session, expression="document.readyState")
            self._asked_state[asked["id"]] = session, params["targetInfo"]["targetId"]
            follow_up.append(asked)
        # The target stands still until this arrives, so its first request is not missed.
        commands.append(self._command("Runtime.runIfWaitingForDebugger", session))
        return commands + follow_up

    def _state(self, session: str, frame: str, reply: Message) -> None:
        state = reply.get("result", {}).get("result", {}).get("value", "complete")
        if state != "complete":
            self._frames.setdefault(frame, _Load(session, self._clock()))

    def _detached(self, _parent: str, params: Message) -> None:
        self._drop(params["sessionId"])

    def _crashed(self, session: str, _params: Message) -> None:
        self._drop(session)

    def _drop(self, session: str) -> None:
        self._requests = {k: r for k, r in self._requests.items() if r.session != session}
        self._frames = {k: f for k, f in self._frames.items() if f.session != session}
        self._dialogs.discard(session)
        self._asked_state = {k: a for k, a in self._asked_state.items() if a[0] != session}

    def _request(self, session: str, params: Message) -> None:
        # A redirect comes with the id of the request it continues, and replaces it.
        kind = params.get("type", "Other")
        method, url = params["request"]["method"], params["request"]["url"]
        if kind in UNENDING or url.startswith(("data:", "blob:")):
            return
        now = self._clock()
        address = f"{method} {url.partition('?')[0].partition('#')[0]}"
        request = _Request(session, kind, address, started=now, heard=now)
        request.background = kind in FETCHED and (
            address in self._slow or self._is_poll(address, now)
        )
        self._requests[params["requestId"]] = request

    def _is_poll(self, address: str, now: float) -> bool:
        asked = self._asked.pop(address, None) or collections.deque(maxlen=POLL_REPEATS)
        _remember(self._asked, address, asked)
        waiting = any(r.address == address and not r.answered for r in self._requests.values())
        if not waiting:  # a burst of parallel requests is a page loading, not a poll
            asked.append(now)
        return len(asked) == POLL_REPEATS and now - asked[0] < POLL_WINDOW_S

    def _answered(self, _session: str, params: Message) -> None:
        request = self._requests.get(params["requestId"])
        if request is not None:
            request.answered, request.heard = True, self._clock()

    def _request_ended(self, _session: str, params: Message) -> None:
        self._requests.pop(params["requestId"], None)

    def _frame_started(self, session: str, params: Message) -> None:
        self._frames[params["frameId"]] = _Load(session, self._clock())

    def _frame_stopped(self, _session: str, params: Message) -> None:
        self._frames.pop(params["frameId"], None)

    def _lifecycle(self, session: str, params: Message) -> None:
        if params["name"] == "commit":
            self._frames.setdefault(params["frameId"], _Load(session, self._clock()))
        elif params["name"] == "load":
            self._frames.pop(params["frameId"], None)

    def _frame_detached(self, _session: str, params: Message) -> None:
        if params.get("reason") != "swap":  # it goes on loading in another process
            self._frames.pop(params["frameId"], None)

    def _dialog_opened(self, session: str, _params: Message) -> None:
        self._dialogs.add(session)

    def _dialog_closed(self, session: str, _params: Message) -> None:
        self._dialogs.discard(session)


_AUTO_ATTACH: Message = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
_TABS: Message = {
    **_AUTO_ATTACH,
    # A page reached through its tab stands still at once; one attached to directly has sent its
    # first requests by then. The browser's own bars and popups are pages, too, and never at rest.
    "filter": [
        {"type": "page", "exclude": True},
        {"type": "browser_ui", "exclude": True},
        {"type": "browser", "exclude": True},
        {},
    ],
}
_WITHIN: Message = {**_AUTO_ATTACH, "filter": [{}]}
_KEEP_NOTHING: Message = {
    "maxTotalBufferSize": 0,
    "maxResourceBufferSize": 0,
    "maxPostDataSize": 0,
}
"""By default the browser would hold response bodies in memory for a debugger to read."""

HANDLERS: dict[str, Callable[[PageLoads, str, Message], list[Message] | None]] = {
    "Target.attachedToTarget": PageLoads._attached,
    "Target.detachedFromTarget": PageLoads._detached,
    "Inspector.targetCrashed": PageLoads._crashed,
    "Network.requestWillBeSent": PageLoads._request,
    "Network.requestServedFromCache": PageLoads._request_ended,
    "Network.loadingFinished": PageLoads._request_ended,
    "Network.loadingFailed": PageLoads._request_ended,
    "Network.responseReceived": PageLoads._answered,
    "Network.dataReceived": PageLoads._answered,
    "Page.frameStartedLoading": PageLoads._frame_started,
    "Page.frameStoppedLoading": PageLoads._frame_stopped,
    "Page.lifecycleEvent": PageLoads._lifecycle,
    "Page.frameDetached": PageLoads._frame_detached,
    "Page.javascriptDialogOpening": PageLoads._dialog_opened,
    "Page.javascriptDialogClosed": PageLoads._dialog_closed,
}


def _remember(memory: dict[str, Any], key: str, value: Any) -> None:
    memory[key] = value
    while len(memory) > MEMORY:
        del memory[next(iter(memory))]
