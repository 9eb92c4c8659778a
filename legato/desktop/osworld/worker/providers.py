"""Where the machine comes from: OSWorld's docker provider as it is, or QEMU driven by us.

OSWorld's choice of providers is written into its code; :func:`inject` answers that one call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from legato.desktop.osworld.worker import owner
from legato.desktop.osworld.worker.faults import Fault
from legato.desktop.osworld.worker.qemu import QemuProvider
from legato.desktop.osworld.worker.server import GuestServer

IMAGE = "happysixd/osworld-docker"
"""The image that OSWorld's docker provider starts; its name is in OSWorld's code."""
LOCK_S = 300
"""OSWorld waits 10 s for its lock on ports, which every starting desktop of the host holds."""

Own = Callable[[dict[str, Any]], None]
"""Tells the parent what to remove should this process be unable to."""


class _NoManager:
    """The registry of virtual machines that neither provider has a use for."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def inject(osworld: ModuleType, options: dict[str, Any], own: Own) -> None:
    provider = _docker(options) if options["provider"] == "docker" else QemuProvider(options, own)
    osworld.create_vm_manager_and_provider = lambda *_, **__: (_NoManager(), provider)  # type: ignore[attr-defined]


def check_docker(client: Any) -> None:
    """The engine answers and has OSWorld's image; :class:`Fault` of kind ``config`` if not."""
    from docker.errors import DockerException, ImageNotFound

    try:
        client.ping()
        client.images.get(IMAGE)
    except ImageNotFound:
        raise Fault(
            "config", f"docker has no image {IMAGE}: run `docker pull {IMAGE}` once"
        ) from None
    except DockerException as e:
        raise Fault("config", f"docker does not answer: {_cause(e)}") from None


def docker_client() -> Any:
    """Raises :class:`Fault` of kind ``config`` when there is no engine, or none we may use."""
    import docker
    from docker.errors import DockerException

    try:
        return docker.from_env(timeout=60)
    except DockerException as e:
        raise Fault(
            "config",
            f"OSWorld's docker provider finds no docker engine: {_cause(e)}; start one, set "
            "DOCKER_HOST, or join its group",
        ) from None


def _docker(options: dict[str, Any]) -> Any:
    """OSWorld's provider, whose containers get our labels and the size asked for."""
    from desktop_env.providers.docker import provider as module

    check_docker(docker_client())
    module.LOCK_TIMEOUT = LOCK_S
    provider = module.DockerProvider(None)
    owner.sweep(provider.client)
    provider.environment = {
        **provider.environment,
        "RAM_SIZE": f"{options['memory_mib']}M",
        "CPU_CORES": str(options["cpus"]),
        **({} if options["acceleration"] == "kvm" else {"KVM": "N"}),
    }
    more: dict[str, Any] = {
        "labels": {
            owner.DESKTOP: options["desktop"],
            owner.OWNER: owner.owner_of(os.getpid()),
        }
    }
    if options["ready_signal"]:
        # What is thrown away needs no time to end by itself; docker waits 10 s for it.
        more["stop_signal"] = "SIGKILL"
    provider._wait_for_vm_ready = lambda: _wait_until_up(provider, options["boot_timeout"])
    client = provider.client
    containers = client.containers
    run = containers.run
    containers.run = lambda *args, **given: run(*args, **given, **more)

    class Client:
        """The same client, whose collection of containers stays the one that labels."""

        def __getattr__(self, name: str) -> Any:
            return containers if name == "containers" else getattr(client, name)

    provider.client = Client()
    return provider


def _wait_until_up(provider: Any, timeout: float) -> None:
    """As the provider's own wait, which goes on for 300 s after its container has ended."""
    ends = time.monotonic() + timeout
    server = GuestServer("localhost", provider.server_port)
    while not server.answers():
        provider.container.reload()
        if provider.container.status != "running":
            said = provider.container.logs(tail=3).decode(errors="replace").strip()
            raise Fault("env", f"the container ended ({said[-200:]}): is {IMAGE} OSWorld's image?")
        if time.monotonic() >= ends:
            raise Fault(
                "env",
                f"the guest's server did not answer within {timeout:g} s: is {IMAGE} OSWorld's "
                "image, and is there KVM?",
            )
        time.sleep(0.2)


def _cause(error: BaseException) -> str:
    text = str(error)
    for known, meaning in (
        ("Permission denied", "permission denied on its socket"),
        ("No such file", "there is no socket"),
        ("Connection refused", "the connection was refused"),
    ):
        if known in text:
            return meaning
    return text.strip().splitlines()[0][:200] if text.strip() else type(error).__name__
