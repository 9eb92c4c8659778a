"""One container that runs the guest program: what it may do, and its lifetime.

The guest program is its first process, and our connection to it is the container's standard
input. The engine closes that for good when we are gone, however we end; the guest program then
exits, and the engine removes the container. Only one that never started can be left over; those
are swept.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from docker.errors import APIError
from docker.types import LogConfig

from legato.desktop import image
from legato.desktop.docker.engine import CALL_S, Engine, no_image
from legato.desktop.docker.options import DockerOptions
from legato.desktop.docker.stream import AttachedStream
from legato.desktop.guest.remote import RemoteGuest
from legato.errors import EnvFailure

START_S = 30.0
GRACE_S = 60.0
"""A container this young may not have started because it is just being made."""

NOT_RUNNING = frozenset({"created", "exited", "dead"})

_MIB = 2**20
_SMALL = 64 * _MIB


class Container:
    """Implements :class:`~legato.desktop.guest.box.Box`."""

    def __init__(self, engine: Engine, options: DockerOptions, scratch: Path) -> None:
        self.home = image.HOME
        self.scratch = scratch
        self.name = f"legato-{secrets.token_hex(6)}"
        self._engine = engine
        with engine.calls("start a container"):
            self._id = self._create(options)
            try:
                attach = {"stream": 1, "stdin": 1, "stdout": 1, "stderr": 1}
                self._stream = AttachedStream(engine.api.attach_socket(self._id, attach))
                engine.api.start(self._id)
            except BaseException:
                self._remove()
                raise

    def connect(self) -> RemoteGuest:
        try:
            return RemoteGuest(self._stream, deadline_s=START_S)
        except EnvFailure as e:
            said = f" ({self._stream.errors})" if self._stream.errors else ""
            raise EnvFailure(f"{e}{said}") from e

    def kill(self) -> None:
        """Without its driver the guest program exits at once."""
        self._stream.close()

    def wait_gone(self) -> None:
        try:
            with self._engine.calls("remove a container"):
                self._remove()
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _create(self, options: DockerOptions) -> str:
        api = self._engine.api
        size = options.disk_mib * _MIB
        # podman takes no owner but the container's user, and would copy the image's files there.
        owner = "U,notmpcopyup" if self._engine.podman else f"uid={image.UID},gid={image.UID}"
        mine = f"rw,exec,nosuid,nodev,mode=0700,{owner}"
        host = api.create_host_config(
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=self._engine.security,
            read_only=True,
            tmpfs={
                image.HOME: f"{mine},size={size}",
                "/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={size}",
                image.RUNTIME: f"{mine},size={_SMALL}",
                "/run/desk": f"{mine},size={_SMALL}",
                # podman makes this writable in a container whose root is not.
                "/var/tmp": "ro,nosuid,nodev,noexec,size=4k",
            },
            shm_size=size,
            mem_limit=options.memory_mib * _MIB,
            memswap_limit=options.memory_mib * _MIB,
            nano_cpus=int(min(options.cpus, self._engine.processors) * 1e9),
            pids_limit=options.max_processes,
            ipc_mode="private",
            # The guest program's output is the connection: nothing to keep.
            log_config=LogConfig(type="none"),
            auto_remove=True,
        )
        name = options.image or image.reference()
        known = self._engine.find_image(name)
        if known is None:
            raise EnvFailure(no_image(name), transient=False)
        made: dict[str, Any] = api.create_container(
            known["Id"],
            name=self.name,
            hostname="desktop",
            stdin_open=True,
            labels={image.LABEL: "container"},
            host_config=host,
        )
        return str(made["Id"])

    def _remove(self) -> None:
        """Raises what docker-py raises."""
        api = self._engine.api
        with _unless_going():
            api.remove_container(self._id, force=True, v=True)
        with _unless_going():
            api.wait(self._id, timeout=CALL_S, condition="removed")


def sweep(engine: Engine) -> list[str]:
    """Remove our containers that never started or did not go when they ended; returns their ids.

    Whoever made them was killed in between. What runs is left alone: it has a driver, or will
    notice that it has none.
    """
    swept = []
    with engine.calls("list containers"):
        now = datetime.fromisoformat(engine.api.info()["SystemTime"])
        ours = engine.api.containers(all=True, filters={"label": f"{image.LABEL}=container"})
        for found in ours:
            old = now.timestamp() - found["Created"] > GRACE_S
            if old and found["State"] in NOT_RUNNING:
                with _unless_going():
                    engine.api.remove_container(found["Id"], force=True, v=True)
                    swept.append(str(found["Id"]))
    return swept


@contextlib.contextmanager
def _unless_going() -> Iterator[None]:
    """Pass over that a container is gone, or that the engine is removing it already.

    podman has no status of its own for the second.
    """
    try:
        yield
    except APIError as e:
        going = e.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
        if not going and "container state improper" not in str(e.explanation):
            raise
