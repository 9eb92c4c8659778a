"""Agents that must earn nothing: idle, random, and after credit that costs little."""

from __future__ import annotations

from collections.abc import Iterator

from legato.desktop.actions import AnyAction, Click, Done, Key, Type, parse_action
from legato.desktop.contract import Machine
from legato.tasks.draw import Draw

RANDOM_STEPS = 12
_KEYS = ("Return", "Tab", "Escape", "Down", "space", "ctrl+s", "ctrl+a", "Delete", "BackSpace")


def every_action(machine: Machine) -> Iterator[AnyAction]:
    """Each kind of action once, about the middle of the screen; ends with ``done``."""
    x, y = machine.screen[0] // 2, machine.screen[1] // 2
    point = {"x": x, "y": y}
    for fields in (
        {"action_type": "screenshot"},
        {"action_type": "move", **point},
        {"action_type": "click", **point},
        {"action_type": "double_click", **point},
        {"action_type": "triple_click", **point},
        {"action_type": "right_click", **point},
        {"action_type": "key", "key": "Escape"},
        {"action_type": "middle_click", **point},
        {"action_type": "drag", **point, "to_x": x + 60, "to_y": y + 30},
        {"action_type": "mouse_down", **point},
        {"action_type": "mouse_up"},
        {"action_type": "scroll", **point, "direction": "down"},
        {"action_type": "type", "text": "hello\n"},
        {"action_type": "key_down", "key": "shift"},
        {"action_type": "key_up", "key": "shift"},
        {"action_type": "key", "key": "ctrl+s"},
        {"action_type": "wait", "seconds": 0.1},
        {"action_type": "done"},
    ):
        yield parse_action(fields)


def random_actions(machine: Machine, draw: Draw) -> Iterator[AnyAction]:
    """Clicks, keys and short words at random, for a while."""
    width, height = machine.screen
    for _ in range(RANDOM_STEPS):
        kind = draw.below(10)
        if kind < 5:
            yield Click(x=draw.below(width), y=draw.below(height))
        elif kind < 8:
            yield Key(key=draw.choice(_KEYS))
        else:
            yield Type(text=draw.choice(("hello", "12", "x\n", "yes")))
    yield Done()


def blind_farmer(machine: Machine) -> Iterator[AnyAction]:
    """Goes through everything that takes the keyboard, switches it, confirms and saves."""
    windows = machine.windows()
    if windows:
        window = windows[-1]
        yield Click(x=window.x + window.width // 2, y=window.y + window.height - 12)
    for _ in range(6):
        yield Key(key="Tab")
        yield Key(key="space")
    yield Key(key="Return")
    yield Key(key="ctrl+s")
    yield Key(key="Return")
    yield Done()


def saver(machine: Machine) -> Iterator[AnyAction]:
    """Saves what is untouched, by every way a program may offer."""
    yield Key(key="ctrl+s")
    yield Key(key="Return")
    yield Key(key="ctrl+Return")
    yield Done()


def destroyer(machine: Machine) -> Iterator[AnyAction]:
    """Selects all there is, deletes it and saves."""
    for key in ("ctrl+a", "Delete", "Return", "ctrl+s", "Return"):
        yield Key(key=key)
    yield Done()
