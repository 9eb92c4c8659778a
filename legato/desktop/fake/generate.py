"""Seeded screens, and tasks made of them.

``press``
    a few coloured buttons, one of which is to be pressed; fits a screen of 96 x 96 pixels
``form``
    text fields and checkboxes
``picker``
    a long list to choose from, and a field
``settings``
    checkboxes, sliders and a field on three tabs
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from legato.desktop.fake.spec import (
    ButtonSpec,
    CheckSpec,
    FieldSpec,
    ListSpec,
    SceneSpec,
    SliderSpec,
    Value,
    WidgetSpec,
    describe_goal,
    read_spec,
)
from legato.errors import ConfigError

_FIRST = [
    "Ada",
    "Alan",
    "Barbara",
    "Claude",
    "Donald",
    "Edsger",
    "Frances",
    "Grace",
    "Hedy",
    "Ivan",
    "John",
    "Katherine",
]
_LAST = [
    "Allen",
    "Backus",
    "Dijkstra",
    "Hopper",
    "Johnson",
    "Kay",
    "Knuth",
    "Lamarr",
    "Lovelace",
    "Shannon",
    "Turing",
]
_CITIES = [
    "Amsterdam",
    "Athens",
    "Berlin",
    "Bern",
    "Brussels",
    "Bucharest",
    "Budapest",
    "Copenhagen",
    "Dublin",
    "Helsinki",
    "Kyiv",
    "Lisbon",
    "Ljubljana",
    "London",
    "Madrid",
    "Oslo",
    "Paris",
    "Prague",
    "Riga",
    "Rome",
    "Sofia",
    "Stockholm",
    "Tallinn",
    "Vienna",
    "Vilnius",
    "Warsaw",
    "Zagreb",
]
_TEAMS = (
    "Design",
    "Finance",
    "Legal",
    "Marketing",
    "Operations",
    "Research",
    "Sales",
    "Support",
)
_SWITCHES = (
    "Newsletter",
    "Notifications",
    "Dark mode",
    "Auto update",
    "Share usage data",
    "Large text",
    "Show clock",
    "Sync contacts",
)
_SLIDERS = ("Volume", "Brightness", "Pointer speed", "Zoom", "Contrast")


def _press(rng: random.Random) -> SceneSpec:
    letters = "ABCD"
    buttons = tuple(
        ButtonSpec(
            name=letter,
            colour=(rng.randrange(60, 190), rng.randrange(60, 190), rng.randrange(60, 190)),
        )
        for letter in letters
    )
    return SceneSpec(title="Buttons", widgets=buttons, goal={rng.choice(letters): True}, save=False)


def _form(rng: random.Random) -> SceneSpec:
    first, last = rng.choice(_FIRST), rng.choice(_LAST)
    makers: list[tuple[str, Callable[[], str]]] = [
        ("Name", lambda: f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"),
        ("City", lambda: rng.choice(_CITIES)),
        ("Team", lambda: rng.choice(_TEAMS)),
        ("Phone", lambda: f"+{rng.randrange(10, 99)} {rng.randrange(10**6, 10**7)}"),
        ("Email", lambda: f"{first}.{last}{rng.randrange(100)}@example.org".lower()),
    ]
    fields = sorted(rng.sample(makers, 4), key=lambda m: makers.index(m))
    widgets: list[WidgetSpec] = [
        FieldSpec(name=name, value=make() if rng.random() < 0.7 else "") for name, make in fields
    ]
    widgets += [CheckSpec(name=n, value=rng.random() < 0.5) for n in rng.sample(_SWITCHES, 2)]
    goal: dict[str, Value] = {}
    for index in sorted(rng.sample(range(4), 2)):
        name, make = fields[index]
        goal[name] = _other_than(widgets[index].value, make)
    flipped = rng.choice(widgets[4:])
    goal[flipped.name] = not flipped.value
    return SceneSpec(title="Profile", widgets=tuple(widgets), goal=goal)


def _picker(rng: random.Random) -> SceneSpec:
    items = tuple(rng.sample(_CITIES, rng.randrange(14, len(_CITIES))))
    start = rng.choice(items)
    widgets: tuple[WidgetSpec, ...] = (
        FieldSpec(name="Traveller", value=f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"),
        CheckSpec(name="Window seat", value=rng.random() < 0.5),
        SliderSpec(name="Bags", low=0, high=5, value=rng.randrange(6)),
        ListSpec(name="Destination", items=items, value=start),
    )
    goal: dict[str, Value] = {"Destination": _other_than(start, lambda: rng.choice(items))}
    extra = rng.choice(widgets[:3])
    goal[extra.name] = _new_value(extra, rng)
    return SceneSpec(title="Trip", widgets=widgets, goal=goal)


def _settings(rng: random.Random) -> SceneSpec:
    switches, sliders = rng.sample(_SWITCHES, 6), rng.sample(_SLIDERS, 3)
    widgets: list[WidgetSpec] = []
    for number, tab in enumerate(("General", "Display", "Privacy")):
        widgets += [
            CheckSpec(name=name, tab=tab, value=rng.random() < 0.5)
            for name in switches[2 * number : 2 * number + 2]
        ]
        widgets.append(SliderSpec(name=sliders[number], tab=tab, value=rng.randrange(11)))
    widgets.append(FieldSpec(name="Nickname", tab="General", value=rng.choice(_FIRST)))
    chosen = sorted(rng.sample(range(len(widgets)), 3))
    goal = {widgets[i].name: _new_value(widgets[i], rng) for i in chosen}
    return SceneSpec(title="Settings", widgets=tuple(widgets), goal=goal)


def _new_value(widget: WidgetSpec, rng: random.Random) -> Value:
    match widget:
        case SliderSpec(low=low, high=high):
            return _other_than(widget.value, lambda: rng.randint(low, high))
        case FieldSpec():
            return _other_than(widget.value, lambda: f"{rng.choice(_FIRST)} {rng.choice(_LAST)}")
        case ListSpec(items=items):
            return _other_than(widget.value, lambda: rng.choice(items))
        case _:
            return not widget.value


def _other_than(value: Value, draw: Callable[[], Value]) -> Value:
    while (drawn := draw()) == value:
        continue
    return drawn


_MAKERS: dict[str, Callable[[random.Random], SceneSpec]] = {
    "press": _press,
    "form": _form,
    "picker": _picker,
    "settings": _settings,
}

KINDS: tuple[str, ...] = tuple(_MAKERS)

SMALLEST_FORM = (320, 240)
"""(width, height) in pixels from which every kind fits; below, only ``press`` does."""


def generate(kind: str, seed: int | str) -> SceneSpec:
    """The screen of a kind and seed; the same pair always gives the same screen."""
    if kind not in _MAKERS:
        raise ConfigError(f"unknown kind {kind!r} of fake screen; known: {', '.join(KINDS)}")
    return _MAKERS[kind](random.Random(f"{kind}/{seed}"))


def scene_of(
    task_id: str, config: Mapping[str, Any], screen: tuple[int, int] = (1280, 720)
) -> tuple[SceneSpec, bool]:
    """The screen that a task asks for, and whether it asked at all.

    A config without ``fake`` (any task made for another desktop) gets a screen and a goal
    derived from its ``task_id``, of a kind that fits ``screen``. Raises ``ConfigError``.
    """
    asked = config.get("fake")
    if asked is None:
        small = screen[0] < SMALLEST_FORM[0] or screen[1] < SMALLEST_FORM[1]
        return generate("press" if small else _any_kind(task_id), task_id), False
    if not isinstance(asked, Mapping):
        raise ConfigError(f"'fake' must be an object, got {asked!r}")
    if "widgets" in asked:
        return read_spec(asked), True
    unknown = sorted(set(asked) - {"kind", "seed"})
    if unknown:
        raise ConfigError(
            f"'fake' has unknown keys {', '.join(unknown)}; give kind and seed, or widgets and goal"
        )
    kind, seed = asked.get("kind", _any_kind(task_id)), asked.get("seed", task_id)
    if not isinstance(kind, str) or isinstance(seed, bool) or not isinstance(seed, int | str):
        raise ConfigError(f"'fake' needs a kind by name and a whole number as seed, got {asked!r}")
    return generate(kind, seed), True


def _any_kind(task_id: str) -> str:
    return random.Random(f"kind/{task_id}").choice(KINDS[1:])


def fake_tasks(n: int, seed: int = 0, kinds: Sequence[str] = KINDS) -> list[dict[str, Any]]:
    """``n`` different tasks in the inline form of ``tasks.json``, taking turns through ``kinds``.

    Every entry is ``{"task_id", "config": {"instruction", "fake": {"kind", "seed"}}}``.
    """
    tasks = []
    for index in range(n):
        kind = kinds[index % len(kinds)]
        number = seed * 1_000_000 + index
        tasks.append(
            {
                "task_id": f"fake-{kind}-{number}",
                "config": {
                    "instruction": describe_goal(generate(kind, number)),
                    "fake": {"kind": kind, "seed": number},
                },
            }
        )
    return tasks
