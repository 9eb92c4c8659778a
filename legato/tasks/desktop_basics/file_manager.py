"""Tidy a folder in the file manager pcmanfm: collect, file, rename and delete by rules.

The folder holds small text files, each with contents of its own, and one subfolder. Partial
credit is for rules that need a name typed (collect into a new folder, rename); filing a file in
the folder there is and deleting one count only beside one of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction, Done, Key, Type
from legato.desktop.contract import Machine
from legato.tasks.draw import Draw
from legato.tasks.leftovers import copies_elsewhere, files_elsewhere
from legato.tasks.place import Place, draw_place, launch_placed
from legato.tasks.seeded import SeededTask, pack_folder
from legato.tasks.verifier import pack_bytes

_FOLDERS = ("Inbox", "Scans", "Shared", "Transfer", "Unsorted", "Received")
_SERIES = {
    "invoice": "Invoices",
    "recipe": "Recipes",
    "minutes": "Minutes",
    "ticket": "Travel",
    "sketch": "Sketches",
    "lyrics": "Songs",
    "survey": "Surveys",
}
_SINGLES = (
    "address-list",
    "budget",
    "draft",
    "garden-plan",
    "guest-book",
    "letter",
    "manual",
    "notes",
    "packing",
    "poster-text",
    "quotes",
    "roster",
    "speech",
    "timetable",
)
_NEW_NAMES = ("final", "approved", "2nd-version", "for-print", "archive-copy", "handout")
_KEPT = ("Archive", "Old", "Reference", "Library")
_WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "flint", "grove"),
    *("heron", "islet", "jetty", "kelp", "lagoon", "moss"),
)
_LEAST = (640, 440)
"""Smallest inside of the window, in pixels."""
_LOOK_FILE = ".config/pcmanfm/default/pcmanfm.conf"
# No status bar: it shows the free space of the disk, which no seed decides.
_LOOK = """[ui]
view_mode={view}
sort=name;{order};
show_statusbar=0
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to do; paths are relative to the folder."""

    kind: str
    """``collect``, ``file`` (both move), ``rename`` or ``delete``."""
    moves: tuple[tuple[str, str | None], ...]
    """From -> to; ``None``: deleted."""
    request: str
    creates: str | None = None
    """A folder that has to be made first."""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "moves": [list(move) for move in self.moves],
            "creates": self.creates,
            "cheap": self.kind in ("file", "delete"),
        }


@dataclass(frozen=True)
class FileManager(SeededTask):
    """Tidy a folder in pcmanfm: move, rename and delete files by rules."""

    suite = "desktop_basics"
    name = "file_manager"
    judge = Path(__file__).with_name("file_manager_judge.py")

    @cached_property
    def _plan(self) -> tuple[str, dict[str, bytes], list[Rule], tuple[str, str], Place]:
        draw = Draw(self.name, self.seed)
        folder = draw.choice(_FOLDERS)
        series = draw.choice(sorted(_SERIES))
        numbers = draw.sample(range(11, 99), draw.between(2, 3))
        members = [f"{series}-{number}.txt" for number in sorted(numbers)]
        singles = [f"{stem}.txt" for stem in draw.sample(_SINGLES, draw.between(4, 6))]
        kept = draw.choice(_KEPT)
        inside = f"{kept}/{draw.choice(_WORDS)}-{draw.between(100, 999)}.txt"
        names = [*members, *singles, inside]
        files = {
            name: f"{' '.join(draw.sample(_WORDS, 5))} {i}\n".encode()
            for i, name in enumerate(names)
        }
        to_file, to_rename, to_delete = singles[0], singles[1], singles[2]
        goal = _SERIES[series]
        new_name = f"{draw.choice(_NEW_NAMES)}-{draw.between(2, 99)}.txt"
        rules = {
            "collect": Rule(
                "collect",
                tuple((name, f"{goal}/{name}") for name in members),
                f'create a folder "{goal}" and move every file whose name starts with '
                f'"{series}-" into it',
                creates=goal,
            ),
            "file": Rule(
                "file",
                ((to_file, f"{kept}/{to_file}"),),
                f'move "{to_file}" into the folder "{kept}"',
            ),
            "rename": Rule(
                "rename", ((to_rename, new_name),), f'rename "{to_rename}" to "{new_name}"'
            ),
            "delete": Rule("delete", ((to_delete, None),), f'delete "{to_delete}"'),
        }
        kinds = [draw.choice(("collect", "rename"))]
        kinds += draw.sample(sorted(set(rules) - set(kinds)), draw.between(1, 2))
        look = draw.choice(("icon", "compact")), draw.choice(("ascending", "descending"))
        wanted = [rules[kind] for kind in draw.shuffled(kinds)]
        return folder, files, wanted, look, draw_place(draw)

    @property
    def folder(self) -> str:
        """Name of the folder, below the home."""
        return self._plan[0]

    @property
    def files(self) -> dict[str, bytes]:
        """What the agent finds in it, by relative path."""
        return self._plan[1]

    @property
    def rules(self) -> list[Rule]:
        return self._plan[2]

    @property
    def instruction(self) -> str:
        wanted = "; ".join(f"({i}) {r.request}" for i, r in enumerate(self.rules, 1))
        return (
            f'The folder "{self.folder}" is open in the file manager. Tidy it up: {wanted}. '
            "Leave all other files and folders as they are."
        )

    def setup(self, machine: Machine) -> None:
        folder = f"{machine.home}/{self.folder}"
        for name, data in self.files.items():
            machine.write_file(f"{folder}/{name}", data)
        view, order = self._plan[3]
        look = _LOOK.format(view=view, order=order)
        machine.write_file(f"{machine.home}/{_LOOK_FILE}", look.encode())
        launch_placed(machine, ["pcmanfm", folder], self._plan[4], _LEAST)

    def evidence(self, machine: Machine) -> dict[str, Any]:
        moves = [move for rule in self.rules for move in rule.moves]
        deleted = {name: self.files[name] for name, target in moves if target is None}
        return {
            "before": {name: pack_bytes(data) for name, data in self.files.items()},
            "rules": [rule.to_json() for rule in self.rules],
            "found": {
                "folder": pack_folder(machine, f"{machine.home}/{self.folder}"),
                "elsewhere": files_elsewhere(machine, self.folder),
                "copies": copies_elsewhere(machine, deleted, self.folder),
            },
        }

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self.follow(self.rules)

    def cheap_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self.follow([rule for rule in self.rules if rule.kind in ("file", "delete")])

    def follow(self, rules: Sequence[Rule]) -> Iterator[AnyAction]:
        """By keyboard: typing a name selects it, cut and paste move what is selected.

        What is collected has neighbouring names.
        """
        view, order = self._plan[3]
        inside = False
        for rule in rules:
            if inside:
                yield Key(key="alt+Up")
            inside = False
            if rule.creates is not None:
                yield Key(key="ctrl+shift+n")
                yield Type(text=f"{rule.creates}\n")
            sources = [source for source, _ in rule.moves]
            yield from _select(sources[-1] if order == "descending" else sources[0])
            for _ in sources[1:]:
                yield Key(key="shift+Down" if view == "compact" else "shift+Right")
            target = rule.moves[0][1]
            if target is None:
                yield Key(key="Delete")
                yield Key(key="Return")
            elif "/" not in target:
                yield Key(key="F2")
                yield Key(key="ctrl+a")
                yield Type(text=f"{target}\n")
            else:
                yield Key(key="ctrl+x")
                yield Type(text=f"{target.partition('/')[0]}\n")
                yield Key(key="ctrl+v")
                inside = True
        yield Done()


def _select(name: str) -> Iterator[AnyAction]:
    yield Type(text=name)
    yield Key(key="Escape")
