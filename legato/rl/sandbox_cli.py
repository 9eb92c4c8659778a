"""``python -m legato.rl sandboxes list | reap | check`` and ``sandbox-image``."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from legato.errors import ConfigError, EnvFailure

Providers = Annotated[
    list[str] | None,
    typer.Option("--provider", help="Repeatable. [default: those whose key is there]"),
]

sandboxes = typer.Typer(no_args_is_help=True, help="The sandboxes of this account that are ours.")


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(sandboxes, name="sandboxes")
    app.command("sandbox-image")(sandbox_image)


@sandboxes.command("list")
def list_ours(provider: Providers = None) -> None:
    """Say which sandboxes of ours there are, how old, and whether anyone uses them."""
    from legato.desktop.sandboxes import owner
    from legato.desktop.sandboxes.providers import connect

    for name in _chosen(provider):
        account = connect(name)
        found = [each for each in account.list(owner.OURS) if owner.is_ours(each.labels)]
        for each in sorted(found, key=lambda sandbox: sandbox.created_at):
            age = (time.time() - each.created_at) / 60
            typer.echo(f"{name}  {each.id}  {age:.0f} min  {owner.state(each.labels)}")
        typer.echo(f"{name}: {len(found)} sandboxes of ours")
        account.close()


@sandboxes.command("reap")
def reap_ours(
    provider: Providers = None,
    everybodys: Annotated[
        bool,
        typer.Option("--all", help="Also those in use, and those of other machines."),
    ] = False,
) -> None:
    """End sandboxes that dead processes of this machine left behind; never any but ours."""
    from legato.desktop.sandboxes.fleet import reap
    from legato.desktop.sandboxes.providers import connect

    for name in _chosen(provider):
        account = connect(name)
        for each in reap(account, everybodys=everybodys):
            typer.echo(f"{name}  {each.id}  ended")
        account.close()


@sandboxes.command("check")
def check(provider: Annotated[str, typer.Argument(help="Its name, your own included.")]) -> None:
    """Try on two sandboxes of an account whether its provider keeps to the contract."""
    from legato.desktop.sandboxes import conformance
    from legato.desktop.sandboxes.providers import connect

    account = connect(provider)
    account.check()
    broken = 0
    with conformance.subject(account) as subject:
        for rule in conformance.RULES:
            said = "kept"
            try:
                rule(subject)
            except (conformance.Broken, EnvFailure) as e:
                broken += 1
                said = f"BROKEN: {e}"
            typer.echo(f"{conformance.name(rule).replace('_', ' ')}: {said}")
    account.close()
    if broken:
        raise typer.Exit(1)


def sandbox_image(
    provider: Annotated[str, typer.Argument(help="daytona or e2b")],
    cpus: Annotated[int, typer.Option("--cpus", help="Of a sandbox.")] = 2,
    memory_gib: Annotated[int, typer.Option("--memory-gib")] = 4,
    disk_gib: Annotated[int, typer.Option("--disk-gib")] = 5,
) -> None:
    """Have the provider build the desktop's image from its package list, once."""
    from legato.desktop.sandboxes.providers import ours

    name = ours(provider).make_image(
        typer.echo, cpus=cpus, memory_gib=memory_gib, disk_gib=disk_gib
    )
    typer.echo(name)


def _chosen(named: list[str] | None) -> list[str]:
    from legato.desktop.sandboxes.providers import KEYS, with_keys

    chosen = named or with_keys()
    if not chosen:
        raise ConfigError(f"no key of a provider is in the environment: {', '.join(KEYS.values())}")
    return chosen
