"""Files as they stand in evidence (:func:`legato.tasks.seeded.pack_folder`). Stdlib only."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from legato.tasks.judging.checks import Check, guard

File = Mapping[str, Any] | None
Files = Mapping[str, File]


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


def nothing_elsewhere(names: Sequence[str] | None) -> Check:
    """A guard on :func:`legato.tasks.seeded.files_elsewhere`."""
    detail = "too many files" if names is None else "; ".join(names)
    return guard("nothing was put elsewhere", names == [], detail)


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
