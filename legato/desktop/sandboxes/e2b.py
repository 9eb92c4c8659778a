"""Desktops in E2B's sandboxes, by E2B's own package (``legatolabs[e2b]``).

The key is in ``E2B_API_KEY``; ``E2B_DOMAIN`` means what it means to that package. E2B's own desktop
template (``e2b-desktop``) is not used: each of its actions starts a command, it has no reset, and
its user may become root.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import e2b as sdk
import httpx

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

KEY = "E2B_API_KEY"
CALL_S = 60.0
BUILD_S = 1800.0
QUOTA_WORDS = ("maximum number of concurrent", "quota", "limit reached", "team is blocked")


class E2BOptions(SandboxOptions):
    """Size of a sandbox is that of its template: see ``python -m legato.rl sandbox-image``."""


class E2BSandboxes(PortSandboxes):
    kind = "e2b"

    def __init__(self, options: E2BOptions) -> None:
        self._template = options.image or image.plain_name()
        environment.key(KEY)
        self._known: dict[str, sdk.Sandbox] = {}

    def check(self) -> None:
        try:
            with _told("look for the desktop's template"):
                there = sdk.Template.exists(self._template, request_timeout=CALL_S)
        except EnvFailure as e:
            raise ConfigError(str(e)) from None
        if not there:
            raise ConfigError(
                f"E2B has no template {self._template}: python -m legato.rl sandbox-image e2b"
            )

    def create(self, labels: Mapping[str, str], *, life_s: float, timeout: float) -> Sandbox:
        with _told("create a sandbox"):
            made = sdk.Sandbox.create(
                self._template,
                timeout=math.ceil(life_s),
                metadata=dict(labels),
                allow_internet_access=False,
                network={"allow_public_traffic": False},
                request_timeout=timeout,
                retries=0,  # they are ours
            )
        self._known[made.sandbox_id] = made
        return Sandbox(made.sandbox_id, dict(labels), time.time())

    def keep(self, id: str, life_s: float) -> None:
        with _told("renew a sandbox"):
            sdk.Sandbox.set_timeout(id, math.ceil(life_s), request_timeout=CALL_S)

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
            try:
                done = sandbox.commands.run(
                    command, envs=dict(env or {}), user="root", cwd="/", timeout=timeout
                )
            except sdk.CommandExitException as e:
                return Output(e.exit_code, e.stdout)
            return Output(done.exit_code, done.stdout)

    def upload(self, id: str, path: str, data: bytes) -> None:
        with self._of(id, "take a file") as sandbox:
            sandbox.files.write(path, data, user="root", request_timeout=CALL_S)

    def download(self, id: str, path: str) -> bytes | None:
        with self._of(id, "give a file") as sandbox:
            try:
                data = sandbox.files.read(path, "bytes", user="root", request_timeout=CALL_S)
            except sdk.FileNotFoundException:
                return None
            return bytes(data)

    def port(self, id: str, port: int) -> Address:
        with self._of(id, "open a port") as sandbox:
            config = sandbox.connection_config
            url = config.get_sandbox_direct_url(id, sandbox.sandbox_domain, port)
            headers = {"e2b-sandbox-id": id, "e2b-sandbox-port": str(port)}
            if sandbox.traffic_access_token:
                headers["e2b-traffic-access-token"] = sandbox.traffic_access_token
        return Address(f"ws{url.removeprefix('http')}", headers)

    def delete(self, id: str) -> None:
        with contextlib.suppress(SandboxGone), _told("end a sandbox"):
            sdk.Sandbox.kill(id, request_timeout=CALL_S)
        self._known.pop(id, None)

    def list(self, labels: Mapping[str, str]) -> list[Sandbox]:
        found: list[Sandbox] = []
        with _told("list sandboxes"):
            pages = sdk.Sandbox.list(
                query=sdk.SandboxQuery(metadata=dict(labels)), request_timeout=CALL_S
            )
            while pages.has_next:
                found += [
                    Sandbox(each.sandbox_id, dict(each.metadata), each.started_at.timestamp())
                    for each in pages.next_items()
                ]
        return found

    @contextlib.contextmanager
    def _of(self, id: str, what: str) -> Iterator[sdk.Sandbox]:
        with _told(what):
            if id not in self._known:
                self._known[id] = sdk.Sandbox.connect(id, request_timeout=CALL_S)
            yield self._known[id]


OPTIONS, SANDBOXES = E2BOptions, E2BSandboxes
"""What :mod:`~legato.desktop.sandboxes.providers` makes a desktop of."""


def make_image(say: Callable[[str], None], *, cpus: int, memory_gib: int, disk_gib: int) -> str:
    """Have E2B build the template from the package list; returns its name."""
    environment.key(KEY)
    name = image.plain_name()
    with _told("build the template"):
        if sdk.Template.exists(name, request_timeout=CALL_S):
            return name
        base, *steps = image.steps()
        recipe = sdk.Template().from_image(base)
        for step in steps:
            recipe = recipe.run_cmd(step, user="root")
        sdk.Template.build(
            recipe,
            name,
            cpu_count=cpus,
            memory_mb=1024 * memory_gib,
            min_free_disk_mb=1024 * disk_gib,
            on_build_logs=lambda entry: say(entry.message),
        )
    return name


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Say what goes wrong within as the contract does; ``what`` E2B was to do."""
    try:
        yield
    except sdk.AuthenticationException as e:
        raise KeyRefused(
            f"E2B could not {what}: {_plain(e)}. Check {KEY}: it may be wrong or expired"
        ) from None
    except (
        sdk.SandboxException,
        sdk.ServiceBusyException,
        sdk.BuildException,
        httpx.HTTPError,
        OSError,
    ) as e:
        said = f"E2B could not {what}: {_plain(e)}"
        if any(word in said.lower() for word in QUOTA_WORDS):
            raise QuotaReached(
                f"{said}. Your team's limits allow no more: end sandboxes (python -m legato.rl "
                "sandboxes list), use fewer desktops or --no-standby, or raise the limit"
            ) from None
        if isinstance(e, sdk.NotFoundException | sdk.SandboxNotRunningException):
            raise SandboxGone(said) from None
        status = getattr(e, "status_code", None) or 0
        busy = sdk.RateLimitException | sdk.ServiceBusyException | httpx.TransportError | OSError
        if isinstance(e, busy) or status >= 500:
            raise Busy(said) from None
        raise EnvFailure(said) from None


def _plain(e: Exception) -> str:
    """Without the key, whoever quoted it."""
    return str(e).replace(os.environ.get(KEY) or "\0", "…")
