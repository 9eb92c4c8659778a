"""The image of container desktops: one package list and one guest program, for every provider.

An image is told by its content: :func:`base_tag` changes with the package list and the way it is
installed, :func:`tag` with the guest program as well. So the image under a tag always has the very
guest program that this version of legato speaks to.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import tempfile
from functools import cache
from pathlib import Path

from legato.desktop.guest import bundle

NAME = "localhost/legato-desktop"
BASE_NAME = "localhost/legato-desktop-base"
"""With a host before it, else podman takes a name for Docker Hub's."""
SUITE = "bookworm"
LABEL = "org.legatolabs.desktop"
"""Label of every image and container of ours."""
GUEST_LABEL = f"{LABEL}.guest"
"""Label of an image: the :func:`guest_id` of the guest program in it."""

UID = 1000
HOME = "/home/user"
RUNTIME = f"/run/user/{UID}"

_HERE = Path(__file__).parent
DOCKERFILE = _HERE / "Dockerfile"
FINISH = _HERE / "finish.sh"
"""Run as root in the machine once the packages are there: the agent's user, and what to leave."""


def packages() -> list[str]:
    """Names of the Debian packages that a desktop needs."""
    lines = (_HERE / "packages.txt").read_text().splitlines()
    return [name for line in lines for name in line.partition("#")[0].split()]


@cache
def base_tag() -> str:
    """Tag of the image without the guest program: 12 hex digits."""
    return _digest(SUITE.encode(), *(name.encode() for name in packages()), FINISH.read_bytes())


@cache
def guest_id() -> str:
    """Digest of the guest program and the session's files: 12 hex digits."""
    with tempfile.TemporaryDirectory(prefix="legato-stage-") as directory:
        stage = Path(directory, "stage")
        bundle.stage(stage)
        parts: list[bytes] = []
        for path in sorted(stage.rglob("*")):
            parts.append(str(path.relative_to(stage)).encode())
            parts.append(path.read_bytes() if path.is_file() else b"")
        return _digest(*parts)


@cache
def tag() -> str:
    """Tag of the finished image: 12 hex digits."""
    return _digest(base_tag().encode(), guest_id().encode())


def reference() -> str:
    """Name and tag, such as ``localhost/legato-desktop:0123456789ab``."""
    return f"{NAME}:{tag()}"


def config() -> list[str]:
    """What the image says of itself, as lines of a Dockerfile."""
    return [
        # One a line: podman takes the rest of a line for the first one's value.
        f"LABEL {LABEL}=image",
        f"LABEL {GUEST_LABEL}={guest_id()}",
        f"USER {UID}:{UID}",
        f"WORKDIR {HOME}",
        f'ENTRYPOINT ["/usr/bin/python3", "-I", "-S", "{bundle.STAGED}", "--stdio"]',
        "CMD []",
    ]


def write_context(directory: Path) -> None:
    """Fill an empty directory with what ``docker build`` needs, for those who have a registry."""
    bundle.stage(directory / "stage")
    shutil.copyfile(FINISH, directory / "finish.sh")
    (directory / "packages.txt").write_text("\n".join(packages()) + "\n")
    recipe = [DOCKERFILE.read_text().rstrip(), *config()]
    (directory / "Dockerfile").write_text("\n".join(recipe) + "\n")


def plain_name() -> str:
    """Name of the image without the guest program where names have no slash and no tag."""
    return f"{BASE_NAME.rpartition('/')[2]}-{base_tag()}"


def steps() -> list[str]:
    """The base, and the commands that make it into the image without the guest program.

    For builders that take commands but no files.
    """
    install = f"apt-get install -y --no-install-recommends {' '.join(packages())}"
    finish = base64.b64encode(FINISH.read_bytes()).decode()
    return [
        f"debian:{SUITE}-slim",
        f"apt-get update && DEBIAN_FRONTEND=noninteractive {install}",
        f"echo {finish} | base64 -d | sh",
    ]


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]
