"""Page requests in flight: the bookkeeping on event sequences, and the pipe with a real peer."""

from __future__ import annotations

import json
import os
import socket
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.guest.browser import (
    BODY_S,
    LONG_S,
    MEMORY,
    POLL_REPEATS,
    InFlight,
    PageLoads,
)
from legato.desktop.guest.browsers import Browsers, Running, is_browser

ROOT = "http://app.test"


class Browser:
    """Speaks devtools to the bookkeeping; :attr:`now` is the clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.loads = PageLoads(lambda: self.now)
        self._ids = 0

    def say(self, method: str, session: str = "page", **params: Any) -> list[dict[str, Any]]:
        return self.loads.handle({"method": method, "sessionId": session, "params": params})

    def attach(self, session: str = "page", kind: str = "page") -> list[dict[str, Any]]:
        target = {"type": kind, "targetId": f"{session}'s frame"}
        return self.say("Target.attachedToTarget", "", sessionId=session, targetInfo=target)

    def ask(
        self, path: str = "/data", *, id: str = "", kind: str = "Fetch", session: str = "page"
    ) -> str:
        self._ids += 1
        id = id or f"r{self._ids}"
        request = {"method": "GET", "url": path if ":" in path else ROOT + path}
        self.say("Network.requestWillBeSent", session, requestId=id, type=kind, request=request)
        return id

    def answer(self, id: str) -> None:
        self.say("Network.responseReceived", requestId=id)

    def finish(self, id: str) -> None:
        self.say("Network.loadingFinished", requestId=id)

    @property
    def awaited(self) -> int:
        return self.loads.in_flight().awaited


@pytest.fixture
def browser() -> Browser:
    browser = Browser()
    browser.attach()
    return browser


@pytest.mark.parametrize("state", ["loading", "interactive", "complete"])
@pytest.mark.parametrize("end", ["Page.frameStoppedLoading", "Page.lifecycleEvent"])
def test_a_page_is_asked_how_far_it_is_when_it_is_met(
    browser: Browser, state: str, end: str
) -> None:
    asked = next(c for c in browser.attach("second") if c["method"] == "Runtime.evaluate")
    reply = {"type": "string", "value": state}
    assert browser.loads.handle({"id": asked["id"], "result": {"result": reply}}) == []
    assert browser.awaited == (state != "complete")
    browser.say(end, "second", frameId="second's frame", name="load")
    assert browser.awaited == 0


def test_a_page_that_cannot_say_how_far_it_is_counts_nothing(browser: Browser) -> None:
    asked = next(c for c in browser.attach("second") if c["method"] == "Runtime.evaluate")
    browser.loads.handle({"id": asked["id"], "error": {"code": -32000, "message": "it went"}})
    assert browser.awaited == 0


def test_a_document_that_comes_after_its_page_was_met_counts(browser: Browser) -> None:
    browser.say("Page.lifecycleEvent", frameId="f", name="commit")
    browser.say("Page.lifecycleEvent", frameId="f", name="firstPaint")
    assert browser.awaited == 1
    browser.say("Page.frameStoppedLoading", frameId="f")
    assert browser.awaited == 0


@pytest.mark.parametrize(
    "end",
    ["Network.loadingFinished", "Network.loadingFailed", "Network.requestServedFromCache"],
)
def test_a_request_counts_until_it_ends(browser: Browser, end: str) -> None:
    id = browser.ask()
    assert browser.awaited == 1
    browser.say(end, requestId=id)
    assert browser.loads.in_flight() == InFlight(0, 0)


def test_a_redirect_is_still_one_request(browser: Browser) -> None:
    browser.ask("/old", id="a")
    browser.ask("/new", id="a")
    assert browser.awaited == 1
    browser.finish("a")
    assert browser.awaited == 0


def test_the_end_may_come_from_another_session(browser: Browser) -> None:
    browser.attach("worker", "worker")
    id = browser.ask("/worker.js", kind="Script")
    browser.say("Network.loadingFinished", "worker", requestId=id)
    assert browser.awaited == 0


def test_a_frame_that_moves_to_another_process_goes_on_loading(browser: Browser) -> None:
    browser.say("Page.frameStartedLoading", frameId="f")
    browser.say("Page.frameDetached", frameId="f", reason="swap")
    assert browser.awaited == 1
    browser.attach("iframe", "iframe")
    browser.say("Page.frameStoppedLoading", "iframe", frameId="f")
    assert browser.awaited == 0


def test_a_removed_frame_does_not_load(browser: Browser) -> None:
    browser.say("Page.frameStartedLoading", frameId="f")
    browser.say("Page.frameDetached", frameId="f", reason="remove")
    assert browser.awaited == 0


@pytest.mark.parametrize("event", ["Target.detachedFromTarget", "Inspector.targetCrashed"])
def test_a_page_that_is_gone_has_nothing_in_flight(browser: Browser, event: str) -> None:
    browser.attach("other")
    browser.ask()
    browser.say("Page.frameStartedLoading", frameId="f")
    browser.ask(session="other")
    if event == "Target.detachedFromTarget":
        browser.say(event, "", sessionId="page")
    else:
        browser.say(event)
    assert browser.awaited == 1


@pytest.mark.parametrize("kind", ["EventSource", "WebSocket", "Media", "Ping"])
def test_streams_and_beacons_do_not_count(browser: Browser, kind: str) -> None:
    browser.ask(kind=kind)
    assert browser.awaited == 0


def test_data_in_the_address_is_no_request(browser: Browser) -> None:
    browser.ask("data:text/plain,x", kind="Image")
    assert browser.awaited == 0


@pytest.mark.parametrize("kind", ["Fetch", "XHR"])
def test_a_long_poll_counts_once_and_not_for_ever(browser: Browser, kind: str) -> None:
    first = browser.ask("/wait?cursor=1", kind=kind)
    browser.now += LONG_S - 0.01
    assert browser.awaited == 1
    browser.now += 0.02
    assert browser.loads.in_flight() == InFlight(awaited=0, background=1)
    browser.finish(first)
    browser.now += 100.0
    browser.ask("/wait?cursor=2", kind=kind)
    assert browser.loads.in_flight() == InFlight(awaited=0, background=1)
    browser.ask("/other", kind=kind)
    assert browser.awaited == 1


def test_a_document_that_was_slow_once_is_waited_for_again(browser: Browser) -> None:
    browser.ask("/page", kind="Document")
    browser.now += LONG_S
    assert browser.awaited == 0
    browser.ask("/page", kind="Document")
    assert browser.awaited == 1


def test_a_poll_is_background_from_its_fourth_time_on(browser: Browser) -> None:
    counted = []
    for cursor in range(POLL_REPEATS + 2):
        id = browser.ask(f"/poll?{cursor}")
        counted.append(browser.awaited)
        browser.now += 0.3
        browser.finish(id)
    assert counted == [1] * (POLL_REPEATS - 1) + [0] * 3


def test_a_slower_rhythm_is_somebody_clicking(browser: Browser) -> None:
    for _ in range(POLL_REPEATS + 2):
        id = browser.ask("/save")
        assert browser.awaited == 1
        browser.now += 2.0
        browser.finish(id)


def test_a_burst_is_a_page_loading(browser: Browser) -> None:
    ids = [browser.ask(f"/item?{i}") for i in range(20)]
    assert browser.awaited == 20
    for id in ids:
        browser.finish(id)
    assert browser.awaited == 0


def test_a_body_nobody_reads_has_no_end(browser: Browser) -> None:
    id = browser.ask()
    browser.now += 1.0
    browser.answer(id)
    browser.now += BODY_S - 0.01
    browser.say("Network.dataReceived", requestId=id)
    browser.now += BODY_S - 0.01
    assert browser.awaited == 1
    browser.now += 0.02
    assert browser.loads.in_flight() == InFlight(0, 0)


def test_a_page_behind_a_dialog_does_not_load(browser: Browser) -> None:
    browser.say("Page.frameStartedLoading", frameId="f")
    browser.say("Page.javascriptDialogOpening")
    assert browser.awaited == 0
    browser.say("Page.javascriptDialogClosed")
    assert browser.awaited == 1


def test_memory_is_bounded(browser: Browser) -> None:
    for i in range(3 * MEMORY):
        browser.finish(browser.ask(f"/{i}"))
    assert len(browser.loads._asked) == MEMORY


def test_every_target_is_listened_to_and_let_go(browser: Browser) -> None:
    methods = {}
    for kind in ("page", "iframe", "worker", "service_worker"):
        commands = browser.attach(kind, kind)
        assert {c["sessionId"] for c in commands} == {kind}
        methods[kind] = [c["method"] for c in commands]
        listening = methods[kind].index("Network.enable")
        assert listening < methods[kind].index("Runtime.runIfWaitingForDebugger")
        assert {"Network.enable", "Target.setAutoAttach"} <= set(methods[kind])
    assert methods["page"].index("Page.enable") < methods["page"].index("Runtime.evaluate")
    assert not {"Page.enable", "Runtime.evaluate"} & set(methods["worker"])


def test_a_tab_is_let_go_once_its_page_is_listened_to(browser: Browser) -> None:
    (hold,) = browser.attach("tab", "tab")
    assert hold["method"] == "Target.setAutoAttach"
    (release,) = browser.loads.handle({"id": hold["id"], "result": {}})
    assert (release["method"], release["sessionId"]) == ("Runtime.runIfWaitingForDebugger", "tab")
    assert browser.loads.handle({"id": hold["id"], "result": {}}) == []


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("chromium", True),
        ("/usr/bin/google-chrome", True),
        ("xterm", False),
        ("chromium.py", False),
    ],
)
def test_is_browser(program: str, expected: bool) -> None:
    assert is_browser([program], path="") is expected


def test_is_browser_follows_links(tmp_path: Path) -> None:
    (tmp_path / "chromium").write_text("#!/bin/sh\n")
    (tmp_path / "chromium").chmod(0o755)
    (tmp_path / "www").symlink_to(tmp_path / "chromium")
    assert is_browser(["www"], path=str(tmp_path))


# --- the pipe itself, with a peer that stands in for the browser's side of it ---------------

PEER = """
    import json, os, sys, time
    def link(n):
        try:
            return os.readlink("/proc/self/fd/" + n)
        except FileNotFoundError:  # it was the listing itself
            return ""
    received = b""
    while received.count(b"\\0") < 1:
        received += os.read(3, 65536) or sys.exit("nobody reads on")
    hello = json.loads(received.split(b"\\0")[0])
    def say(text):
        data = text.encode()
        while data:
            data = data[os.write(4, data):]
    attached = {"sessionId": "s", "targetInfo": {"type": "page", "targetId": "f"}}
    say(json.dumps({"method": "Target.attachedToTarget", "params": attached}) + "\\0")
    say("this is no JSON\\0")
    say('{"method":"Network.requestWillBeSent","sessionId":"s","params":{}}\\0')
    say('{"method":"Unheard.of","params":{}}\\0' * 50_000)
    asked = {"requestId": "1", "type": "Fetch", "request": {"method": "GET", "url": "http://a/b"}}
    event = {"sessionId": "s", "method": "Network.requestWillBeSent", "params": asked}
    text = json.dumps(event, separators=(",", ":")) + "\\0"
    say(text[:40]); time.sleep(0.05); say(text[40:])
    received = received.partition(b"\\0")[2]
    while received.count(b"\\0") < 7:
        received += os.read(3, 65536) or sys.exit("nobody reads on")
    with open(sys.argv[-1] + ".part", "w") as f:
        f.write(json.dumps({
            "argv": sys.argv[1:], "links": {n: link(n) for n in os.listdir("/proc/self/fd")},
            "hello": hello["method"], "sid": os.getsid(0) == os.getpid(),
            "commands": [json.loads(c)["method"] for c in received.split(b"\\0")[:7]]}))
    os.rename(sys.argv[-1] + ".part", sys.argv[-1])
    os.read(0, 1)
    while not os.path.exists(sys.argv[-1] + ".exit"):
        time.sleep(0.01)
"""


class Peer:
    """A program called ``chromium``, behind a wrapper script, at the other end of the pipe."""

    def __init__(self, directory: Path) -> None:
        (directory / "peer.py").write_text(textwrap.dedent(PEER))
        wrapper = directory / "chromium"
        wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} {directory}/peer.py "$@"\n')
        wrapper.chmod(0o755)
        self.env = {"PATH": f"{directory}:{os.environ['PATH']}"}
        self._report = directory / "report"
        self._log = os.open(directory / "log", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC)
        self.browsers = Browsers()
        self.pid = self.browsers.start(["chromium", str(self._report)], self.env, self._log)

    def report(self) -> dict[str, Any]:
        until(self._report.exists)
        report: dict[str, Any] = json.loads(self._report.read_text())
        return report

    def leave(self) -> None:
        self._report.with_suffix(".exit").touch()
        os.waitpid(self.pid, 0)
        os.close(self._log)


def until(condition: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def inheritable(fd: str) -> bool:
    try:
        return os.get_inheritable(int(fd))
    except OSError:  # it was the listing itself
        return False


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    peer = Peer(tmp_path)
    yield peer
    peer.leave()


def test_the_pipe_reaches_through_a_wrapper_script(peer: Peer, tmp_path: Path) -> None:
    report = peer.report()
    assert report["argv"] == ["--remote-debugging-pipe", str(tmp_path / "report")]
    assert report["hello"] == "Target.setAutoAttach"
    assert report["commands"][-2:] == ["Runtime.runIfWaitingForDebugger", "Runtime.evaluate"]
    assert report["sid"]
    sockets = {fd for fd, link in report["links"].items() if link.startswith("socket:")}
    inherited = {fd for fd in os.listdir("/proc/self/fd") if inheritable(fd)}
    assert sockets - inherited == {"3", "4"}


def test_requests_count_past_noise_and_broken_messages(peer: Peer) -> None:
    until(lambda: peer.browsers.in_flight().awaited == 1)


def test_a_browser_that_exits_has_nothing_in_flight(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    peer = Peer(tmp_path)
    until(lambda: peer.browsers.in_flight().awaited == 1)
    peer.report()
    peer.leave()
    until(lambda: peer.browsers.in_flight() == InFlight(0, 0))
    until(lambda: set(os.listdir("/proc/self/fd")) == before)


def test_no_such_browser(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError, match="chromium"):
        Browsers().start(["chromium"], {"PATH": str(tmp_path)}, 2)
    assert set(os.listdir("/proc/self/fd")) == before


def test_news_that_nobody_has_read_yet_may_tell_of_a_request() -> None:
    """The thread that reads may be waiting for a processor while another one asks."""
    ours, theirs = socket.socketpair()
    browser = Running(PageLoads(), ours)
    with theirs:
        assert browser.in_flight() == InFlight(0, 0)
        theirs.sendall(b'{"method":"Network.unheardOf","params":{}}\0')
        assert browser.in_flight() == InFlight(1, 0)
        assert browser.read() == []
        assert browser.in_flight() == InFlight(0, 0)
    assert browser.read() is None
    browser.close()
    assert browser.in_flight() == InFlight(0, 0)
