"""The image's files made from Debian packages alone: no registry, only a mirror.

``debootstrap`` makes the smallest system, ``apt-get`` inside it adds the desktop. Needs root, for
``chroot``. The archive is kept under its content's tag, so a second call returns at once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from legato.desktop import image
from legato.errors import ConfigError, LegatoError

MIRROR = "http://deb.debian.org/debian"
SECURITY = "http://deb.debian.org/debian-security"
BUILD_S = 1800.0
"""Deadline of a whole build, in seconds; it takes two minutes on a good line."""

_DPKG = "force-unsafe-io\npath-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n"
"""A build that is cut short is thrown away: nothing need reach the disk before it is complete."""
_NO_SERVICES = "#!/bin/sh\nexit 101\n"


class BuildFailed(LegatoError):  # noqa: N818 - a state
    """The image could not be built; the message has the end of what the tool said."""


def rootfs(cache: Path) -> Path:
    """A tar archive of the image's files without the guest program, built if there is none.

    Raises :class:`~legato.errors.ConfigError` if this machine cannot build it, and
    :class:`BuildFailed`; neither leaves anything in ``cache``.
    """
    archive = cache / f"rootfs-{image.base_tag()}.tar"
    if archive.exists():
        return archive
    _check_machine()
    cache.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + BUILD_S
    with tempfile.TemporaryDirectory(prefix="legato-rootfs-", dir=cache) as directory:
        root = Path(directory, "root")
        _bootstrap(root, deadline)
        _install(root, deadline)
        part = Path(directory, "rootfs.tar")
        _run(["tar", "--numeric-owner", "-C", root, "-cf", part, "."], deadline)
        part.rename(archive)
    for old in cache.glob("rootfs-*.tar"):
        if old != archive:
            old.unlink()
    return archive


def _check_machine() -> None:
    missing = [name for name in ("debootstrap", "chroot", "tar") if not shutil.which(name)]
    if missing:
        raise ConfigError(
            f"building the image needs {', '.join(missing)}: apt-get install debootstrap, or "
            "build the Dockerfile (python -m legato.desktop.docker context DIRECTORY)"
        )
    if os.geteuid() != 0:
        raise ConfigError(
            "building the image from packages needs root (chroot): use sudo, or build the "
            "Dockerfile (python -m legato.desktop.docker context DIRECTORY)"
        )


def _bootstrap(root: Path, deadline: float) -> None:
    main, security = _mirrors()
    _run(["debootstrap", "--variant=minbase", image.SUITE, str(root), main], deadline)
    sources = [f"deb {main} {image.SUITE} main", f"deb {main} {image.SUITE}-updates main"]
    sources.append(f"deb {security} {image.SUITE}-security main")
    (root / "etc/apt/sources.list").write_text("\n".join(sources) + "\n")


def _install(root: Path, deadline: float) -> None:
    dpkg = root / "etc/dpkg/dpkg.cfg.d/build"
    services = root / "usr/sbin/policy-rc.d"
    finish = root / "tmp/finish.sh"
    dpkg.write_text(_DPKG)
    services.write_text(_NO_SERVICES)
    services.chmod(0o755)
    shutil.copyfile(image.FINISH, finish)
    # For the packages' scripts; what is copied here is replaced by the engine in a container.
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    apt = ["apt-get", "-qq", "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root"]
    with _proc(root):
        _run(["chroot", root, *apt, "update"], deadline)
        install = [*apt, "install", "-y", "--no-install-recommends", *image.packages()]
        _run(["chroot", root, *install], deadline)
        _run(["chroot", root, "sh", "/tmp/finish.sh"], deadline)
    for path in (dpkg, services, finish):
        path.unlink()


def _mirrors() -> tuple[str, str]:
    """Where this machine gets Debian's packages and security updates, else Debian's own hosts."""
    template = "$(REPO_URI) $(CODENAME) $(COMPONENT)"
    found: dict[str, str] = {}
    if shutil.which("apt-get"):
        said = subprocess.run(
            ["apt-get", "indextargets", "--format", template, "Identifier: Packages"],
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        for line in said.splitlines():
            uri, codename, component = (*line.split(), "", "", "")[:3]
            if component == "main":
                found.setdefault(codename, uri.rstrip("/"))
    return found.get(image.SUITE, MIRROR), found.get(f"{image.SUITE}-security", SECURITY)


@contextlib.contextmanager
def _proc(root: Path) -> Iterator[None]:
    """``/proc`` in the new system while packages are configured."""
    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True, timeout=30)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", root / "proc"], check=True, timeout=30)


def _run(argv: Sequence[str | Path], deadline: float) -> None:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    env["PATH"] = f"{env.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin"
    step = next(str(arg) for arg in argv[::-1] if not str(arg).startswith("-"))
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            timeout=max(1.0, deadline - time.monotonic()),
        )
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"{argv[0]} ... {step} did not end within {BUILD_S:g} s") from None
    if done.returncode:
        said = done.stdout.decode("utf-8", "replace").strip()[-1000:]
        raise BuildFailed(f"{argv[0]} failed with {done.returncode}: {said}")
