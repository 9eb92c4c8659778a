"""Brings the desktop image to an engine, wherever that is: it is sent over the engine's API."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from legato.desktop import image
from legato.desktop.docker.engine import Engine
from legato.desktop.guest import bundle
from legato.desktop.image.rootfs import rootfs

SEND_S = 900
"""Deadline of sending the whole image to an engine, in seconds."""


def make_image(engine: Engine, cache: Path) -> str:
    """See that the engine has the image; returns its name and tag.

    What of it exists is used: the image, the image without the guest program, the archive of its
    files in ``cache``. Raises ``ConfigError``, ``EnvFailure`` or
    :class:`~legato.desktop.image.rootfs.BuildFailed`.
    """
    engine.check()
    if engine.find_image(image.reference()) is None:
        known = engine.find_image(f"{image.BASE_NAME}:{image.base_tag()}")
        base = _import(engine, rootfs(cache)) if known is None else known["Id"]
        _add_guest(engine, base)
    return image.reference()


def _import(engine: Engine, archive: Path) -> str:
    """Send the image without the guest program; returns its id."""
    with engine.calls("take the image"), _patient(engine):
        # Tagged afterwards: podman takes no tag here.
        said = engine.api.import_image_from_file(
            str(archive), changes=[f"LABEL {image.LABEL}=base"]
        )
        try:
            made = str(json.loads(said.strip().splitlines()[-1])["status"])
        except (ValueError, KeyError, IndexError):
            raise engine.failed("take the image", said) from None
        engine.api.tag(made, image.BASE_NAME, image.base_tag())
    return made


def _add_guest(engine: Engine, base: str) -> None:
    """Put the guest program into a container of the base, and keep that as the image."""
    with engine.calls("make the image"), _patient(engine):
        made = engine.api.create_container(base, ["/bin/true"], labels={image.LABEL: "build"})
        try:
            engine.api.put_archive(made["Id"], "/", _guest_archive())
            engine.api.commit(
                made["Id"], repository=image.NAME, tag=image.tag(), changes=image.config()
            )
        finally:
            engine.api.remove_container(made["Id"], force=True)


def _guest_archive() -> bytes:
    """The staged guest program as a tar archive to be unpacked at the root."""
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="legato-stage-") as directory:
        stage = Path(directory, "stage")
        bundle.stage(stage)
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(stage, bundle.STAGED.lstrip("/"), filter=_owned_by_root)
    return buffer.getvalue()


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = int(time.time())
    return entry


@contextmanager
def _patient(engine: Engine) -> Iterator[None]:
    """The engine says nothing while it unpacks."""
    usual, engine.api.timeout = engine.api.timeout, SEND_S
    try:
        yield
    finally:
        engine.api.timeout = usual
