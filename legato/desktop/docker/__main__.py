"""``python -m legato.desktop.docker``: the image of container desktops."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legato.desktop import image
from legato.desktop.image.rootfs import rootfs
from legato.errors import LegatoError

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)

Cache = Annotated[Path, typer.Option(help="where the image's files are kept between builds")]
CACHE = Path.home() / ".cache" / "legato" / "desktop-image"


@app.command("image")
def make(
    engine: Annotated[str | None, typer.Option(help="default: DOCKER_HOST")] = None,
    cache: Cache = CACHE,
) -> None:
    """Bring the image to the engine, building it from Debian packages if need be (as root)."""
    from legato.desktop.docker.build import make_image
    from legato.desktop.docker.engine import Engine

    client = Engine(engine)
    try:
        print(make_image(client, cache))
    finally:
        client.close()


@app.command("files")
def files(cache: Cache = CACHE) -> None:
    """Only make the archive of the image's files; needs no engine."""
    print(rootfs(cache))


@app.command("context")
def context(directory: Path) -> None:
    """Write a Dockerfile and its context, and say how to build it."""
    directory.mkdir(parents=True)
    image.write_context(directory)
    print(f"docker build --tag {image.reference()} {directory}")


def main() -> None:
    try:
        app(standalone_mode=True)
    except LegatoError as e:
        raise SystemExit(f"legato: {e}") from None


if __name__ == "__main__":
    main()
