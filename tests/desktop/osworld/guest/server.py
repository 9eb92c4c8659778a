"""OSWorld's guest API on port 5000, as far as ``desktop_env`` speaks it; standard library and Xlib.

Paths, fields and status codes are those that ``desktop_env.controllers`` sends and expects.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from PIL import Image
from Xlib import X, display

COMMAND_S = 120

_screen_lock = threading.Lock()
_display = display.Display()


def screenshot() -> bytes:
    with _screen_lock:
        root = _display.screen().root
        size = root.get_geometry()
        image = root.get_image(0, 0, size.width, size.height, X.ZPixmap, 0xFFFFFFFF)
    picture = Image.frombytes("RGB", (size.width, size.height), image.data, "raw", "BGRX")
    out = io.BytesIO()
    picture.save(out, "PNG", compress_level=1)
    return out.getvalue()


def words(command: str | list[str], shell: bool) -> str | list[str]:
    if shell:
        return command if isinstance(command, str) else shlex.join(command)
    parts = shlex.split(command) if isinstance(command, str) else command
    return [os.path.expanduser(p) if p.startswith("~/") else p for p in parts]


def execute(body: dict[str, Any]) -> dict[str, Any]:
    shell = body.get("shell", False)
    done = subprocess.run(
        words(body["command"], shell),
        shell=shell,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
    )
    return {
        "status": "success",
        "output": done.stdout,
        "error": done.stderr,
        "returncode": done.returncode,
    }


def launch(body: dict[str, Any]) -> str:
    shell = body.get("shell", False)
    subprocess.Popen(words(body["command"], shell), shell=shell)
    return "launched"


def verified(body: dict[str, Any]) -> dict[str, Any]:
    result = execute(body)
    wanted = body.get("verification", {})
    ends = time.monotonic() + body.get("max_wait_time", 10)
    while name := wanted.get("window_exists"):
        if name in subprocess.run(["wmctrl", "-l"], capture_output=True, text=True).stdout:
            return result
        if time.monotonic() > ends:
            raise TimeoutError(f"no window {name}")
        time.sleep(body.get("check_interval", 1.0))
    return result


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(
            {"/screenshot": screenshot, "/terminal": lambda: {"output": "", "status": "ok"}}
        )

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = self.headers.get("Content-Type", "")
        if self.path == "/setup/upload":
            return self._answer({self.path: lambda: self._upload(data, kind)})
        if self.path == "/file":
            return self._file(parse_qs(data.decode())["file_path"][0])
        body = json.loads(data) if data and "json" in kind else {}
        window = shlex.quote(body.get("window_name", ""))
        self._answer(
            {
                "/execute": lambda: execute(body),
                "/setup/execute": lambda: execute(body),
                "/setup/launch": lambda: launch(body),
                "/setup/execute_with_verification": lambda: verified(body),
                "/setup/open_file": lambda: launch({"command": ["mousepad", body["path"]]}),
                "/setup/activate_window": lambda: execute(
                    {"command": f"wmctrl -a {window}", "shell": True}
                ),
                "/setup/close_window": lambda: execute(
                    {"command": f"wmctrl -c {window}", "shell": True}
                ),
                "/screen_size": lambda: dict(zip(("width", "height"), _size(), strict=True)),
            }
        )

    def _upload(self, data: bytes, kind: str) -> str:
        boundary = re.search("boundary=(.+)", kind)
        assert boundary
        parts = data.split(b"--" + boundary[1].strip('"').encode())
        fields = {}
        for part in parts[1:-1]:
            head, _, body = part.partition(b"\r\n\r\n")
            name = re.search(rb'name="(\w+)"', head)
            assert name
            fields[name[1].decode()] = body.removesuffix(b"\r\n")
        target = Path(os.path.expanduser(fields["file_path"].decode()))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(fields["file_data"])
        return "uploaded"

    def _file(self, path: str) -> None:
        target = Path(os.path.expandvars(os.path.expanduser(path)))
        if not target.is_file():
            return self._send(404, b'{"error": "File not found"}')
        self._send(200, target.read_bytes(), "application/octet-stream")

    def _answer(self, known: dict[str, Callable[[], Any]]) -> None:
        if self.path not in known:
            return self._send(404, b"not found")
        try:
            answer = known[self.path]()
        except Exception as e:
            return self._send(500, json.dumps({"status": "error", "message": str(e)}).encode())
        if isinstance(answer, bytes):
            return self._send(200, answer, "image/png")
        body = answer if isinstance(answer, str) else json.dumps(answer)
        self._send(200, body.encode())

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


def _size() -> tuple[int, int]:
    geometry = _display.screen().root.get_geometry()
    return geometry.width, geometry.height


if __name__ == "__main__":
    ThreadingHTTPServer(("0.0.0.0", 5000), Handler).serve_forever()
