"""The image: told by its content, made once, and the same from the Dockerfile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from legato.desktop import image
from legato.desktop.docker.build import make_image
from legato.desktop.docker.desktop import DockerDesktop
from legato.desktop.docker.engine import Engine
from legato.desktop.guest import bundle
from tests.desktop.docker.engines import CACHE
from tests.desktop.local.conftest import ScriptedTask

pytestmark = pytest.mark.desktop


def test_the_tags_follow_the_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def tags() -> tuple[str, str, str]:
        for cached in (image.base_tag, image.guest_id, image.tag):
            cached.cache_clear()
        return image.base_tag(), image.guest_id(), image.tag()

    base, guest, tag = tags()
    assert tags() == (base, guest, tag)
    with monkeypatch.context() as changed:
        changed.setattr(image, "packages", lambda: ["xvfb"])
        other_base, same_guest, other = tags()
    assert (other_base != base, same_guest == guest, other != tag) == (True, True, True)
    with monkeypatch.context() as changed:
        changed.setattr(bundle, "_MAIN", "print()\n")
        same_base, other_guest, other = tags()
    assert (same_base == base, other_guest != guest, other != tag) == (True, True, True)
    assert tags() == (base, guest, tag)


def test_the_image_is_made_once(engine: Engine) -> None:
    known = {i["Id"] for i in engine.api.images()}
    assert make_image(engine, CACHE) == image.reference()
    assert {i["Id"] for i in engine.api.images()} == known


def test_no_program_searches_for_fonts(desktop: DockerDesktop) -> None:
    """At every reset, for a second each: what they find is kept in the home."""
    task = ScriptedTask()
    desktop.reset(task)
    kept = task.machine.list_files("/home/user/.cache")
    assert not [name for name in kept if name.startswith("fontconfig/")]


def test_a_desktop_of_the_dockerfile(
    own_desktop: Callable[..., DockerDesktop], engine: Engine, tmp_path: Path
) -> None:
    """Built on what has the packages already, since no registry and no mirror is asked here."""
    context = tmp_path / "context"
    done = subprocess.run(
        [sys.executable, "-m", "legato.desktop.docker", "context", str(context)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == f"docker build --tag {image.reference()} {context}\n", done.stderr
    base = f"{image.BASE_NAME}:{image.base_tag()}"
    lines = engine.api.build(
        path=str(context),
        tag=f"{image.NAME}:file",
        buildargs={"BASE": base},
        network_mode="none",
        rm=True,
        decode=True,
    )
    said = "".join(line.get("stream", "") + line.get("error", "") for line in lines)
    assert "Successfully tagged" in said, said[-2000:]
    desktop = own_desktop(image=f"{image.NAME}:file")
    desktop.reset(ScriptedTask())
    desktop.check_health()
