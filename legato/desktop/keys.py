"""Key names: what an agent may write in a ``key`` action, on every backend alike.

A *canonical* name is either one printable character (``a``, ``+``, ``é``) or an X keysym name of
:data:`KEYSYMS` (``Return``, ``Page_Up``, ``F5``). People and models write many others, in any
case: ``enter``, ``pgup``, ``cmd``, ``ArrowLeft``; :data:`ALIASES` maps those.

Any other keysym name of X11's ``keysymdef.h`` (``Eacute``, ``Hyper_L``), spelled as there, is its
own canonical name. Numbers and names are those of ``keysymdef.h`` and ``XF86keysym.h``.
"""

from __future__ import annotations

from xcffib import keysymdef

from legato.errors import ActionError

KEYSYMS: dict[str, int] = {
    "BackSpace": 0xFF08,
    "Tab": 0xFF09,
    "Return": 0xFF0D,
    "Pause": 0xFF13,
    "Scroll_Lock": 0xFF14,
    "Escape": 0xFF1B,
    "Home": 0xFF50,
    "Left": 0xFF51,
    "Up": 0xFF52,
    "Right": 0xFF53,
    "Down": 0xFF54,
    "Page_Up": 0xFF55,
    "Page_Down": 0xFF56,
    "End": 0xFF57,
    "Print": 0xFF61,
    "Insert": 0xFF63,
    "Menu": 0xFF67,
    "Num_Lock": 0xFF7F,
    "KP_Enter": 0xFF8D,
    "KP_Multiply": 0xFFAA,
    "KP_Add": 0xFFAB,
    "KP_Subtract": 0xFFAD,
    "KP_Decimal": 0xFFAE,
    "KP_Divide": 0xFFAF,
    **{f"KP_{i}": 0xFFB0 + i for i in range(10)},
    **{f"F{i}": 0xFFBD + i for i in range(1, 25)},
    "Shift_L": 0xFFE1,
    "Shift_R": 0xFFE2,
    "Control_L": 0xFFE3,
    "Control_R": 0xFFE4,
    "Caps_Lock": 0xFFE5,
    "Alt_L": 0xFFE9,
    "Alt_R": 0xFFEA,
    "Super_L": 0xFFEB,
    "Super_R": 0xFFEC,
    "Delete": 0xFFFF,
    "XF86AudioLowerVolume": 0x1008FF11,
    "XF86AudioMute": 0x1008FF12,
    "XF86AudioRaiseVolume": 0x1008FF13,
    "XF86AudioPlay": 0x1008FF14,
    "XF86AudioStop": 0x1008FF15,
    "XF86AudioPrev": 0x1008FF16,
    "XF86AudioNext": 0x1008FF17,
}

MODIFIERS = frozenset(
    {"Shift_L", "Shift_R", "Control_L", "Control_R", "Alt_L", "Alt_R", "Super_L", "Super_R"}
)

ALIASES: dict[str, str] = {
    "enter": "Return",
    "newline": "Return",
    "esc": "Escape",
    "backspace": "BackSpace",
    "bksp": "BackSpace",
    "del": "Delete",
    "ins": "Insert",
    "spacebar": " ",
    "arrowleft": "Left",
    "arrowright": "Right",
    "arrowup": "Up",
    "arrowdown": "Down",
    "left_arrow": "Left",
    "right_arrow": "Right",
    "up_arrow": "Up",
    "down_arrow": "Down",
    "pageup": "Page_Up",
    "pgup": "Page_Up",
    "prior": "Page_Up",
    "pagedown": "Page_Down",
    "pgdn": "Page_Down",
    "next": "Page_Down",
    "shift": "Shift_L",
    "shiftleft": "Shift_L",
    "shiftright": "Shift_R",
    "ctrl": "Control_L",
    "control": "Control_L",
    "ctrlleft": "Control_L",
    "ctrlright": "Control_R",
    "alt": "Alt_L",
    "altleft": "Alt_L",
    "altright": "Alt_R",
    "altgr": "Alt_R",
    "option": "Alt_L",
    "super": "Super_L",
    "win": "Super_L",
    "winleft": "Super_L",
    "winright": "Super_R",
    "windows": "Super_L",
    "cmd": "Super_L",
    "command": "Super_L",
    "meta": "Super_L",
    "capslock": "Caps_Lock",
    "numlock": "Num_Lock",
    "scrolllock": "Scroll_Lock",
    "printscreen": "Print",
    "print_screen": "Print",
    "prtsc": "Print",
    "apps": "Menu",
    "volumeup": "XF86AudioRaiseVolume",
    "volumedown": "XF86AudioLowerVolume",
    "volumemute": "XF86AudioMute",
    "playpause": "XF86AudioPlay",
    "prevtrack": "XF86AudioPrev",
    "nexttrack": "XF86AudioNext",
    # X's own names of printable characters, as xdotool scripts write them.
    "space": " ",
    "exclam": "!",
    "quotedbl": '"',
    "numbersign": "#",
    "dollar": "$",
    "percent": "%",
    "ampersand": "&",
    "apostrophe": "'",
    "parenleft": "(",
    "parenright": ")",
    "asterisk": "*",
    "plus": "+",
    "comma": ",",
    "minus": "-",
    "period": ".",
    "slash": "/",
    "colon": ":",
    "semicolon": ";",
    "less": "<",
    "equal": "=",
    "greater": ">",
    "question": "?",
    "at": "@",
    "bracketleft": "[",
    "backslash": "\\",
    "bracketright": "]",
    "asciicircum": "^",
    "underscore": "_",
    "grave": "`",
    "braceleft": "{",
    "bar": "|",
    "braceright": "}",
    "asciitilde": "~",
}

_LOOKUP: dict[str, str] = {name.lower(): name for name in KEYSYMS} | ALIASES

_CONTROL_CHARACTERS = {"\n": "Return", "\r": "Return", "\t": "Tab", "\b": "BackSpace"}


def canonical_key(name: str) -> str:
    """The canonical form of one key name; raises ``ActionError`` if there is no such key."""
    if len(name) == 1:
        if name in _CONTROL_CHARACTERS:
            return _CONTROL_CHARACTERS[name]
        if name.isprintable():
            return name
    name = name.strip()
    known = _LOOKUP.get(name.lower(), name if _x_keysym(name) else None)
    if known is None:
        raise ActionError(
            f"unknown key {name!r}; use a character or a name such as Return, Escape, ctrl, F5, "
            "Page_Down, joined by + for a chord"
        )
    return known


def parse_chord(key: str) -> tuple[str, ...]:
    """Canonical names of a key or chord, in the order they go down.

    ``ctrl+shift+Tab`` is ``("Control_L", "Shift_L", "Tab")``; a plus sign itself may close a
    chord: ``ctrl++``. Raises ``ActionError`` on an unknown or empty name.
    """
    if key == "+":
        return ("+",)
    head, plus = (key[:-2], True) if key.endswith("++") else (key, False)
    names = [canonical_key(part if len(part) == 1 else part.strip()) for part in head.split("+")]
    return (*names, "+") if plus else tuple(names)


def keysym(name: str) -> int:
    """The X keysym number of a canonical name.

    Latin-1 characters are their own number, every other character is ``0x01000000`` plus its
    code point (keysymdef.h, "Unicode keysyms"). Raises ``ActionError`` for any other name.
    """
    if len(name) == 1 and name.isprintable():
        code = ord(name)
        return code if code < 0x100 else 0x0100_0000 + code
    number = KEYSYMS.get(name) or _x_keysym(name)
    if not number:
        raise ActionError(f"{name!r} is not a canonical key name")
    return number


def _x_keysym(name: str) -> int:
    """The number of a name of ``keysymdef.h``, 0 if there is none."""
    return int(getattr(keysymdef, f"XK_{name}", 0))
