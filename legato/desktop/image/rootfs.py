"""The image's files made from Debian packages alone: no registry, only a mirror.

``debootstrap`` makes the smallest system, ``apt-get`` inside it adds the desktop. Needs root, for
``chroot``. The archive is kept under its content's tag, so a second call returns at once.
"""

from __future__ import annotations

import contextlib
import fcntl
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

_DPKG = "force-unsafe-io\n" + "".join(
    f"path-exclude=/usr/share/{name}/*\n" for name in ("doc", "man", "locale", "help")
)
"""A build that is cut short is thrown away: nothing need reach the disk before it is complete. No
one reads the rest, in any language: the desktop's is ``C.UTF-8``."""
_ON_ITS_OWN = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
"""In namespaces of its own: what it starts and mounts is gone with it, however it ends."""
_NO_SERVICES = "#!/bin/sh\nexit 101\n"


_BUILDS = "build-"
"""Directories of builds under way."""


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
    with _alone(cache, deadline):
        if not archive.exists():
            for stale in (*cache.glob(f"{_BUILDS}*"), *cache.glob("rootfs-*.tar")):
                _remove(stale)
            _build(cache, archive, deadline)
    return archive


def _build(cache: Path, archive: Path, deadline: float) -> None:
    directory = Path(tempfile.mkdtemp(prefix=_BUILDS, dir=cache))
    try:
        root, part = directory / "root", directory / "rootfs.tar"
        _bootstrap(root, deadline)
        _install(root, deadline)
        _run(["tar", "--numeric-owner", "-C", root, "-cf", part, "."], deadline)
        part.rename(archive)
    finally:
        _remove(directory)


@contextlib.contextmanager
def _alone(cache: Path, deadline: float) -> Iterator[None]:
    """One build at a time in a cache; a builder that was killed leaves the lock to the next."""
    with (cache / "lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BuildFailed(f"another build in {cache} does not end") from None
                time.sleep(0.5)
        yield


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _check_machine() -> None:
    missing = [name for name in ("debootstrap", "unshare", "tar") if not shutil.which(name)]
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
    argv = ["debootstrap", "--variant=minbase", image.SUITE, str(root), main]
    _run([*_ON_ITS_OWN, "--mount-proc", *argv], deadline)
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
    inside = [*_ON_ITS_OWN, f"--mount-proc={root}/proc", "chroot", str(root)]
    apt = ["apt-get", "-qq", "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root"]
    _run([*inside, *apt, "update"], deadline)
    install = [*apt, "install", "-y", "--no-install-recommends", *image.packages()]
    _run([*inside, *install], deadline)
    _run([*inside, "sh", "/tmp/finish.sh"], deadline)
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


def _run(argv: Sequence[str | Path], deadline: float) -> None:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    env["PATH"] = f"{env.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin"
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
        raise BuildFailed(f"the build was not done within {BUILD_S:g} s") from None
    if done.returncode:
        said = done.stdout.decode("utf-8", "replace").strip()[-1000:]
        raise BuildFailed(f"{_name(argv)} failed with {done.returncode}: {said}")


def _name(argv: Sequence[str | Path]) -> str:
    """The command line without the namespaces, shortened."""
    return " ".join(str(arg) for arg in argv if arg not in _ON_ITS_OWN)[:120]
