"""``python -m legato.rl view | film | sheet``."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from legato.errors import ConfigError
from legato.rl.cli_options import RunDirectory
from legato.view.images import Images


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(view)
    app.command()(film)
    app.command()(sheet)


def view(
    run_dirs: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR...", help="One run, or several to compare.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write. [default: RUN_DIR/view]")
    ] = None,
    images: Annotated[
        Images | None,
        typer.Option("--images", help="How the pictures get there. [default: hardlink]"),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", help="To spell token ids. [default: what the run names]"),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve it on this machine instead of writing it.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Serve it and follow the run, with its desktops.")
    ] = False,
    port: Annotated[
        int | None, typer.Option("--port", help="With --serve or --live. [default: any free one]")
    ] = None,
) -> None:
    """Show what the agents did: a page that opens offline, or --serve, or --live."""
    if serve or live:
        if out is not None or images is not None:
            raise ConfigError(
                "--out and --images are for a folder; leave them out with --serve and --live"
            )
        _serve(run_dirs, live=live, port=port or 0, tokenizer=tokenizer)
        return
    if port is not None:
        raise ConfigError("--port is for a server; give --serve or --live with it")
    from legato.view.site import write_site

    index = write_site(
        run_dirs,
        out or run_dirs[0] / "view",
        images=images or Images.HARDLINK,
        tokenizer=tokenizer,
    )
    typer.echo(f"open {index}")


def _serve(run_dirs: list[Path], *, live: bool, port: int, tokenizer: str | None) -> None:
    from legato.view.serve import ViewServer

    server = ViewServer(run_dirs, live=live, port=port, tokenizer=tokenizer)
    typer.echo(f"open {server.url}\n(only from this machine; Ctrl-C ends it)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo("")


def film(
    run_dir: RunDirectory,
    rollout: Annotated[str, typer.Argument(help="Its id, such as edit-text-1/0, or its number.")],
    out: Annotated[
        Path | None, typer.Option("--out", help=".gif or .mp4 [default: the rollout's id .gif]")
    ] = None,
    width: Annotated[int, typer.Option("--width", min=64, max=3840, help="Pixels.")] = 960,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.04, max=60, help="Of each picture.")
    ] = 1.2,
) -> None:
    """Make a film of one rollout, with the actions drawn on."""
    from legato.view.film import write_film
    from legato.view.strip import find_strip

    strip = find_strip(run_dir, rollout)
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in strip.rollout_id)
    path = out or Path(f"{name}.gif")
    write_film(strip, path, width=width, seconds=seconds)
    typer.echo(f"{len(strip.frames)} pictures -> {path}")


def sheet(
    run_dir: RunDirectory,
    out: Annotated[Path, typer.Option("--out", help="The .png to write.")] = Path("sheet.png"),
    rollouts: Annotated[
        int, typer.Option("--rollouts", min=1, max=200, help="The first so many with pictures.")
    ] = 16,
    columns: Annotated[
        int, typer.Option("--columns", min=2, max=40, help="Pictures of each rollout, at most.")
    ] = 8,
) -> None:
    """Make a contact sheet of a batch, with the actions drawn on."""
    from legato.view.sheet import write_sheet
    from legato.view.strip import read_strips

    strips = list(islice((s for s in read_strips(run_dir) if s.frames), rollouts))
    write_sheet(strips, out, columns=columns)
    typer.echo(f"{len(strips)} rollouts -> {out}")
