"""Desktops in Daytona's sandboxes, by Daytona's own package (``legatolabs[daytona]``).

The key is in ``DAYTONA_API_KEY``; ``DAYTONA_API_URL`` and ``DAYTONA_TARGET`` mean what they mean to
that package. Daytona's own desktop (``computer_use``) is not used: its screenshots and clicks are a
request each, it has no reset, and its session is run by a user who may become root.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

import daytona as sdk

from legato.desktop import image
from legato.desktop.sandboxes import environment
from legato.desktop.sandboxes.contract import (
    Busy,
    KeyRefused,
    Output,
    QuotaReached,
    Sandbox,
    SandboxGone,
)
from legato.desktop.sandboxes.options import SandboxOptions
from legato.desktop.sandboxes.port import Address, PortSandboxes
from legato.errors import ConfigError, EnvFailure

log = logging.getLogger(__name__)

KEY = "DAYTONA_API_KEY"
API_URL = "https://app.daytona.io/api"
CALL_S = 60
BUILD_S = 1800.0
QUOTA_WORDS = ("quota", "limit exceeded", "maximum", "insufficient", "suspended")
"""What Daytona's refusals of one sandbox more have in common."""


class DaytonaOptions(SandboxOptions):
    """Size of a sandbox is that of its snapshot: see ``python -m legato.rl sandbox-image``."""


class DaytonaSandboxes(PortSandboxes):
    kind = "daytona"

    def __init__(self, options: DaytonaOptions) -> None:
        self._image = options.image or image.plain_name()
        self._client = _client()
        self._known: dict[str, sdk.Sandbox] = {}

    def check(self) -> None:
        try:
            with _told("look for the desktop's snapshot"):
                state = self._client.snapshot.get(self._image).state
        except SandboxGone:
            raise ConfigError(
                f"Daytona has no snapshot {self._image}: python -m legato.rl sandbox-image daytona"
            ) from None
        except EnvFailure as e:
            raise ConfigError(str(e)) from None
        if state != "active":
            raise ConfigError(
                f"Daytona's snapshot {self._image} is {state}: python -m legato.rl sandbox-image "
                "daytona"
            )

    def create(self, labels: Mapping[str, str], *, life_s: float, timeout: float) -> Sandbox:
        params = sdk.CreateSandboxFromSnapshotParams(
            snapshot=self._image,
            labels=dict(labels),
            os_user="root",
            public=False,
            network_block_all=True,
            # In minutes without activity; `keep` is activity. What stops is deleted at once.
            auto_stop_interval=math.ceil(life_s / 60),
            auto_delete_interval=0,
        )
        with _told("create a sandbox"):
            try:
                made = self._client.create(params, timeout=timeout)
            except sdk.DaytonaTimeoutError as e:
                half_made = getattr(e, "sandbox_id", None)
                if half_made:
                    self.delete(half_made)
                raise
        self._known[made.id] = made
        return _sandbox(made)

    def keep(self, id: str, life_s: float) -> None:
        with self._of(id, "renew a sandbox") as sandbox:
            sandbox.refresh_activity(request_timeout=CALL_S)

    def execute(
        self,
        id: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> Output:
        with self._of(id, "run a command") as sandbox:
            command = f"{shlex.join(argv)} 2>&1"
            done = sandbox.process.exec(command, env=dict(env or {}), timeout=math.ceil(timeout))
            return Output(int(done.exit_code), done.result)

    def upload(self, id: str, path: str, data: bytes) -> None:
        with self._of(id, "take a file") as sandbox:
            sandbox.fs.upload_file(data, path, timeout=CALL_S)

    def download(self, id: str, path: str) -> bytes | None:
        with self._of(id, "give a file") as sandbox:
            try:
                return bytes(sandbox.fs.download_file(path, CALL_S))
            except sdk.DaytonaNotFoundError:
                return None

    def port(self, id: str, port: int) -> Address:
        with self._of(id, "open a port") as sandbox:
            link = sandbox.get_preview_link(port, request_timeout=CALL_S)
        headers = {"x-daytona-preview-token": link.token, "x-daytona-skip-preview-warning": "true"}
        return Address(f"ws{link.url.removeprefix('http')}", headers)

    def delete(self, id: str) -> None:
        with contextlib.suppress(SandboxGone), self._of(id, "end a sandbox") as sandbox:
            sandbox.delete(timeout=CALL_S)
        self._known.pop(id, None)

    def list(self, labels: Mapping[str, str]) -> list[Sandbox]:
        with _told("list sandboxes"):
            query = sdk.ListSandboxesQuery(labels=dict(labels))
            return [_sandbox(found) for found in self._client.list(query, request_timeout=CALL_S)]

    @contextlib.contextmanager
    def _of(self, id: str, what: str) -> Iterator[sdk.Sandbox]:
        with _told(what):
            if id not in self._known:
                self._known[id] = self._client.get(id, request_timeout=CALL_S)
            yield self._known[id]


OPTIONS, SANDBOXES = DaytonaOptions, DaytonaSandboxes
"""What :mod:`~legato.desktop.sandboxes.providers` makes a desktop of."""


def make_image(say: Callable[[str], None], *, cpus: int, memory_gib: int, disk_gib: int) -> str:
    """Have Daytona build the snapshot from the package list; returns its name."""
    client, name = _client(), image.plain_name()
    with contextlib.suppress(SandboxGone), _told("look for the snapshot"):
        found = client.snapshot.get(name)
        if found.state == "active":
            return name
        client.snapshot.delete(found)
    base, *steps = image.steps()
    recipe = sdk.Image.base(base).run_commands(*steps)
    size = sdk.Resources(cpu=cpus, memory=memory_gib, disk=disk_gib)
    with _told("build the snapshot"):
        params = sdk.CreateSnapshotParams(name=name, image=recipe, resources=size)
        client.snapshot.create(params, on_logs=say, timeout=BUILD_S)
    return name


def _client() -> sdk.Daytona:
    return sdk.Daytona(
        sdk.DaytonaConfig(
            api_key=environment.key(KEY),
            api_url=os.environ.get("DAYTONA_API_URL") or API_URL,
            target=os.environ.get("DAYTONA_TARGET") or None,
        )
    )


def _sandbox(found: sdk.Sandbox) -> Sandbox:
    made = found.created_at
    at = datetime.fromisoformat(made).timestamp() if made else 0.0
    return Sandbox(found.id, dict(found.labels or {}), at)


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Say what goes wrong within as the contract does; ``what`` Daytona was to do."""
    try:
        yield
    except sdk.DaytonaError as e:
        said = f"Daytona could not {what}: {_plain(e)}"
        if any(word in said.lower() for word in QUOTA_WORDS) and e.status_code in (400, 402, 403):
            raise QuotaReached(
                f"{said}. Your organization's limits allow no more: end sandboxes (python -m "
                "legato.rl sandboxes list), use fewer desktops or --no-standby, or raise the limit"
            ) from None
        if isinstance(e, sdk.DaytonaAuthenticationError | sdk.DaytonaForbiddenError):
            raise KeyRefused(f"{said}. Check {KEY}: it may be wrong or expired") from None
        if isinstance(e, sdk.DaytonaNotFoundError):
            raise SandboxGone(said) from None
        if isinstance(e, sdk.DaytonaRateLimitError):
            raise Busy(said, _retry_after(e)) from None
        if isinstance(e, sdk.DaytonaConnectionError) or (e.status_code or 0) >= 500:
            raise Busy(said) from None
        raise EnvFailure(said) from None


def _plain(e: sdk.DaytonaError) -> str:
    """Without the key, whoever quoted it."""
    return str(e).replace(os.environ.get(KEY) or "\0", "…")


def _retry_after(e: sdk.DaytonaError) -> float | None:
    value = {k.lower(): v for k, v in (e.headers or {}).items()}.get("retry-after")
    with contextlib.suppress(ValueError):
        return None if value is None else min(float(value), 60.0)
    return None
