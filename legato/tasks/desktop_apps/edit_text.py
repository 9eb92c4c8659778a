"""Edit a text file in mousepad: change, remove and add named lines, and save.

The file is a list of ``key<separator>value`` lines in a seeded order under a title; beside it
lies another file that must stay as it is. Partial credit is for lines changed or added as asked
and saved; removing a line, a few keys, counts only beside one of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction, Click, Done, Key, Type
from legato.desktop.contract import Machine
from legato.tasks.draw import Draw
from legato.tasks.leftovers import files_elsewhere
from legato.tasks.place import Place, draw_place, launch_placed
from legato.tasks.seeded import SeededTask, close_editor, pack_folder, window_titles
from legato.tasks.verifier import pack_bytes

FOLDER = "Documents"
_LEAST = (480, 360)
"""Smallest inside of the window, in pixels."""
_SEPARATORS = (": ", " = ", " - ")
_MARKS = ("=", "-", "~")

_PAPERS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Picnic": {
        "Place": ("Willow Park", "North Pier", "Old Mill", "Castle Green", "Lake Terrace"),
        "Host": ("Ines", "Marek", "Zoë", "Tobias", "Priya", "Łucja"),
        "Start": ("11:30", "12:00", "12:45", "13:15"),
        "Guests": ("14", "18", "22", "31", "45"),
        "Dessert": ("plum cake", "lemon tart", "melon", "rice pudding"),
        "Music": ("guitar", "accordion", "none", "speakers"),
        "Parking": ("Mill Lane", "behind the church", "Station Square"),
        "If it rains": ("town hall", "cancelled", "Sunday instead"),
        "Budget": ("120 EUR", "85 EUR", "240 EUR"),
        "Contact": ("extension 41", "extension 67", "extension 12"),
    },
    "Workshop": {
        "Topic": ("bookbinding", "wood joints", "soldering", "linocut"),
        "Trainer": ("A. Okafor", "B. Lindqvist", "C. Moreau", "D. Haddad"),
        "Room": ("B 204", "C 117", "Annex 3", "Atelier"),
        "Seats": ("8", "12", "16", "20"),
        "Fee": ("30 EUR", "45 EUR", "60 EUR"),
        "Material": ("included", "bring your own", "sold on site"),
        "Lunch": ("canteen", "packed", "soup and bread"),
        "Level": ("beginners", "advanced", "mixed"),
        "Length": ("3 hours", "half a day", "2 evenings"),
        "Sign-up": ("front desk", "by phone", "by letter"),
    },
    "Shipment": {
        "Carrier": ("Blue Heron", "Nordfracht", "Velo Post", "Quayline"),
        "Parcels": ("3", "7", "11", "26"),
        "Weight": ("18 kg", "42 kg", "77 kg", "104 kg"),
        "From": ("Gdynia", "Porto", "Malmö", "Trieste"),
        "To": ("Leeds", "Graz", "Nantes", "Bilbao"),
        "Insurance": ("basic", "full", "none"),
        "Fragile": ("yes", "no", "two parcels"),
        "Pallet": ("P-18", "P-33", "P-52"),
        "Gate": ("2", "5", "9"),
        "Customs": ("cleared", "pending", "not needed"),
    },
    "Greenhouse": {
        "Bed 1": ("tomatoes", "basil", "peppers", "lettuce"),
        "Bed 2": ("beans", "chard", "radishes"),
        "Bed 3": ("cucumbers", "dill", "spinach"),
        "Watering": ("daily", "every second day", "drip line"),
        "Soil": ("compost mix", "sandy loam", "peat free"),
        "Shade": ("30 %", "50 %", "none"),
        "Keeper": ("Hana", "Joost", "Émile", "Rosa"),
        "Vent": ("open", "closed", "half open"),
        "Feed": ("nettle tea", "bone meal", "none"),
        "Harvest": ("Monday", "Thursday", "Saturday"),
    },
}
_EXTRAS: Mapping[str, Sequence[str]] = {
    "Note": ("bring a torch", "ask Ruben first", "see the back page", "keys at the desk"),
    "Deputy": ("M. Arnold", "S. Ito", "T. Vega"),
    "Colour": ("teal", "ochre", "crimson"),
    "Reference": ("K-2207", "L-9140", "Q-3385"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """One named edit. ``old`` and ``new`` are whole lines; ``key`` is what the line starts with."""

    kind: str
    """``set`` (old -> new), ``remove`` (old) or ``add`` (new, as the last line)."""
    key: str
    old: str | None
    new: str | None
    request: str
    """How the instruction words it."""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "key": self.key,
            "old": self.old,
            "new": self.new,
            "cheap": self.kind == "remove",
        }


@dataclass(frozen=True)
class EditText(SeededTask):
    """Edit a text file in mousepad: change, remove and add lines, then save."""

    suite = "desktop_apps"
    name = "edit_text"
    judge = Path(__file__).with_name("edit_text_judge.py")

    @cached_property
    def _paper(self) -> tuple[str, str, list[str], list[Change], dict[str, bytes], Place]:
        draw = Draw(self.name, self.seed)
        title = draw.choice(sorted(_PAPERS))
        separator = draw.choice(_SEPARATORS)
        fields = _PAPERS[title]
        keys = draw.shuffled(sorted(fields))[: draw.between(6, len(fields))]
        values = {key: draw.choice(fields[key]) for key in keys}
        number = draw.between(2, 99)
        heading = f"{title} {number}"
        lines = [heading, draw.choice(_MARKS) * len(heading)]
        lines += [""] * draw.between(0, 1)
        lines += [f"{key}{separator}{values[key]}" for key in keys]

        kinds = draw.sample(["set", "set", "add", "remove"], draw.between(2, 3))
        touched = draw.sample(keys, len(kinds))
        changes = []
        for kind, key in zip(kinds, touched, strict=True):
            old = f"{key}{separator}{values[key]}"
            if kind == "set":
                value = draw.choice([v for v in fields[key] if v != values[key]])
                request = f'change "{key}" from "{values[key]}" to "{value}"'
                changes.append(Change(kind, key, old, f"{key}{separator}{value}", request))
            elif kind == "remove":
                request = f'remove the whole line "{old}"'
                changes.append(Change(kind, key, old, None, request))
            else:
                extra = draw.choice(sorted(_EXTRAS))
                new = f"{extra}{separator}{draw.choice(_EXTRAS[extra])}"
                request = f'add the line "{new}" as the last line'
                changes.append(Change(kind, extra, None, new, request))
        other = draw.choice([t for t in sorted(_PAPERS) if t != title])
        beside = "\n".join(f"{k}{separator}{draw.choice(v)}" for k, v in _PAPERS[other].items())
        others = {f"{other.lower()}.txt": f"{other}\n{beside}\n".encode()}
        file = f"{title.lower()}-{number}.txt"
        return file, separator, lines, changes, others, draw_place(draw)

    @property
    def file(self) -> str:
        """Name of the file to edit."""
        return self._paper[0]

    @property
    def separator(self) -> str:
        return self._paper[1]

    @property
    def lines(self) -> list[str]:
        """The file as the agent finds it."""
        return self._paper[2]

    @property
    def changes(self) -> list[Change]:
        return self._paper[3]

    @property
    def others(self) -> dict[str, bytes]:
        """Files beside it, by name."""
        return self._paper[4]

    @property
    def instruction(self) -> str:
        wanted = "; ".join(f"({i}) {c.request}" for i, c in enumerate(self.changes, 1))
        return (
            f"The file {self.file} is open in the text editor. Make these changes and save the "
            f"file: {wanted}. Leave everything else as it is."
        )

    def setup(self, machine: Machine) -> None:
        folder = f"{machine.home}/{FOLDER}"
        for name, data in self.others.items():
            machine.write_file(f"{folder}/{name}", data)
        path = f"{folder}/{self.file}"
        machine.write_file(path, ("\n".join(self.lines) + "\n").encode())
        launch_placed(machine, ["mousepad", path], self._paper[5], _LEAST)

    def evidence(self, machine: Machine) -> dict[str, Any]:
        return {
            "file": self.file,
            "separator": self.separator,
            "before": self.lines,
            "changes": [change.to_json() for change in self.changes],
            "others": {name: pack_bytes(data) for name, data in self.others.items()},
            "found": {
                "folder": pack_folder(machine, f"{machine.home}/{FOLDER}"),
                "titles": window_titles(machine),
                "elsewhere": files_elsewhere(machine, FOLDER),
            },
        }

    def settle(self, machine: Machine) -> None:
        close_editor(machine, "Mousepad")

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self._make(machine, self.changes)

    def cheap_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self._make(machine, [c for c in self.changes if c.kind == "remove"])

    def _make(self, machine: Machine, changes: Sequence[Change]) -> Iterator[AnyAction]:
        """From the last line up, so that earlier line numbers stay true."""
        window = next(w for w in machine.windows() if self.file in w.title)
        yield Click(x=window.x + window.width // 2, y=window.y + window.height // 2)
        for change in changes:
            if change.kind == "add":
                yield Key(key="ctrl+End")
                yield Type(text=f"{change.new}\n")
        edits = [c for c in changes if c.old is not None]
        for change in sorted(edits, key=lambda c: -self.lines.index(c.old or "")):
            yield Key(key="ctrl+Home")
            for _ in range(self.lines.index(change.old or "")):
                yield Key(key="Down")
            if change.kind == "remove":
                yield Key(key="shift+Down")
                yield Key(key="Delete")
            else:
                yield Key(key="shift+End")
                yield Type(text=change.new or "")
        yield Key(key="ctrl+s")
        yield Done()
