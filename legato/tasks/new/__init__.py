"""Scaffolding: a package with one task that passes the gate as it stands, to be changed from there.

It is found by name once it is installed, through the entry point in its ``pyproject.toml``
(:data:`legato.tasks.suites.ENTRY_POINTS`).
"""

from __future__ import annotations

import keyword
import string
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from legato.errors import ConfigError
from legato.tasks.suites import all_suites


def scaffold(name: str, into: Path) -> list[Path]:
    """Write the package ``name`` to the new directory ``into/name``; returns its files.

    Raises :class:`~legato.errors.ConfigError` for a name that is taken or no name of a Python
    package, and if the directory exists or cannot be written.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise ConfigError(f"{name!r} is no name for a package: use small letters, digits and _")
    taken = {*all_suites(), *(task for tasks in all_suites().values() for task in tasks), "legato"}
    if name in taken:
        raise ConfigError(f"there is a task or a suite {name!r} already: choose another name")
    target = into / name
    words = {"name": name, "kind": "".join(word.title() for word in name.split("_"))}
    written: list[Path] = []
    try:
        target.mkdir(parents=True)
        for place, template in sorted(_templates(files(__name__) / "files")):
            path = target / string.Template(place.removesuffix(".in")).substitute(words)
            path.parent.mkdir(exist_ok=True)
            path.write_text(string.Template(template).substitute(words), encoding="utf-8")
            written.append(path)
    except FileExistsError:
        raise ConfigError(f"{target} exists already: choose another name or --into") from None
    except OSError as e:
        raise ConfigError(f"could not write {target}: {e}") from e
    return written


def _templates(folder: Traversable, below: str = "") -> list[tuple[str, str]]:
    """Path and text of every template; the folder ``package`` stands for the package's own."""
    found: list[tuple[str, str]] = []
    for item in folder.iterdir():
        name = "$name" if item.name == "package" else item.name
        if item.is_dir():
            found += _templates(item, f"{below}{name}/")
        elif item.name.endswith(".in"):
            found.append((f"{below}{name}", item.read_text(encoding="utf-8")))
    return found
