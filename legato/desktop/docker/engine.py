"""Speaking to a container engine: Docker's API over a unix socket, TCP or SSH; podman has it too.

Every call has a deadline, and every way in which an engine can fail is told in one plain line:
as ``ConfigError`` where only the user can help, as ``EnvFailure`` otherwise.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound

from legato.desktop import image
from legato.desktop.docker import tunnel
from legato.errors import ConfigError, EnvFailure

DEFAULT = "unix:///var/run/docker.sock"
CALL_S = 60
"""Deadline of a call of the engine's API, in seconds; starting a container takes under one."""

SECCOMP = Path(__file__).with_name("seccomp.json")
FAR_SECCOMP = "/etc/containers/legato-seccomp.json"
"""Where a podman on another host must have a copy of it: it takes a file's name for the rules."""

LIMITS = {"MemoryLimit": "memory", "PidsLimit": "processes", "CpuCfsQuota": "processors"}
"""What an engine says of itself, and what it can then bound."""


class Engine:
    """A client of one engine. May be called from several threads."""

    def __init__(self, address: str | None = None) -> None:
        """``address`` as for :class:`~legato.desktop.docker.options.DockerOptions`.

        Raises ``ConfigError`` for an address that is none, ``EnvFailure`` if SSH does not get
        there; the engine is not spoken to yet.
        """
        self.address = address or os.environ.get("DOCKER_HOST") or DEFAULT
        self._tunnel: tunnel.Tunnel | None = None
        self._base = self.address
        if self.address.startswith("ssh://"):
            self._tunnel = tunnel.acquire(self.address)
            self._base = self._tunnel.address
        try:
            docker.utils.parse_host(self._base)
        except DockerException as e:
            raise ConfigError(f"{self.address!r} is no address of a Docker engine: {e}") from None

    @cached_property
    def api(self) -> docker.APIClient:
        """Docker's own client; the first use asks the engine for its version."""
        return docker.APIClient(
            base_url=self._base, version="auto", timeout=CALL_S, tls=_tls(self._base)
        )

    @cached_property
    def processors(self) -> int:
        """How many the engine's host has; it refuses to limit a container to more."""
        return int(self._info["NCPU"])

    @cached_property
    def podman(self) -> bool:
        """This is podman's API service, which takes a few things in another form."""
        with self.calls("tell its version"):
            parts: list[dict[str, Any]] = self.api.version().get("Components") or []
        return any(part["Name"] == "Podman Engine" for part in parts)

    @property
    def seccomp(self) -> str:
        """The rules for system calls, as this engine takes them."""
        if self.podman:
            return str(SECCOMP) if self.address.startswith("unix://") else FAR_SECCOMP
        return json.dumps(json.loads(SECCOMP.read_text()))

    @cached_property
    def security(self) -> list[str]:
        """Security options of our containers on this engine."""
        ours = ["no-new-privileges", f"seccomp={self.seccomp}"]
        if any("apparmor" in option for option in self._info.get("SecurityOptions") or []):
            # Its default profile forbids every mount, that of the agent's own view included.
            ours.append("apparmor=unconfined")
        return ours

    @cached_property
    def _info(self) -> dict[str, Any]:
        with self.calls("tell of itself"):
            info: dict[str, Any] = self.api.info()
        return info

    @contextlib.contextmanager
    def calls(self, what: str) -> Iterator[None]:
        """Tell what goes wrong within as ``EnvFailure``; ``what`` it was about to do."""
        try:
            yield
        except APIError as e:
            said = _said(e)
            raise self.failed(what, said) from e
        except requests.exceptions.Timeout as e:
            raise EnvFailure(
                f"the engine at {self.address} did not {what} within {CALL_S} s"
            ) from e
        except (requests.exceptions.RequestException, DockerException, OSError) as e:
            raise EnvFailure(self._unreachable(e)) from e

    def failed(self, what: str, said: str) -> EnvFailure:
        """What to raise when the engine ``said`` why it could not do something."""
        if "no space left on device" in said:
            return EnvFailure(
                f"the disk of the engine at {self.address} is full: {said}; free some space "
                "(docker system df)",
                transient=False,
            )
        if "opening seccomp profile failed" in said:
            return EnvFailure(
                f"podman at {self.address} reads our seccomp profile from its own host: copy "
                f"{SECCOMP} to {self.seccomp} there",
                transient=False,
            )
        if "rlimit" in said:  # runc says "setting rlimit", crun "setrlimit"
            return EnvFailure(
                f"the engine at {self.address} may not set the limits that it gives containers: "
                f"{said}; lower them (podman: default_ulimits in its containers.conf)",
                transient=False,
            )
        return EnvFailure(f"the engine at {self.address} could not {what}: {said}")

    def check(self) -> None:
        """Raise ``ConfigError`` unless there is an engine that we may speak to, and that bounds
        what a container takes of its host."""
        try:
            self.api.ping()
        except APIError as e:
            raise ConfigError(f"the engine at {self.address} refused: {_said(e)}") from None
        except (requests.exceptions.RequestException, DockerException, OSError) as e:
            raise ConfigError(self._unreachable(e)) from None
        try:
            missing = [what for name, what in LIMITS.items() if not self._info.get(name)]
        except EnvFailure as e:
            raise ConfigError(str(e)) from None
        if missing:
            raise ConfigError(
                f"the engine at {self.address} cannot bound a container's {', '.join(missing)}: "
                "give it those control groups (a rootless engine needs version 2, delegated to "
                "its user), or run it as root"
            )

    def find_image(self, name: str) -> dict[str, Any] | None:
        """What the engine knows of an image, ``None`` if it has none of this name.

        Use its ``Id`` from there on: podman takes a name without a registry for Docker Hub's when
        it makes a container, though not when it is asked for the image.
        """
        with self.calls("look for the image"):
            try:
                known: dict[str, Any] = self.api.inspect_image(name)
            except ImageNotFound:
                return None
        return known

    def check_image(self, name: str) -> None:
        """Raise ``ConfigError`` unless the engine has this image, with our guest program."""
        try:
            known = self.find_image(name)
        except EnvFailure as e:
            raise ConfigError(str(e)) from None
        if known is None:
            raise ConfigError(no_image(name))
        labels = known["Config"].get("Labels") or {}
        found = labels.get(image.GUEST_LABEL)
        if found != image.guest_id():
            what = f"another version's guest program ({found})" if found else "no guest program"
            raise ConfigError(
                f"image {name} has {what}; use the one that `make desktop-image` makes "
                f"({image.reference()}), or one built FROM it"
            )

    def close(self) -> None:
        if "api" in vars(self):
            self.api.close()
        held, self._tunnel = self._tunnel, None
        if held is not None:
            tunnel.release(held)

    def _unreachable(self, e: Exception) -> str:
        text = str(e)
        if "timed out" in text:
            return f"the engine at {self.address} does not answer; restart it, or set DOCKER_HOST"
        if "Permission denied" in text:
            return (
                f"no permission to use the engine at {self.address}: join its group (usually "
                "docker), or use a rootless engine by setting DOCKER_HOST"
            )
        if "No such file" in text or "refused" in text:
            return (
                f"no engine at {self.address}: start Docker or podman's API service, or set "
                "DOCKER_HOST to where one is"
            )
        return f"the engine at {self.address} cannot be reached: {text}"


def no_image(name: str) -> str:
    return f"the engine has no image {name}: make it there with `make desktop-image`"


def _tls(base: str) -> Any:
    """Certificates as the docker command finds them: by ``DOCKER_TLS_VERIFY``."""
    if not base.startswith("tcp://") or not os.environ.get("DOCKER_TLS_VERIFY"):
        return False
    folder = Path(os.environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker")
    return docker.tls.TLSConfig(
        client_cert=(str(folder / "cert.pem"), str(folder / "key.pem")),
        ca_cert=str(folder / "ca.pem"),
        verify=True,
    )


def _said(e: APIError) -> str:
    return str(e.explanation or e).strip()
