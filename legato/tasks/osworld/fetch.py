"""Files that a task names by URL or path, read on the host before they reach a machine.

Downloads are kept under ``$XDG_CACHE_HOME/legato/files`` by the hash of their URL, so that a
group of attempts fetches a file once.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

from legato.errors import EnvFailure

MAX_BYTES = 256 * 2**20
"""Largest file that is fetched."""
DEADLINE_S = 120.0
"""Longest a whole download may take; single reads are given 20 s."""

_busy: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def is_remote(source: str) -> bool:
    return urlsplit(source).scheme in {"http", "https"}


def local_source(source: str, base: Path) -> Path:
    """The host path of a ``file://`` URL or of a path, relative ones below ``base``."""
    parts = urlsplit(source)
    path = unquote(parts.path) if parts.scheme == "file" else source
    return base / Path(path).expanduser()


def fetch(source: str, base: Path) -> bytes:
    """The bytes behind a URL or host path. Raises :class:`~legato.errors.EnvFailure`."""
    if not is_remote(source):
        return read_local(local_source(source, base))
    kept = _cache_folder() / hashlib.sha256(source.encode()).hexdigest()
    with _busy[source]:
        if kept.is_file():
            return kept.read_bytes()
        data = _download(source)
        _keep(kept, data)
        return data


def read_local(path: Path) -> bytes:
    """A host file of at most ``MAX_BYTES``. Raises :class:`~legato.errors.EnvFailure`."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise EnvFailure(f"{path} is larger than {MAX_BYTES} bytes", transient=False)
        return path.read_bytes()
    except OSError as e:
        raise EnvFailure(f"could not read the task's file {path}: {e}", transient=False) from e


def _download(url: str) -> bytes:
    ends = time.monotonic() + DEADLINE_S
    data = bytearray()
    try:
        with httpx.stream("GET", url, timeout=20.0, follow_redirects=True) as response:
            if response.is_error:
                raise EnvFailure(
                    f"could not download {url}: HTTP {response.status_code}",
                    transient=response.status_code >= 500 or response.status_code == 429,
                )
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) > MAX_BYTES:
                    raise EnvFailure(f"{url} is larger than {MAX_BYTES} bytes", transient=False)
                if time.monotonic() > ends:
                    raise EnvFailure(f"downloading {url} took longer than {DEADLINE_S:g} s")
    except httpx.HTTPError as e:
        raise EnvFailure(f"could not download {url}: {type(e).__name__}: {e}") from e
    return bytes(data)


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "legato" / "files"


def _keep(path: Path, data: bytes) -> None:
    """Whole or not at all, whoever else writes the same file at this moment."""
    part = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as e:
        part.unlink(missing_ok=True)
        raise EnvFailure(f"could not keep a download in {path.parent}: {e}") from e
