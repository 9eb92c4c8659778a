"""Waits inside the guest until its screen is ready; prints the reason and the seconds as JSON.

The rules are those of :mod:`legato.desktop.ready`, whose numbers come as the first argument, on
frames read from the X server: a screenshot through OSWorld's server would cost a second, and leak a
connection. The second argument is the source of :mod:`legato.desktop.guest.busy`. Page requests are
not seen here.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types

SERVERS = ("Xorg", "Xvfb", "Xwayland")
"""Their work is what looking at the screen costs."""


class Screen:
    def __init__(self) -> None:
        from Xlib import X, display

        self._root = display.Display().screen().root
        self._zpixmap = X.ZPixmap
        geometry = self._root.get_geometry()
        self.width, self.height = geometry.width, geometry.height

    def frame(self) -> bytes:
        image = self._root.get_image(0, 0, self.width, self.height, self._zpixmap, 0xFFFFFFFF)
        data = image.data
        return data if isinstance(data, bytes) else data.encode("latin-1")


def changed_tiles(before: bytes, after: bytes, width: int, height: int, tile: int) -> set[int]:
    """Numbers of the tiles that differ; cheap where a whole band of lines is the same."""
    if before == after:
        return set()
    line = len(after) // height
    pixel = line // width
    step, columns = tile * pixel, -(-width // tile)
    found: set[int] = set()
    for top in range(0, height, tile):
        start, end = top * line, min(top + tile, height) * line
        if before[start:end] == after[start:end]:
            continue
        row = (top // tile) * columns
        for at in range(start, end, line):
            if before[at : at + line] == after[at : at + line]:
                continue
            for column in range(columns):
                left = at + column * step
                right = min(left + step, at + line)
                if before[left:right] != after[left:right]:
                    found.add(row + column)
    return found


class Motion:
    """Which tiles changed in which of the last slots."""

    def __init__(self, rules: dict[str, float], now: float) -> None:
        self._rules = rules
        self._slots: list[tuple[float, set[int], bool]] = [(now, set(), False)]

    def note(self, changed: set[int], now: float) -> tuple[bool, float | None]:
        """Whether an unmasked tile changed, and since when the motion is steady, if it is."""
        if now - self._slots[-1][0] >= self._rules["slot_s"]:
            self._slots = [*self._slots[-int(self._rules["slots"]) + 1 :], (now, set(), False)]
        began, tiles, was_plain = self._slots[-1]
        tiles |= changed
        counts: dict[int, int] = {}
        for _, seen, _ in self._slots:
            for number in seen & changed:
                counts[number] = counts.get(number, 0) + 1
        plain = any(counts[number] < self._rules["mask_slots"] for number in changed)
        self._slots[-1] = (began, tiles, was_plain or plain)
        steady = sum(p for _, _, p in self._slots) >= self._rules["steady_slots"]
        return plain and not steady, self._slots[0][0] if steady else None


class Wait:
    def __init__(self, screen: Screen, meter: types.ModuleType, rules: dict[str, float]) -> None:
        self._screen, self._rules = screen, rules
        mine = frozenset([os.getpid(), os.getppid(), *_servers()])
        self._meter = meter.BusyMeter(lambda: mine)

    def until_ready(self) -> tuple[str, float]:
        rules, screen = self._rules, self._screen
        seen = screen.frame()
        start = last_change = last_plain = time.monotonic()
        motion = Motion(rules, start)
        sample = (start, self._meter.seconds())
        idle_since = start
        while True:
            frame = screen.frame()
            now = time.monotonic()
            changed = changed_tiles(seen, frame, screen.width, screen.height, int(rules["tile"]))
            seen = frame
            plain, steady_since = motion.note(changed, now)
            if changed:
                last_change = now
            if plain:
                last_plain = now
            if steady_since is not None:
                last_plain = min(last_plain, steady_since)
            if now - sample[0] >= rules["idle_s"]:
                busy = self._meter.seconds()
                if abs(busy - sample[1]) > rules["busy_share"] * (now - sample[0]):
                    idle_since = now
                sample = (now, busy)
            quiet, still = now - last_change, now - last_plain
            idle = now - idle_since >= rules["idle_s"]
            moving = last_change > last_plain and quiet < 2 * rules["quiet_s"]
            if quiet >= rules["quiet_s"] and idle:
                return "idle", now - start
            if (moving and still >= rules["grace_s"]) or still >= rules["patience_s"]:
                return "animated", now - start
            if now - start >= rules["timeout"]:
                return "timeout", now - start
            # A slow machine is not to spend its time on being looked at.
            time.sleep(max(rules["poll_s"], time.monotonic() - now))


def _servers() -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/comm") as file:
                    if file.read().strip() in SERVERS:
                        found.append(int(name))
            except OSError:
                continue
    return found


def main() -> None:
    meter = types.ModuleType("busy")
    exec(sys.argv[2], meter.__dict__)
    reason, seconds = Wait(Screen(), meter, json.loads(sys.argv[1])).until_ready()
    print(json.dumps({"reason": reason, "seconds": seconds}))


if __name__ == "__main__":
    main()
