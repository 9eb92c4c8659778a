"""The file and command side of a machine on a folder of this host: no screen, no sandbox.

Stands in where a test is about what a task writes, reads and concludes; everything with windows
is tested on real desktops.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from legato.desktop.contract import Completed, EndedBy, Window
from legato.errors import EnvFailure, FileTooLarge


class DiskMachine:
    screen = (1280, 720)

    def __init__(self, folder: Path) -> None:
        self.root = folder / "home"
        self.root.mkdir()
        self.home = str(self.root)
        self.outside = folder / "outside"
        """Holds what is not in the home, by full path."""
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.ended_by: EndedBy | None = None
        self.frozen = False
        self.launched: list[list[str]] = []
        self.owned: list[Any] = []
        self.activated: list[int] = []
        self.window_list: list[Window] = []

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 60.0,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Completed:
        assert not self.frozen
        done = subprocess.run(
            list(argv), capture_output=True, text=True, timeout=timeout, cwd=cwd or self.home
        )
        return Completed(done.returncode, done.stdout, done.stderr)

    def launch(self, argv: Sequence[str], **_: Any) -> int:
        self.launched.append(list(argv))
        number = len(self.launched)
        self.window_list.append(Window(number, argv[0], argv[0], number, 0, 0, 640, 480))
        return number

    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)

    def read_file(self, path: str, *, limit: int = 64 * 2**20) -> bytes | None:
        place = self._place(path)
        if not place.is_file():
            return None
        if place.stat().st_size > limit:
            raise FileTooLarge(path)
        return place.read_bytes()

    def _place(self, path: str) -> Path:
        return (
            Path(path) if f"{path}/".startswith(f"{self.home}/") else Path(f"{self.outside}{path}")
        )

    def list_files(self, path: str) -> list[str]:
        found = []
        folder = self._place(path)
        for item in folder.rglob("*"):
            name = str(item.relative_to(folder))
            if item.is_symlink() or item.is_file():
                found.append(name)
            elif not any(item.iterdir()):
                found.append(name + "/")
        return sorted(found)

    def windows(self) -> list[Window]:
        return self.window_list

    def activate_window(self, window_id: int) -> None:
        self.activated.append(window_id)

    def close_window(self, window_id: int) -> bool:
        self.window_list = [w for w in self.window_list if w.id != window_id]
        return True

    def place_window(self, window_id: int, x: int, y: int, width: int, height: int) -> None:
        found = next(w for w in self.window_list if w.id == window_id)
        moved = replace(found, x=x, y=y, width=width, height=height)
        self.window_list = [moved if w is found else w for w in self.window_list]

    def input(self, action: Any) -> None:
        raise EnvFailure("no screen")

    def expose(self, port: int, socket_path: Path) -> None:
        assert socket_path.is_socket()

    def freeze(self) -> None:
        self.frozen = True

    def own(self, resource: Any) -> None:
        self.owned.append(resource)
