"""What went wrong behind the back of OSWorld's own code.

Its getters and metrics log a failed request or a missing package and go on, and the end of it is a
score of 0. Whoever sees such a failure notes it in :data:`LEDGER`; a score below 1 that comes with
a note is no verdict.
"""

from __future__ import annotations


class Fault(Exception):  # noqa: N818 - the record's word is "failure"
    """A failure with its owner: ``env`` or ``grade``; sent over the wire as it is."""

    def __init__(self, kind: str, message: str, *, transient: bool = True) -> None:
        super().__init__(message)
        self.kind, self.transient = kind, transient


class Ledger:
    def __init__(self) -> None:
        self._notes: list[str] = []

    def note(self, what: str) -> None:
        if what not in self._notes:
            self._notes.append(what)

    def take(self) -> list[str]:
        notes, self._notes = self._notes, []
        return notes


LEDGER = Ledger()
