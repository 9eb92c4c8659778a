"""How a folder for viewing comes by a run's pictures."""

from __future__ import annotations

from enum import StrEnum


class Images(StrEnum):
    """How the pictures get into the folder."""

    HARDLINK = "hardlink"
    """Costs no space and outlives the run directory; on another file system they are copied."""
    SYMLINK = "symlink"
    """Needs the run directory to stay where it is."""
    COPY = "copy"
