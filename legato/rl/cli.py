"""``python -m legato.rl probe | collect | export | profile``, and set-up beside them."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.logging import RichHandler

from legato.errors import ConfigError, LegatoError, StorageError
from legato.rl import starting
from legato.rl.cli_options import (
    Api,
    BanId,
    BanToken,
    ConfigFile,
    Harness,
    MaxTokens,
    Model,
    Overrides,
    PolicyUrl,
    Retries,
    RunDirectory,
    StepTimeout,
    Temperature,
    Tokenizer,
    TopK,
    TopP,
    Version,
    sampling_flags,
)
from legato.rl.sandbox_cli import register as register_sandboxes
from legato.view.cli import register as register_views

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Graded desktop rollouts for computer-use RL. "
    "The model server's key is read from LEGATO_POLICY_KEY.",
)


class _Console(Console):
    """Falls silent when its reader goes away: ``| head`` must not end a batch."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # Else the interpreter's own last flush fails.
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, self.file.fileno())
        os.close(devnull)


out = _Console()
err = _Console(stderr=True)


@app.callback()
def _log(verbose: Annotated[bool, typer.Option("--verbose", "-v")] = False) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(message)s",
        handlers=[RichHandler(console=err, show_path=False, show_time=verbose)],
        force=True,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)


@app.command()
def probe(
    policy_url: PolicyUrl = None,
    model: Model = None,
    tokenizer: Tokenizer = None,
    api: Api = None,
    step_timeout: StepTimeout = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    ban_id: BanId = None,
    ban_token: BanToken = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Say what the model server can and cannot do; exit 1 when training on it would be wrong."""
    from legato.rl.collect import resolve_sampling
    from legato.rl.probe import probe as run_probe
    from legato.rl.settings import load_settings

    settings = load_settings(
        overrides=overrides or (),
        file=config,
        flags={
            "policy.url": policy_url,
            "policy.model": model,
            "policy.tokenizer": tokenizer,
            "policy.api": api,
            "policy.step_timeout": step_timeout,
            **sampling_flags(temperature, top_p, top_k, None, ban_id, ban_token),
        },
    )
    sampling = resolve_sampling(settings)
    report = asyncio.run(run_probe(settings.policy, sampling))
    for line in report.lines():
        out.print(line, highlight=False, soft_wrap=True)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def collect(
    tasks: Annotated[Path, typer.Option("--tasks", help="tasks.json")],
    out_dir: Annotated[
        Path, typer.Option("--out", help="Run directory; an existing one is resumed.")
    ],
    policy_url: PolicyUrl = None,
    model: Model = None,
    version: Version = None,
    tokenizer: Tokenizer = None,
    api: Api = None,
    desktops: Annotated[
        int | None, typer.Option("--desktops", help="Desktops at work. [default: 4]")
    ] = None,
    group: Annotated[
        int | None, typer.Option("--group", help="Attempts per task: one GRPO group. [default: 4]")
    ] = None,
    oversample: Annotated[
        float | None,
        typer.Option("--oversample", help="Extra attempts per group, a fraction. [default: 0]"),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option("--max-steps", help="Policy calls per rollout. [default: 15]")
    ] = None,
    max_inflight: Annotated[
        int | None,
        typer.Option("--max-inflight", help="Cap on concurrent model requests. [default: none]"),
    ] = None,
    step_timeout: StepTimeout = None,
    retries: Retries = None,
    rollout_timeout: Annotated[
        float | None,
        typer.Option("--rollout-timeout", help="Wall-clock seconds per rollout. [default: none]"),
    ] = None,
    env_retries: Annotated[
        int | None,
        typer.Option("--env-retries", help="Tries on another desktop. [default: 1]"),
    ] = None,
    min_group: Annotated[
        int | None,
        typer.Option("--min-group", help="Verdicts a group needs to be trained. [default: 2]"),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            help="local, docker, osworld, daytona, e2b, fake. [default: local, or osworld]",
        ),
    ] = None,
    osworld: Annotated[
        Path | None, typer.Option("--osworld", help="An OSWorld checkout; selects its backend.")
    ] = None,
    width: Annotated[
        int | None, typer.Option("--width", help="[default: 1280; osworld: 1920]")
    ] = None,
    height: Annotated[
        int | None, typer.Option("--height", help="[default: 720; osworld: 1080]")
    ] = None,
    ready_signal: Annotated[
        bool | None,
        typer.Option("--ready-signal/--no-ready-signal", help="Wait for the ready signal."),
    ] = None,
    fixed_wait: Annotated[
        float | None,
        typer.Option("--fixed-wait", help="Seconds after each action, with --no-ready-signal."),
    ] = None,
    ready_timeout: Annotated[
        float | None, typer.Option("--ready-timeout", help="[default: 15]")
    ] = None,
    fast_reset: Annotated[
        bool | None,
        typer.Option("--fast-reset/--no-fast-reset", help="Rebuild every desktop with --no-…"),
    ] = None,
    standby: Annotated[
        bool | None,
        typer.Option("--standby/--no-standby", help="Keep a clean spare per desktop."),
    ] = None,
    harness: Harness = None,
    image_max: Annotated[
        int | None,
        typer.Option("--image-max", help="Screenshots kept in the prompt. [default: 20]"),
    ] = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    max_tokens: MaxTokens = None,
    ban_id: BanId = None,
    ban_token: BanToken = None,
    infeasible: Annotated[
        bool | None,
        typer.Option("--infeasible/--no-infeasible", help="Run OSWorld's infeasible tasks."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed every request, derived from this one.")
    ] = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Run one group of graded attempts per task and write them to --out."""
    from legato.rl.collect import run_collect
    from legato.rl.interrupt import before_hard_exit
    from legato.rl.progress import make_progress
    from legato.rl.settings import load_settings
    from legato.rl.summary import render

    flags: dict[str, Any] = {
        "policy.url": policy_url,
        "policy.model": model,
        "policy.version": version,
        "policy.tokenizer": tokenizer,
        "policy.api": api,
        "policy.step_timeout": step_timeout,
        "policy.retries": retries,
        "policy.max_inflight": max_inflight,
        "rollout.desktops": desktops,
        "rollout.group": group,
        "rollout.oversample": oversample,
        "rollout.max_steps": max_steps,
        "rollout.rollout_timeout": rollout_timeout,
        "rollout.env_retries": env_retries,
        "rollout.min_group": min_group,
        "rollout.seed": seed,
        "rollout.infeasible": infeasible,
        "desktop.backend": backend or ("osworld" if osworld else None),
        "desktop.osworld_path": str(osworld) if osworld else None,
        "desktop.width": width,
        "desktop.height": height,
        "desktop.ready_signal": ready_signal,
        "desktop.fixed_wait": fixed_wait,
        "desktop.ready_timeout": ready_timeout,
        "desktop.fast_reset": fast_reset,
        "desktop.standby": standby,
        "harness.name": harness,
        "harness.image_max": image_max,
        **sampling_flags(temperature, top_p, top_k, max_tokens, ban_id, ban_token),
    }
    settings = load_settings(overrides=overrides or (), file=config, flags=flags)
    try:
        with (
            make_progress(out) as progress,
            before_hard_exit(lambda: progress.__exit__(None, None, None)),
        ):
            summary = run_collect(tasks, settings, out=out_dir, observer=progress)
    except KeyboardInterrupt:
        err.print("interrupted; run the same command again to go on from here", highlight=False)
        raise typer.Exit(130) from None
    out.print(render(summary))
    out.print(f"records: {out_dir}/rollouts.jsonl", highlight=False, markup=False)
    if not summary.verdicts:
        lost = ", ".join(f"{kind} {count}" for kind, count in summary.errors.items() if count)
        err.print(
            f"failed: no attempt came to a verdict (lost to: {lost or 'nothing'}); the records say "
            "why, and the same command tries again",
            style="red",
            highlight=False,
            markup=False,
        )
        raise typer.Exit(1)


@app.command()
def export(
    run_dir: RunDirectory,
    out_path: Annotated[Path, typer.Option("--out", help="JSONL file to write.")],
    merged: Annotated[
        bool,
        typer.Option("--merged", help="Share a row between steps while the prefix holds."),
    ] = False,
    inline_images: Annotated[
        bool, typer.Option("--inline-images", help="Data URLs instead of references.")
    ] = False,
) -> None:
    """Write training samples with group advantages: one per policy step, or merged rows."""
    from legato.rl.export import export_steps

    count = export_steps(run_dir, out_path, merged=merged, inline_images=inline_images)
    out.print(f"{count} rows -> {out_path}", highlight=False, markup=False)


@app.command()
def reference(
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for rows.jsonl and images.")],
    tasks: Annotated[Path | None, typer.Option("--tasks", help="tasks.json")] = None,
    suite: Annotated[
        str | None, typer.Option("--suite", help="Instead: a suite of seeded tasks, or SUITE/TASK.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, help="With --suite: variants of each task. [default: 32]"),
    ] = None,
    harness: Harness = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Play reference episodes and write them as supervised rows for a warm start."""
    from legato.rl.collect import load
    from legato.rl.reference import write_reference
    from legato.rl.settings import load_settings
    from legato.tasks.suites import suite_tasks

    nobody = {"policy.url": "http://nobody/v1", "policy.model": "reference"}
    settings = load_settings(
        overrides=overrides or (), file=config, flags={**nobody, "harness.name": harness}
    )
    if (tasks is None) == (suite is None):
        raise ConfigError("give either --tasks or --suite")
    if suite is None and seeds is not None:
        raise ConfigError("--seeds goes with --suite; --tasks names its own seeds")
    chosen = (
        load(tasks, settings.desktop)
        if tasks is not None
        else suite_tasks(suite or "", "train", seeds or 32)
    )
    count = write_reference(
        chosen,
        out_dir,
        desktop=settings.desktop,
        harness=settings.harness,
        desktops=settings.rollout.desktops,
    )
    out.print(f"{count} rows -> {out_dir}/rows.jsonl", highlight=False, markup=False)


@app.command()
def profile(
    run_dir: RunDirectory,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON.")] = False,
) -> None:
    """Say how a batch went and where its time was spent."""
    from legato.rl.summary import render, summarise

    summary = summarise(run_dir)
    try:
        summary.write(run_dir)
    except StorageError as e:
        err.print(f"summary.json is left as it was: {e}", highlight=False, markup=False)
    if as_json:
        typer.echo(summary.to_json(), nl=False)
    else:
        out.print(render(summary))


@app.command("osworld-setup")
def osworld_setup(
    path: Annotated[
        Path | None, typer.Option("--path", help="Where to. [default: ~/.cache/legato/osworld]")
    ] = None,
) -> None:
    """Make the environment that OSWorld's software runs in, apart from the trainer's."""
    from legato.desktop.osworld.environment import build, default_path

    made = build(path or default_path(), say=lambda line: out.print(line, highlight=False))
    out.print(f"OSWorld's environment is ready: {made.path}", highlight=False, markup=False)


register_views(app)
register_sandboxes(app)


def main() -> None:
    """Run the command line; errors of ours end in one line and exit code 2 (1: lost on the way)."""
    starting.done()
    try:
        app(prog_name="python -m legato.rl")
    except ConfigError as e:
        err.print(f"error: {e}", style="red", highlight=False, markup=False)
        sys.exit(2)
    except (LegatoError, OSError) as e:
        err.print(f"failed: {e}", style="red", highlight=False, markup=False)
        sys.exit(1)
