"""Whose a container is: told by labels, so that clean-up touches nothing else.

``legato.osworld.desktop`` is one desktop's own id, ``legato.osworld.owner`` the process that
started it. A container whose owner is gone (killed before it could clean up) belongs to nobody and
is removed by the next desktop that starts on the host.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

DESKTOP = "legato.osworld.desktop"
OWNER = "legato.osworld.owner"


def owner_of(pid: int) -> str:
    """``boot id:pid:start time``: names a process for ever; ends in ``:`` if there is none."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        started = ""
    return f"{boot}:{pid}:{started}"


def remove(client: Any, desktop: str) -> None:
    """Remove what one desktop has started."""
    for container in _with(client, f"{DESKTOP}={desktop}"):
        _remove(container)


def sweep(client: Any) -> None:
    """Remove containers of ours on this host whose owner is gone."""
    here = owner_of(1).partition(":")[0]
    for container in _with(client, OWNER):
        owner = str(container.labels.get(OWNER, ""))
        boot, _, rest = owner.partition(":")
        pid = rest.partition(":")[0]
        # Another machine's (a shared engine) are not ours to judge; an earlier boot's are dead.
        if boot == here and pid.isdigit() and owner_of(int(pid)) != owner:
            _remove(container)


def _with(client: Any, label: str) -> list[Any]:
    found: list[Any] = client.containers.list(
        all=True, filters={"label": label}, ignore_removed=True
    )
    return found


def _remove(container: Any) -> None:
    from docker.errors import APIError, NotFound

    try:
        container.remove(force=True, v=True)
    except NotFound:
        return
    except APIError as e:
        if e.response is None or e.response.status_code != 409:  # 409: being removed already
            raise


def main() -> None:
    """``python -m legato.desktop.osworld.worker.owner DESKTOP``: what its worker could not do."""
    import docker

    remove(docker.from_env(timeout=20), sys.argv[1])


if __name__ == "__main__":
    main()
