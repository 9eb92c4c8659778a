"""The viewer on a port of this machine: read-only, and only for who knows its address.

The address carries a random token. Everything that is served is found by a fixed route, never by
a path from the request. The ``Host`` header is checked, so that no web site can reach the viewer
by a name that it lets point here.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from legato.errors import ConfigError, LegatoError
from legato.rl.manifest import RunPath, read_manifest
from legato.rl.publish import read_shot, read_state, sockets
from legato.rl.schema import dump_json
from legato.view.detail import rollout_detail, screen_of
from legato.view.gaps import read_gaps
from legato.view.index import TEXT_CHUNK, RunIndex, reply_texts
from legato.view.pages import POLICY, app_files, data_script
from legato.view.site import runs_json, spelling_of

_LOG = logging.getLogger(__name__)
HOST = "127.0.0.1"
IDLE_S = 30.0
"""A connection that asks nothing for this long is closed."""

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}


class _NotFound(Exception):  # noqa: N818 - an answer, not an error
    pass


class ServedRun:
    """One run, read as it is asked for. Thread-safe."""

    def __init__(self, run_dir: RunPath, tokenizer: str | None) -> None:
        self.index = RunIndex.of(run_dir)
        self.path = self.index.path
        self._tokenizer = tokenizer
        self._spelling = spelling_of(self.path, tokenizer)
        self._busy = threading.Lock()

    def follow(self) -> int:
        """Read what was recorded since; the number of records."""
        with self._busy:
            for _ in self.index.follow():
                pass
            return len(self.index.rows)

    def data(self, name: str) -> Any:
        """What the viewer calls ``name``; raises :class:`_NotFound`."""
        if name == "index":
            self.follow()
            with self._busy:
                return self.index.to_json()
        kind, _, number = name.partition("-")
        if kind == "rollout":
            return self._rollout(int(number))
        first = int(number) * TEXT_CHUNK
        last = min(first + TEXT_CHUNK, len(self.index.rows))
        return [reply_texts(self.index.record(n)) for n in range(first, last)]

    def image(self, name: str) -> bytes:
        try:
            return (self.path / "images" / f"{name}.png").read_bytes()
        except FileNotFoundError:
            raise _NotFound from None

    def boards(self) -> list[dict[str, Any]]:
        """What the processes that collect into this run are doing now."""
        found: list[dict[str, Any]] = []
        screen = screen_of(read_manifest(self.path))
        for name in sockets(self.path):
            try:
                found.append({**read_state(self.path, name), "name": name, "screen": screen})
            except (OSError, ValueError):
                continue  # it ended between two looks
        return found

    def shot(self, socket_name: str, sha256: str) -> bytes:
        try:
            png = read_shot(self.path, socket_name, sha256)
        except OSError:
            png = None
        if png is None:
            raise _NotFound
        return png

    def _rollout(self, number: int) -> dict[str, Any]:
        try:
            record = self.index.record(number)
        except IndexError:
            raise _NotFound from None
        gaps = read_gaps(self.path).get(record["rollout_id"])
        return rollout_detail(self.path, read_manifest(self.path), record, self._spelling, gaps)


class ViewServer:
    """Serves from its own threads between ``with`` and its end, or by :meth:`serve_forever`."""

    def __init__(
        self,
        run_dirs: Sequence[RunPath],
        *,
        live: bool = False,
        port: int = 0,
        tokenizer: str | None = None,
    ) -> None:
        """Open the port (0: any free one). Raises :class:`ConfigError` if it cannot."""
        self.runs = [ServedRun(run_dir, tokenizer) for run_dir in run_dirs]
        for run in self.runs:
            run.follow()
        self.live = live
        self.token = secrets.token_urlsafe(24)
        self._app = app_files()
        try:
            self._http = _Http(self, port)
        except OSError as e:
            raise ConfigError(
                f"cannot listen on {HOST}:{port}: {e.strerror or e}; choose another --port"
            ) from e

    @property
    def url(self) -> str:
        page = "#/live" if self.live else ""
        return f"http://{HOST}:{self._http.server_port}/{self.token}/{page}"

    def serve_forever(self) -> None:
        self._http.serve_forever()

    def __enter__(self) -> ViewServer:
        threading.Thread(target=self.serve_forever, name="legato-view", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def find(self, path: str) -> tuple[str, bytes]:
        """(file suffix, content) of a path below the token; raises :class:`_NotFound`."""
        for pattern, answer in _ROUTES:
            if match := pattern.fullmatch(path):
                return answer(self, *match.groups())
        raise _NotFound

    def _file(self, name: str) -> tuple[str, bytes]:
        name = name or "index.html"
        if name not in self._app:
            raise _NotFound
        return Path(name).suffix, self._app[name]

    def _runs(self) -> tuple[str, bytes]:
        runs = runs_json([run.path for run in self.runs], live=self.live)
        return ".js", data_script("runs", runs)

    def _data(self, key: str, name: str) -> tuple[str, bytes]:
        return ".js", data_script(f"{key}/{name}", self._run(key).data(name))

    def _image(self, key: str, name: str) -> tuple[str, bytes]:
        return ".png", self._run(key).image(name)

    def _live(self) -> tuple[str, bytes]:
        runs = [{"records": run.follow(), "boards": run.boards()} for run in self.runs]
        return ".json", dump_json({"runs": runs})

    def _shot(self, key: str, socket_name: str, sha256: str) -> tuple[str, bytes]:
        return ".png", self._run(key).shot(socket_name, sha256)

    def _run(self, key: str) -> ServedRun:
        if int(key) >= len(self.runs):
            raise _NotFound
        return self.runs[int(key)]


_ROUTES: list[tuple[re.Pattern[str], Callable[..., tuple[str, bytes]]]] = [
    (re.compile(r"(|index\.html|app/[a-z_]+\.[a-z]+)"), ViewServer._file),
    (re.compile(r"data/runs\.js"), ViewServer._runs),
    (re.compile(r"data/(\d{1,4})/(index|(?:rollout|text)-\d{1,9})\.js"), ViewServer._data),
    (re.compile(r"data/(\d{1,4})/images/([0-9a-f]{64})\.png"), ViewServer._image),
    (re.compile(r"live\.json"), ViewServer._live),
    (re.compile(r"live/(\d{1,4})/(\d+\.\d+\.sock)/([0-9a-f]{64})\.png"), ViewServer._shot),
]


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, view: ViewServer, port: int) -> None:
        self.view = view
        super().__init__((HOST, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    server_version = "legato"
    sys_version = ""
    timeout = IDLE_S

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        status, kind, body = self._find()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store" if kind != _TYPES[".png"] else "max-age=86400")
        self.send_header("Content-Security-Policy", POLICY + "; frame-ancestors 'none'")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _find(self) -> tuple[HTTPStatus, str, bytes]:
        view = self.server.view
        if self.headers.get("Host") not in self._own_names():
            return _text(HTTPStatus.MISDIRECTED_REQUEST, "this server has another name")
        token, slash, path = urlsplit(self.path).path[1:].partition("/")
        if not hmac.compare_digest(token.encode(), view.token.encode()) or not slash:
            return _text(HTTPStatus.FORBIDDEN, "open the whole address that the command printed")
        try:
            suffix, body = view.find(path)
        except _NotFound:
            return _text(HTTPStatus.NOT_FOUND, "not found")
        except LegatoError as e:
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR, str(e))
        except Exception as e:
            # One page that cannot be made must neither look like a server that is gone nor hide.
            _LOG.exception("the viewer cannot show %s", path)
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(e).__name__}: {e}")
        return HTTPStatus.OK, _TYPES[suffix], body

    def _own_names(self) -> tuple[str, ...]:
        return tuple(f"{name}:{self.server.server_port}" for name in (HOST, "localhost"))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the address, and so the token, must not end up in a log."""


def _text(status: HTTPStatus, text: str) -> tuple[HTTPStatus, str, bytes]:
    return status, "text/plain; charset=utf-8", text.encode()
