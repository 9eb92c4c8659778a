"""Files as they stand in evidence (:func:`legato.tasks.seeded.pack_folder`). Stdlib only."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from legato.tasks.judging.checks import Check, guard

File = Mapping[str, Any] | None
Files = Mapping[str, File]
Copies = Mapping[str, str] | None
"""Path to name of the original; ``None``: too many files to say."""
NO_COPIES: Mapping[str, str] = {}


def content(file: File) -> bytes | None:
    """The bytes of a file, ``None`` if it is none or was too large to be packed."""
    if file is None or "data" not in file:
        return None
    return base64.b64decode(file["data"])


def text(file: File) -> str | None:
    """The same as text; ``None`` if it is not UTF-8."""
    data = content(file)
    try:
        return None if data is None else data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def packed(data: str) -> File:
    """A file whose packed bytes are ``data``."""
    return {"data": data}


def nothing_elsewhere(names: Sequence[str] | None, copies: Copies = NO_COPIES) -> Check:
    """A guard on what :mod:`legato.tasks.leftovers` found."""
    many = names is None or copies is None
    found = sorted({*(names or ()), *(copies or ())})
    detail = "too many files" if many else "; ".join(found)
    return guard("nothing was put elsewhere", not many and not found, detail)


def kept(name: str, copies: Copies) -> bool:
    """Whether what was to be deleted is somewhere, for all that can be told."""
    return copies is None or name in copies.values()


def editor_closed(titles: Sequence[str], program: str) -> Check:
    """A guard on the windows that are left when an editor was asked to close its only one.

    ``program`` is what each of its titles holds (:func:`legato.tasks.seeded.close_editor`).
    """
    left = [title for title in titles if program in title]
    return guard("nothing is unsaved, and no second window open", not left, "; ".join(left))


def one_editor(titles: Sequence[str], program: str, modified: str = "") -> list[Check]:
    """Guards on the windows of a program that are open at the end.

    ``program`` is what each of its titles holds, ``modified`` how the title of one with unsaved
    changes begins.
    """
    windows = [title for title in titles if program in title]
    unsaved = [title for title in windows if modified and title.startswith(modified)]
    return [
        guard("nothing is left unsaved", not unsaved, "; ".join(unsaved)),
        guard("no second window is open", len(windows) <= 1, "; ".join(windows)),
    ]
