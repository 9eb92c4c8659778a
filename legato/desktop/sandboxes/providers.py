"""The providers there are, by name; the package of one is imported only when it is wanted.

A further provider is found by two entry points of its package: ``legato.desktops`` names its
factory of desktops, for ``--backend``; ``legato.sandboxes`` names a function without arguments
that returns its :class:`~legato.desktop.sandboxes.contract.Sandboxes`, for ``sandboxes``.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from legato.desktop.contract import DesktopOptions
from legato.desktop.sandboxes.contract import Sandboxes
from legato.desktop.sandboxes.desktop import SandboxDesktop, make_sandbox_desktop
from legato.desktop.sandboxes.options import SandboxOptions
from legato.errors import ConfigError

KEYS = {"daytona": "DAYTONA_API_KEY", "e2b": "E2B_API_KEY"}


def make_daytona(options: DesktopOptions, slot: int) -> SandboxDesktop:
    """Raises :class:`~legato.errors.ConfigError`: package, key, snapshot or an option."""
    return make_desktop("daytona", options, slot)


def make_e2b(options: DesktopOptions, slot: int) -> SandboxDesktop:
    """Raises :class:`~legato.errors.ConfigError`: package, key, template or an option."""
    return make_desktop("e2b", options, slot)


def make_desktop(name: str, options: DesktopOptions, slot: int) -> SandboxDesktop:
    """A desktop whose sandbox is created with its first ``prepare`` or ``reset``.

    Raises :class:`~legato.errors.ConfigError`.
    """
    provider = ours(name)
    own: SandboxOptions = provider.OPTIONS.read(options.extra)
    return make_sandbox_desktop(options, slot, own, lambda: provider.SANDBOXES(own))


def connect_daytona() -> Sandboxes:
    """The account of ``DAYTONA_API_KEY``. Raises ``ConfigError``."""
    return _connect("daytona")


def connect_e2b() -> Sandboxes:
    """The account of ``E2B_API_KEY``. Raises ``ConfigError``."""
    return _connect("e2b")


def _connect(name: str) -> Sandboxes:
    provider = ours(name)
    sandboxes: Sandboxes = provider.SANDBOXES(provider.OPTIONS())
    return sandboxes


def connect(name: str) -> Sandboxes:
    """The account at a provider, by the key in the environment. Raises ``ConfigError``."""
    found = {e.name: e for e in entry_points(group="legato.sandboxes")}
    if name not in found:
        raise ConfigError(f"no provider {name!r}; known: {', '.join(sorted(found))}")
    sandboxes: Sandboxes = found[name].load()()
    return sandboxes


def with_keys() -> list[str]:
    """Those of our own providers whose key is in the environment."""
    return [name for name, key in KEYS.items() if os.environ.get(key, "").strip()]


def ours(name: str) -> Any:
    """The module of one of our own providers. Raises ``ConfigError``."""
    if name not in KEYS:
        raise ConfigError(f"no provider {name!r}; known: {', '.join(KEYS)}")
    if find_spec(name) is None or find_spec("websockets") is None:
        raise ConfigError(f"{name} needs packages that are missing: pip install legatolabs[{name}]")
    return import_module(f"legato.desktop.sandboxes.{name}")
