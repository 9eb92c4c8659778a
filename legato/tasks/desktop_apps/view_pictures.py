"""Turn, mirror and delete pictures in the viewer gpicview.

The folder holds small pictures, none of which looks the same turned or mirrored. Partial credit is
for pictures saved as asked under a name that has to be typed; turning one in its place and
deleting one, a few keys each, count only beside one of those.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from legato.desktop.actions import AnyAction, Done, Key, Type
from legato.desktop.contract import Machine
from legato.tasks.draw import Draw
from legato.tasks.leftovers import copies_elsewhere, files_elsewhere
from legato.tasks.place import Place, draw_place, launch_placed
from legato.tasks.seeded import SeededTask, pack_folder, window_titles
from legato.tasks.verifier import pack_bytes

FOLDER = "Pictures"
_LEAST = (520, 420)
"""Smallest inside of the window, in pixels."""
_CHOOSER_FILE = ".config/gtk-2.0/gtkfilechooser.ini"
# Else the first dialog for opening has no field for a name, and later ones have.
_CHOOSER = b"[Filechooser Settings]\nLocationMode=filename-entry\n"
_NAMES = ("harbour", "lake", "mill", "orchard", "pier", "quarry", "ridge", "tower", "valley")
_TURNS = {
    "right": ("turn it right by a quarter", "r"),
    "left": ("turn it left by a quarter", "l"),
    "mirror": ("mirror it left to right", "h"),
    "flip": ("flip it upside down", "v"),
}
"""What is asked, and the viewer's key for it."""


@dataclass(frozen=True, slots=True)
class Change:
    kind: str
    """``copy`` (save under another name), ``replace`` (in place) or ``delete``."""
    file: str
    turn: str
    """One of the turns; empty for ``delete``."""
    target: str = ""
    """The name to save under."""

    @property
    def request(self) -> str:
        if self.kind == "delete":
            return f'delete "{self.file}"'
        how = _TURNS[self.turn][0]
        if self.kind == "replace":
            return f'open "{self.file}", {how} and save it in its place'
        return f'open "{self.file}", {how} and save it as "{self.target}", leaving the original'

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "file": self.file,
            "turn": self.turn,
            "target": self.target,
            "name": self.request,
            "cheap": self.kind != "copy",
        }


@dataclass(frozen=True)
class ViewPictures(SeededTask):
    """Turn, mirror, save and delete pictures in gpicview."""

    suite = "desktop_apps"
    name = "view_pictures"
    judge = Path(__file__).with_name("view_pictures_judge.py")

    @cached_property
    def _plan(self) -> tuple[dict[str, bytes], list[Change], Place]:
        draw = Draw(self.name, self.seed)
        names = [f"{name}.png" for name in draw.sample(_NAMES, draw.between(4, 6))]
        pictures = {name: _paint(draw) for name in names}
        kinds = ["copy", *draw.sample(("copy", "replace", "delete"), draw.between(1, 2))]
        changes = []
        for kind, file in zip(draw.shuffled(kinds), draw.sample(names, len(kinds)), strict=True):
            turn = "" if kind == "delete" else draw.choice(sorted(_TURNS))
            target = f"{file[:-4]}-{draw.between(10, 99)}.png" if kind == "copy" else ""
            changes.append(Change(kind, file, turn, target))
        return pictures, changes, draw_place(draw)

    @property
    def pictures(self) -> dict[str, bytes]:
        """What the agent finds in the folder, by name."""
        return self._plan[0]

    @property
    def changes(self) -> list[Change]:
        return self._plan[1]

    @property
    def instruction(self) -> str:
        wanted = "; ".join(f"({i}) {c.request}" for i, c in enumerate(self.changes, 1))
        return (
            f'The folder "{FOLDER}" is open in the picture viewer. Do this: {wanted}. '
            "Leave all other pictures as they are."
        )

    def setup(self, machine: Machine) -> None:
        folder = f"{machine.home}/{FOLDER}"
        for name, data in self.pictures.items():
            machine.write_file(f"{folder}/{name}", data)
        machine.write_file(f"{machine.home}/{_CHOOSER_FILE}", _CHOOSER)
        first = f"{folder}/{min(self.pictures)}"
        launch_placed(machine, ["gpicview", first], self._plan[2], _LEAST)

    def evidence(self, machine: Machine) -> dict[str, Any]:
        deleted = {c.file: self.pictures[c.file] for c in self.changes if c.kind == "delete"}
        return {
            "before": {name: pack_bytes(data) for name, data in self.pictures.items()},
            "changes": [change.to_json() for change in self.changes],
            "found": {
                "folder": pack_folder(machine, f"{machine.home}/{FOLDER}"),
                "titles": window_titles(machine),
                "elsewhere": files_elsewhere(machine, FOLDER),
                "copies": copies_elsewhere(machine, deleted, FOLDER),
            },
        }

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self._make(machine, self.changes)

    def cheap_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self._make(machine, [c for c in self.changes if c.kind != "copy"])

    def _make(self, machine: Machine, changes: Sequence[Change]) -> Iterator[AnyAction]:
        """By name through the viewer's dialog: its own order follows no rule worth relying on."""
        for change in changes:
            if change.file != min(self.pictures) or change is not changes[0]:
                yield Key(key="o")
                yield Key(key="ctrl+a")
                yield Type(text=f"{machine.home}/{FOLDER}/{change.file}\n")
            if change.kind == "delete":
                yield Key(key="Delete")
                yield Key(key="alt+y")
                continue
            yield Key(key=_TURNS[change.turn][1])
            if change.kind == "replace":
                yield Key(key="s")
                yield Key(key="alt+y")
                continue
            yield Key(key="a")
            yield Type(text=f"{change.target}\n")
        yield Done()


def _paint(draw: Draw) -> bytes:
    """A small PNG with a mark in one corner and a bar along one side: no symmetry."""

    def colour() -> tuple[int, int, int]:
        return draw.between(0, 255), draw.between(0, 255), draw.between(0, 255)

    width, height = draw.between(60, 110), draw.between(40, 58)
    image = Image.new("RGB", (width, height), colour())
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 0, width // 3, height // 4), fill=colour())
    pen.rectangle((width - 9, 0, width - 1, height // 2), fill=colour())
    pen.ellipse((4, height - 18, 18, height - 4), fill=colour())
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()
