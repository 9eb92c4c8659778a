"""Unpack an archive with xarchiver into folders whose names have to be typed.

Partial credit is for archives that were unpacked whole, each into the folder asked for, which has
to be typed; nothing here is cheap.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction, Done, Key, Type
from legato.desktop.contract import Machine
from legato.tasks.draw import Draw
from legato.tasks.leftovers import files_elsewhere
from legato.tasks.place import Place, draw_place, launch_placed
from legato.tasks.seeded import SeededTask, pack_folder
from legato.tasks.verifier import pack_bytes

ARCHIVES, TARGETS = "Downloads", "Documents"
_LEAST = (620, 420)
"""Smallest inside of the window, in pixels."""
_ARCHIVES = ("parcel", "backup", "minutes", "photos", "letters", "drafts", "receipts")
_FOLDERS = ("incoming", "sorted", "review", "shared", "keep", "press", "ledger")
_SUBFOLDERS = ("north", "south", "east", "west")
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "flint", "grove", "heron", "islet")


@dataclass(frozen=True)
class UnpackArchive(SeededTask):
    """Unpack an archive in xarchiver into two folders with given names."""

    suite = "desktop_apps"
    name = "unpack_archive"
    judge = Path(__file__).with_name("unpack_archive_judge.py")

    @cached_property
    def _plan(self) -> tuple[str, dict[str, bytes], list[str], Place]:
        draw = Draw(self.name, self.seed)
        archive = f"{draw.choice(_ARCHIVES)}-{draw.between(10, 99)}"
        places = ["", *(f"{s}/" for s in draw.sample(_SUBFOLDERS, draw.between(1, 2)))]
        files = {}
        for i in range(draw.between(3, 5)):
            name = f"{draw.choice(places)}{draw.choice(_WORDS)}-{i}.txt"
            files[name] = f"{' '.join(draw.sample(_WORDS, 4))} {draw.between(100, 999)}\n".encode()
        folders = [
            f"{name}-{draw.between(10, 99)}" for name in draw.sample(_FOLDERS, draw.between(1, 2))
        ]
        return archive, files, folders, draw_place(draw)

    @property
    def archive(self) -> str:
        """Name of the archive, without its ending."""
        return self._plan[0]

    @property
    def files(self) -> dict[str, bytes]:
        """What is in it, by relative path."""
        return self._plan[1]

    @property
    def folders(self) -> list[str]:
        return self._plan[2]

    @property
    def instruction(self) -> str:
        wanted = " and once more into ".join(f'"{TARGETS}/{folder}"' for folder in self.folders)
        return (
            f'The archive "{self.archive}.zip" is open in the archive manager. Unpack all of it '
            f'into {wanted} in your home folder (a folder "{self.archive}" may be made there). '
            "Leave the archive and everything else as it is."
        )

    def setup(self, machine: Machine) -> None:
        path = f"{machine.home}/{ARCHIVES}/{self.archive}.zip"
        machine.write_file(path, self.packed())
        launch_placed(machine, ["xarchiver", path], self._plan[3], _LEAST)

    def packed(self) -> bytes:
        """The archive; the same bytes for a seed."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, data in self.files.items():
                archive.writestr(zipfile.ZipInfo(name, (2024, 3, 1, 9, 0, 0)), data)
        return out.getvalue()

    def evidence(self, machine: Machine) -> dict[str, Any]:
        return {
            "archive": self.archive,
            "packed": pack_bytes(self.packed()),
            "files": {name: pack_bytes(data) for name, data in self.files.items()},
            "folders": self.folders,
            "found": {
                "archives": pack_folder(machine, f"{machine.home}/{ARCHIVES}"),
                "targets": pack_folder(machine, f"{machine.home}/{TARGETS}"),
                "elsewhere": files_elsewhere(machine, ARCHIVES, TARGETS),
            },
        }

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        for folder in self.folders:
            yield Key(key="ctrl+e")
            yield Key(key="ctrl+a")
            yield Type(text=f"{machine.home}/{TARGETS}/{folder}\n")
        yield Done()
