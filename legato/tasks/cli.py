"""The command line of the tasks. Exit codes: 0 fine, 1 a check failed, 2 it could not be done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from legato.desktop.local import check_requirements, make_desktop
from legato.errors import LegatoError
from legato.tasks.new import scaffold
from legato.tasks.qa import (
    Finding,
    Gate,
    Report,
    Tally,
    count_checks,
    ended_like_interrupted,
    run_gate,
)
from legato.tasks.reference import SHIPPED, generate, reference_file
from legato.tasks.seeded import SeededTask
from legato.tasks.suites import VARIANTS, Split, list_tasks, load_task, seeds, tasks_entries

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
console, errors = Console(), Console(stderr=True)


@app.command("list")
def list_() -> None:
    """Name the tasks, with the count of their fixed variants."""
    for info in list_tasks():
        print(f"{info.suite}/{info.name} ({info.variants} variants): {info.summary}")


@app.command()
def qa(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TASK]...", help=f"By default all of {' and '.join(SHIPPED)}."),
    ] = None,
    variants: Annotated[int, typer.Option(min=1, help="Seeds from 0 on, per task.")] = VARIANTS,
    desktops: Annotated[
        int, typer.Option(min=1, help="Desktops at work at once; two a processor by default.")
    ] = 2 * (os.cpu_count() or 1),
    short: Annotated[
        bool, typer.Option(help="Of the agents and of the attackers one each per variant, in turn.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Only checks with this in their names; repeatable."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write the findings as JSON.")] = None,
) -> None:
    """Pass tasks through the gate on local desktops."""
    check_requirements()
    chosen = names or [info.name for info in list_tasks() if info.suite in SHIPPED]
    tasks = [load_task(name, seed) for seed in range(variants) for name in chosen]
    found = _checked(tasks, Gate(short, tuple(only or ())), desktops, report)
    ordered = sorted(found.findings, key=lambda f: (chosen.index(f.task), f.seed))
    result = Report(tuple(ordered), found.total)
    console.print(result.table())
    made, bad = len(ordered), sum(not f.passed for f in ordered)
    console.print(f"{made - bad} of {made} checks passed")
    if not result.complete:
        console.print(f"INCOMPLETE: interrupted after {made} of {result.total} checks")
    if report is not None:
        result.write(report)
    raise typer.Exit(result.exit_code)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Of the task, its suite and its package.")],
    into: Annotated[Path, typer.Option(help="Directory to make the package's own in.")] = Path(),
) -> None:
    """Write a package with a task that passes the gate as it stands."""
    for path in scaffold(name, into):
        print(path)
    errors.print(
        f"Install it with 'pip install -e {into / name}', then: python -m legato.tasks qa {name}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def reference() -> None:
    """Write the reference episodes of the fixed variants anew."""
    for suite in SHIPPED:
        path = reference_file(suite)
        path.write_text(generate(suite), encoding="utf-8")
        print(path)


@app.command()
def entries(
    suite: Annotated[str, typer.Argument(help="Such as desktop_basics.")],
    split: Annotated[Split, typer.Argument(help="Which of the two disjoint sets of seeds.")],
    per_task: Annotated[int, typer.Option(min=1, help="Seeds of each task.")] = 16,
) -> None:
    """Print a tasks file of a suite for collect and the trainers."""
    print(tasks_entries(suite, seeds(split, per_task)), end="")


def _checked(tasks: list[SeededTask], gate: Gate, desktops: int, report: Path | None) -> Report:
    """What was found, after an interrupt too; a bar on a terminal, lines of text elsewhere."""

    def say(line: str) -> None:
        bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    total = count_checks(tasks, gate)
    tally = Tally(total, say, report, quiet=errors.is_terminal)
    with Progress(*columns, console=errors, transient=True) as bar, ended_like_interrupted():
        line = bar.add_task("checks", total=total)

        def tick(finding: Finding) -> None:
            bar.update(line, advance=1, description=f"{finding.task} {finding.seed}")
            tally.add(finding)

        try:
            return run_gate(tasks, make_desktop, gate=gate, desktops=desktops, progress=tick)
        except KeyboardInterrupt:
            return Report(tuple(tally.findings), total)


def main() -> None:
    try:
        app()
    except LegatoError as e:
        errors.print(f"error: {e}", markup=False, highlight=False)
        raise SystemExit(2) from None
