"""Desktops on this machine: Xvfb, openbox and a panel, each in a bubblewrap sandbox of its own.

``make_desktop`` is what the entry point ``local`` of ``legato.desktops`` names.
"""

from __future__ import annotations

from functools import cache

from legato.desktop.contract import DesktopOptions
from legato.desktop.local.desktop import LocalDesktop
from legato.desktop.local.options import LocalOptions
from legato.desktop.local.requirements import check_requirements

__all__ = ["LocalDesktop", "LocalOptions", "check_requirements", "make_desktop"]


def make_desktop(options: DesktopOptions, slot: int) -> LocalDesktop:
    """A desktop that boots with its first ``prepare`` or ``reset``.

    Raises :class:`~legato.errors.ConfigError` on an unknown or wrong option in ``extra``, and if
    this machine cannot run local desktops.
    """
    _check_once()
    return LocalDesktop(options, slot)


@cache
def _check_once() -> None:
    check_requirements()
