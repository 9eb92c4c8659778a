"""A web server outside the desktop with pages that move, load and wait in every way we know."""

from __future__ import annotations

import http.server
import socketserver
import tempfile
import threading
import time
from pathlib import Path

from legato.desktop.contract import Machine, Score

PORT = 8000
ROOT = f"http://127.0.0.1:{PORT}"
SLOW_S = 1.5
"""How long ``/slow`` takes to answer, in seconds."""
CHANGED = 0x99CC99
"""The colour that a page becomes when what it waited for is there."""

_CHANGE = f"document.body.style.background='#{CHANGED:06x}'"
_FETCH = f"fetch('/slow').then(r=>r.text()).then(()=>{{{_CHANGE}}})"
_XHR = f"let q=new XMLHttpRequest();q.open('GET','/slow');q.onload=()=>{{{_CHANGE}}};q.send()"
_SPINNER = """
<style>@keyframes turn{to{transform:rotate(360deg)}}
div{width:48px;height:48px;border:6px solid #ccc;border-top-color:#36c;border-radius:50%;
animation:turn 1s linear infinite}</style><h1>spinner</h1><div></div>"""
_CANVAS = """
<canvas id=c width=600 height=400></canvas><script>let x=c.getContext('2d');
function f(t){x.fillStyle='hsl('+(t/10%360)+',80%,50%)';x.fillRect(0,0,600,400);
requestAnimationFrame(f)}f(0)</script>"""
_BALL = """
<canvas id=c width=1000 height=500></canvas><script>let x=c.getContext('2d');
function f(t){x.fillStyle='white';x.fillRect(0,0,1000,500);x.fillStyle='red';
x.fillRect(450+450*Math.sin(t/700),220+220*Math.cos(t/517),24,24);
requestAnimationFrame(f)}f(0)</script>"""
_NO_READING = "<script>(async()=>{for(;;)await fetch('%s?'+Math.random())})()</script>"

PAGES = {
    "static": "<h1>static</h1>" + "<p>All of it is here.</p>" * 8,
    "caret": "<h1>caret</h1><input autofocus value=text>",
    "spinner": _SPINNER,
    "canvas": _CANVAS,
    "ball": _BALL,
    "fetch": f"<h1>fetch</h1><script>{_FETCH}</script>",
    "xhr": f"<h1>xhr</h1><script>{_XHR}</script>",
    "redirect": f"<h1>redirect</h1><script>{_FETCH.replace('/slow', '/redirect-slow')}</script>",
    "frame": f"<iframe src=http://localhost:{PORT}/fetch width=900 height=400></iframe>",
    "worker": f"<script>new Worker('/worker.js').onmessage=()=>{{{_CHANGE}}}</script>",
    "click": f'<body onclick="{_FETCH}"><h1>click</h1>',
    "popup": "<body onclick=\"window.open('/slow-page')\"><h1>popup</h1>",
    "timer": f"<h1>timer</h1><script>setTimeout(()=>{{{_CHANGE}}},{SLOW_S * 1000})</script>",
    "long-poll": "<h1>long poll</h1>" + _NO_READING % "/hang",
    "poll": "<h1>poll</h1>" + _NO_READING % "/quick",
    "events": "<h1>events</h1><script>new EventSource('/stream')</script>",
}
_WORKER = "fetch('/slow').then(r=>r.text()).then(t=>postMessage(t))"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PageServer

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].lstrip("/")
        if name in PAGES:
            self._reply(PAGES[name])
        elif name == "worker.js":
            self._reply(_WORKER, "text/javascript")
        elif name == "slow":
            self._wait(SLOW_S)
            self._reply("done", "text/plain")
        elif name == "slow-page":
            self._wait(SLOW_S)
            self._reply(f"<body style='background:#{CHANGED:06x}'>")
        elif name == "redirect-slow":
            self.send_response(302)
            self.send_header("Location", "/slow")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif name == "quick":
            self._wait(0.3)
            self._reply("again", "text/plain")
        elif name == "hang":
            self._wait(60.0)
        elif name == "stream":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            while not self.server.stopped.is_set():
                self.wfile.write(b"data: tick\n\n")
                self._wait(1.0)
        else:
            self.send_error(404)

    def _wait(self, seconds: float) -> None:
        self.server.stopped.wait(seconds)

    def _reply(self, body: str, kind: str = "text/html") -> None:
        data = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)
        self.server.answered[self.path.lstrip("/")] = time.monotonic()

    def address_string(self) -> str:
        return "desktop"

    def log_message(self, *_: object) -> None:
        pass


class PageServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Serves :data:`PAGES` on a unix socket until closed."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="legato-pages-")
        self.path = Path(self._directory.name) / "socket"
        self.stopped = threading.Event()
        self.answered: dict[str, float] = {}
        """When each address was last answered, in ``time.monotonic()`` seconds."""
        super().__init__(str(self.path), _Handler)
        Path(self._directory.name).chmod(0o755)
        self.path.chmod(0o666)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that closes a connection early is no error."""

    def close(self) -> None:
        self.stopped.set()
        self.shutdown()
        self._thread.join()
        self.server_close()
        self._directory.cleanup()


class PagesTask:
    """Nothing to do but to look; hands its machine out."""

    task_id, domain, instruction = "pages", "tests", "look at the pages"
    machine: Machine
    server: PageServer

    def __init__(self) -> None:
        self.config: dict[str, object] = {}

    def setup(self, machine: Machine) -> None:
        self.machine = machine
        self.server = PageServer()
        machine.own(self.server)
        machine.expose(PORT, self.server.path)

    def grade(self, machine: Machine) -> Score:
        return Score(0.0)
