"""Tries every step of the lockdown from within, with the rights of the agent's programs.

Its arguments are ``HOME STAGE [PORT...]``, the ports being those that may be open. Prints one JSON
object, the name of each step to what is wrong with it (``null`` when it holds). Standard library
only.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

from . import execution, view

COMMANDS = (
    *("sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh", "fish", "busybox", "script", "screen"),
    *("tmux", "xterm", "uxterm", "lxterm", "x-terminal-emulator", "gnome-terminal", "konsole"),
    *("xfce4-terminal", "lxterminal", "mate-terminal", "qterminal", "terminator", "urxvt", "st"),
    *("kitty", "alacritty", "foot", "tilix", "guake", "python3", "python", "perl", "ruby", "node"),
    *("lua", "php", "tclsh", "wish", "gawk", "awk", "mawk", "vim", "vi", "nano", "emacs", "ed"),
    *("env", "xargs", "find", "nohup", "setsid", "nsenter", "unshare", "bwrap", "gdb", "strace"),
    *("sudo", "su", "doas", "pkexec", "runuser", "ssh", "curl", "wget", "nc", "socat", "xdotool"),
    *("dmenu", "dmenu_run", "rofi", "gmrun", "xfrun4", "xfce4-appfinder", "lxpanelctl", "xmessage"),
    *("exo-open", "xdg-open", "gio", "at", "crontab", "ld.so", "gcc", "cc", "make", "git"),
    *("java", "javac", "jshell", "jrunscript", "guile", "erl", "R", "octave", "julia", "qemu-img"),
)
"""Ways from a dialog to a command line, known by name; none may be found."""
HARMLESS_KEYS = frozenset(
    {
        *("Close", "NextWindow", "PreviousWindow", "ShowMenu", "ToggleShowDesktop"),
        *("ToggleMaximize", "Iconify", "Focus", "Raise", "Unshade"),
    }
)
BLOCKED = ("chrome", "file", "view-source", "javascript", "data", "devtools", "blob")
LISTENING = "0A"
"""The state of a listening socket in ``/proc/net/tcp``."""


class Probe:
    """The steps, by name; each returns what is wrong, or ``None``."""

    def __init__(self, home: str, stage: str, ports: set[int]) -> None:
        self.home, self.stage, self.ports = home, stage, ports

    def no_privileges(self) -> str | None:
        return view.excess_rights()

    def other_programs_out_of_reach(self) -> str | None:
        for secret in ("environ", "mem", "root", "ns/mnt"):
            try:
                os.close(os.open(f"/proc/1/{secret}", os.O_RDONLY))
            except OSError:
                continue
            return f"/proc/1/{secret} can be opened"
        return None

    def no_network(self) -> str | None:
        others = {name for _, name in socket.if_nameindex()} - {"lo"}
        return f"network interfaces {sorted(others)}" if others else None

    def no_open_ports(self) -> str | None:
        strange = sorted(set(_listening()) - self.ports)
        return f"ports {strange} are open" if strange else None

    def no_commands(self) -> str | None:
        found = [name for name in COMMANDS if _executable(name)]
        return f"can execute {', '.join(found)}" if found else None

    def only_allowed_programs(self) -> str | None:
        allowed = set(view.installed_programs())
        for directory in view.HIDDEN:
            if not os.path.isdir(directory) or os.path.islink(directory):
                continue
            found = set(os.listdir(directory))
            strange = found - allowed if directory == view.SHOWN_AT else found
            if strange:
                return f"{directory} holds {', '.join(sorted(strange)[:5])}"
            if _writable(directory):
                return f"{directory} can be written"
        allowed_at = {view.SHOWN_AT, *(f"{view.SHOWN_AT}/{name}" for name in allowed)}
        strange = set(execution.executable_mounts()) - allowed_at
        strange -= set(execution.executable_places())
        if strange:
            return f"files below {', '.join(sorted(strange)[:5])} can be executed"
        return None

    def no_commands_of_the_users_own(self) -> str | None:
        for dialog in filter(os.path.exists, view.COMMAND_DIALOGS):
            if os.path.getsize(dialog):
                return f"{dialog} asks for commands"
        types = Path(view.FILE_TYPES)
        if types.exists() and view.LAUNCHER_TYPE in types.read_bytes():
            return f"{types} knows launchers"
        if os.path.isdir(view.MORE_FILE_TYPES) and os.listdir(view.MORE_FILE_TYPES):
            return f"{view.MORE_FILE_TYPES} holds file types"
        for below in (*view.USER_COMMANDS, *view.USER_SETTINGS):
            place = f"{self.home}/{below}"
            if below in view.USER_COMMANDS and os.listdir(place):
                return f"{place} holds commands"
            if _writable(place):
                return f"{place} can be written"
            while place != self.home:
                try:
                    os.rename(place, f"{place}.moved")
                except OSError:
                    place = os.path.dirname(place)
                    continue
                os.rename(f"{place}.moved", place)
                return f"{place} can be moved away"
        return None

    def browser_policy(self) -> str | None:
        if "chromium" not in view.installed_programs():
            return None
        folder = f"{view.CHROMIUM_POLICY}/policies/managed"
        ours = f"{self.stage}/session/chromium/policies/managed/legato.json"
        try:
            policy = json.loads(Path(folder, "legato.json").read_text())
            if os.listdir(folder) != ["legato.json"] or policy != json.loads(
                Path(ours).read_text()
            ):
                return "it is not ours alone"
        except (OSError, ValueError) as e:
            return f"it cannot be read: {e}"
        missing = [s for s in BLOCKED if f"{s}:*" not in policy["URLBlocklist"]]
        if missing:
            return f"it does not block {', '.join(missing)}"
        places = (folder, os.path.dirname(folder), view.CHROMIUM_POLICY, ours)
        return next((f"{place} can be written" for place in places if _writable(place)), None)

    def office_policy(self) -> str | None:
        if "soffice" not in view.installed_programs():
            return None
        place = f"{view.OFFICE_REGISTRY}/{view.OFFICE_POLICY}"
        ours = f"{self.stage}/session/libreoffice.xcd"
        if Path(place).read_bytes() != Path(ours).read_bytes():
            return "it is not ours"
        places = (place, view.OFFICE_REGISTRY, os.path.dirname(view.OFFICE_REGISTRY), ours)
        return next((f"{place} can be written" for place in places if _writable(place)), None)

    def no_run_dialog(self) -> str | None:
        session = f"{self.stage}/session"
        keys = ET.parse(f"{session}/openbox.xml").getroot()
        actions = {e.get("name", "") for e in keys.iter(_tag(keys, "action"))}
        mouse = keys.find(_tag(keys, "mouse"))
        on_mouse = set() if mouse is None else {e.get("action") for e in mouse.iter()}
        if "Execute" in actions | on_mouse:
            return "a key or a button of the window manager runs a command"
        strange = {
            e.get("name", "")
            for bind in keys.iter(_tag(keys, "keybind"))
            for e in bind.iter(_tag(keys, "action"))
        } - HARMLESS_KEYS
        if strange:
            return f"keys of the window manager do {', '.join(sorted(strange))}"
        return f"{session} can be written" if _writable(session) else None

    def menus_start_only_programs(self) -> str | None:
        session = Path(self.stage, "session")
        menu = ET.parse(session / "menu.xml").getroot()
        started = [e.text or "" for e in menu.iter(_tag(menu, "command"))]
        for launcher in session.glob("*.desktop"):
            started += re.findall(r"^Exec=(.*)$", launcher.read_text(), re.MULTILINE)
        strange = [line for line in started if line.split()[0] not in view.PROGRAMS]
        return f"a menu starts {strange[0]!r}" if strange else None


def try_all(probe: Probe) -> dict[str, str | None]:
    """Every step of a probe, in words, to what is wrong with it."""
    found: dict[str, str | None] = {}
    for name in vars(Probe):
        if name.startswith("_"):
            continue
        step: Callable[[], str | None] = getattr(probe, name)
        try:
            found[name.replace("_", " ")] = step()
        except (OSError, ValueError, KeyError, ET.ParseError) as e:
            found[name.replace("_", " ")] = f"could not be tried: {e!r}"
    return found


def _tag(root: ET.Element, name: str) -> str:
    namespace = root.tag.partition("}")[0]
    return f"{namespace}}}{name}" if namespace.startswith("{") else name


def _executable(name: str) -> bool:
    return any(
        os.access(f"{directory}/{name}", os.X_OK)
        for directory in (*view.HIDDEN, *os.environ.get("PATH", "").split(":"))
    )


def _writable(path: str) -> bool:
    """Whether a file can be written, or something be put into a directory."""
    try:
        if not os.path.isdir(path):
            os.close(os.open(path, os.O_WRONLY))
            return True
        os.mkdir(f"{path}/.probe")
    except OSError:
        return False
    os.rmdir(f"{path}/.probe")
    return True


def _listening() -> Iterator[int]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(table):
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state = line.split()[:4]
                if state == LISTENING:
                    yield int(local.rpartition(":")[2], 16)


def main() -> None:
    home, stage, *ports = sys.argv[1:]
    print(json.dumps(try_all(Probe(home, stage, set(map(int, ports))))))
