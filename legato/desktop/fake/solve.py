"""The actions that solve a screen, as a careful person would do them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from legato.desktop import actions as a
from legato.desktop.fake.scene import Scene, open_scene
from legato.desktop.fake.spec import Value
from legato.desktop.fake.text_field import TextField
from legato.desktop.fake.widgets import ListBox, Slider, Widget


def reference_actions(
    task_id: str, config: Mapping[str, Any], screen: tuple[int, int] = (1280, 720)
) -> list[a.AnyAction]:
    """GUI actions that earn a reward of 1 on a fresh reset of the task, closed by ``done``.

    ``config`` is the task's config; ``screen`` is (width, height) in pixels. Works for any task
    that the fake desktop takes, those made for other desktops included. Raises ``ConfigError``.
    """
    scene = open_scene(task_id, config, "", screen)
    solution: list[a.AnyAction] = []
    for action in _solution(scene):
        scene.apply(action)
        solution.append(action)
    return solution


def _solution(scene: Scene) -> Iterator[a.AnyAction]:
    """Each action is to be applied to the scene before the next is asked for."""
    for number, page in enumerate(scene.layout.pages):
        todo = [(widget, name) for name, widget in page if name in scene.spec.goal]
        if todo and (tabs := scene.layout.tabs) is not None and tabs.value != number:
            yield _click(tabs.tab_center(number))
        for widget, name in todo:
            yield from _bring_to(widget, scene.spec.goal[name])
    if scene.layout.save is not None:
        yield _click(scene.layout.save.place.center)
    yield a.Done()


def _bring_to(widget: Widget, wanted: Value) -> Iterator[a.AnyAction]:
    match widget:
        case TextField():
            x, y = widget.place.center
            yield a.TripleClick(x=x, y=y)
            yield a.Type(text=str(wanted)) if wanted else a.Key(key="BackSpace")
        case ListBox():
            x, y = widget.place.center
            item = str(wanted)
            while (point := widget.row_center(item)) is None:
                away = widget.items.index(item) - widget.top
                towards: Literal["up", "down"] = "down" if away > 0 else "up"
                yield a.Scroll(x=x, y=y, direction=towards, amount=min(abs(away), 5))
            yield _click(point)
        case Slider():
            assert isinstance(wanted, int)
            (x, y), (to_x, to_y) = widget.point_of(widget.value), widget.point_of(wanted)
            yield a.Drag(x=x, y=y, to_x=to_x, to_y=to_y)
            while widget.value != wanted:  # more values than the track has pixels
                yield a.Key(key="Right" if widget.value < wanted else "Left")
        case _:
            yield _click(widget.place.center)


def _click(point: tuple[int, int]) -> a.Click:
    return a.Click(x=point[0], y=point[1])
