"""A page that reports every input event to a server outside the desktop."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from legato.desktop.contract import Machine

PORT = 8000
URL = f"http://127.0.0.1:{PORT}/"

PAGE = """<!doctype html><meta charset=utf-8><title>events</title>
<style>body{margin:0;height:4000px;width:4000px;font:16px sans-serif}
textarea{position:fixed;left:20px;top:20px;width:600px;height:120px}
#drag{position:fixed;left:20px;top:200px;width:80px;height:80px;background:#36c}
#drop{position:fixed;left:400px;top:200px;width:200px;height:120px;background:#ccc}
</style><textarea autofocus></textarea><div id=drag draggable=true></div><div id=drop></div><script>
let n = 0;
const say = data => fetch('/event', {method: 'POST', body: JSON.stringify({n: n++, ...data})});
for (const type of ['mousedown','mouseup','click','dblclick','auxclick','contextmenu','keydown',
                    'keyup'])
  addEventListener(type, e => say({type, button: e.button, detail: e.detail, key: e.key,
    x: e.clientX, y: e.clientY, ctrl: e.ctrlKey, shift: e.shiftKey, alt: e.altKey,
    meta: e.metaKey}), true);
addEventListener('wheel', e => say({type: 'wheel', dx: e.deltaX, dy: e.deltaY}));
addEventListener('contextmenu', e => e.preventDefault());
addEventListener('keydown', e => { if (e.ctrlKey || e.altKey || /^F\\d/.test(e.key))
  e.preventDefault(); });
document.querySelector('textarea').addEventListener('input', e => say({type: 'input',
  value: e.target.value}));
drag.addEventListener('dragstart', e => e.dataTransfer.setData('text/plain', 'cargo'));
drop.addEventListener('dragover', e => e.preventDefault());
drop.addEventListener('drop', e => { e.preventDefault();
  say({type: 'drop', data: e.dataTransfer.getData('text/plain')}); });
say({type: 'ready'});
</script>"""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class EventPage:
    """Serves :data:`PAGE` on a unix socket and keeps what it reports, in order."""

    def __init__(self, socket_path: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._arrived = threading.Condition()
        page = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = PAGE.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()
                with page._arrived:
                    page.events.append(event)
                    page.events.sort(key=lambda e: int(e["n"]))  # they come in any order
                    page._arrived.notify_all()

            def log_message(self, *_: Any) -> None:
                return

            def address_string(self) -> str:
                return "desktop"

        self._server = _Server(str(socket_path), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def open_in(self, machine: Machine) -> None:
        """Show the page in a browser on the machine, which owns the server from then on."""
        machine.own(self)
        machine.launch(["chromium", "--kiosk", URL], timeout=60)
        self.wait_for(lambda events: events, 60, "page")

    def wait_for(
        self,
        wanted: Callable[[list[dict[str, Any]]], Any],
        timeout: float = 10.0,
        what: str = "event",
    ) -> Any:
        """What ``wanted(events)`` gives, once it is true."""
        deadline = time.monotonic() + timeout
        with self._arrived:
            while not (found := wanted(self.events)):
                left = deadline - time.monotonic()
                assert left > 0, f"no {what} within {timeout} s; got {self.events[-20:]}"
                self._arrived.wait(left)
        return found

    def of(self, *types: str) -> list[dict[str, Any]]:
        with self._arrived:
            return [e for e in self.events if e["type"] in types]

    def clear(self) -> None:
        with self._arrived:
            self.events.clear()
