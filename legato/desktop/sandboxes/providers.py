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
from typing import TYPE_CHECKING, Any

from legato.desktop.contract import DesktopOptions
from legato.desktop.sandboxes.contract import Sandboxes
from legato.errors import ConfigError

if TYPE_CHECKING:
    from legato.desktop.sandboxes.desktop import SandboxDesktop

KEYS = {"daytona": "DAYTONA_API_KEY", "e2b": "E2B_API_KEY"}


def make_daytona(options: DesktopOptions, slot: int) -> SandboxDesktop:
    """Raises :class:`~legato.errors.ConfigError`: package, key, snapshot or an option."""
    desktop: SandboxDesktop = ours("daytona").make_desktop(options, slot)
    return desktop


def make_e2b(options: DesktopOptions, slot: int) -> SandboxDesktop:
    """Raises :class:`~legato.errors.ConfigError`: package, key, template or an option."""
    desktop: SandboxDesktop = ours("e2b").make_desktop(options, slot)
    return desktop


def connect_daytona() -> Sandboxes:
    sandboxes: Sandboxes = ours("daytona").connect()
    return sandboxes


def connect_e2b() -> Sandboxes:
    sandboxes: Sandboxes = ours("e2b").connect()
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
