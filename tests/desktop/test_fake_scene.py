"""Input on the fake desktop's widgets, as a person would expect it."""

from __future__ import annotations

from typing import Any

import pytest

from legato.desktop import actions as a
from legato.desktop.fake.scene import Scene
from legato.desktop.fake.spec import read_spec
from legato.desktop.fake.text_field import TextField
from legato.desktop.fake.widgets import ListBox, Slider
from legato.errors import ActionError, ConfigError

ITEMS = [f"item {n}" for n in range(40)]
WIDGETS: list[dict[str, Any]] = [
    {"type": "field", "name": "first", "value": "alpha beta"},
    {"type": "field", "name": "second"},
    {"type": "check", "name": "on"},
    {"type": "slider", "name": "level", "value": 3},
    {"type": "list", "name": "pick", "items": ITEMS},
]


@pytest.fixture
def scene() -> Scene:
    spec = read_spec({"widgets": WIDGETS, "goal": {"first": "done"}})
    return Scene(spec, 1280, 720, "do it")


def field(scene: Scene, name: str) -> TextField:
    widget = scene.widgets[name]
    assert isinstance(widget, TextField)
    return widget


def click(scene: Scene, name: str) -> None:
    x, y = scene.widgets[name].place.center
    scene.apply(a.Click(x=x, y=y))


def keys(scene: Scene, *names: str) -> None:
    for name in names:
        scene.apply(a.Key(key=name))


def test_typing_goes_to_the_focused_field_only(scene: Scene) -> None:
    scene.apply(a.Type(text="lost"))
    click(scene, "second")
    scene.apply(a.Type(text="kept"))
    assert scene.values()["second"] == "kept"
    assert scene.values()["first"] == "alpha beta"


def test_a_click_puts_the_caret_between_the_nearest_characters(scene: Scene) -> None:
    place = scene.widgets["first"].place
    middle = place.center[1]
    scene.apply(a.Click(x=place.x0, y=middle))
    scene.apply(a.Type(text="<"))
    scene.apply(a.Click(x=place.x1 - 1, y=middle))
    scene.apply(a.Type(text=">"))
    assert scene.values()["first"] == "<alpha beta>"


def test_editing_keys(scene: Scene) -> None:
    click(scene, "first")
    keys(scene, "End", "BackSpace", "Home", "Delete", "Right", "x")
    assert scene.values()["first"] == "lxpha bet"
    keys(scene, "ctrl+a", "BackSpace")
    assert scene.values()["first"] == ""
    keys(scene, "shift+a", "space", "plus")
    assert scene.values()["first"] == "A +"


def test_selecting_by_word_line_and_drag(scene: Scene) -> None:
    first = field(scene, "first")
    x0, y = first.place.x0, first.place.center[1]
    scene.apply(a.DoubleClick(x=x0 + 15, y=y))
    assert first.value[slice(*first.selection)] == "alpha"
    scene.apply(a.TripleClick(x=x0 + 15, y=y))
    assert first.selection == (0, len(first.value))
    scene.apply(a.Drag(x=x0 + 1, y=y, to_x=first.place.x1 + 40, to_y=y))
    assert first.selection == (0, len(first.value))
    scene.apply(a.Type(text="new"))
    assert first.value == "new"
    keys(scene, "shift+Left", "shift+Home")
    assert first.selection == (0, 3)


def test_copy_cut_and_paste(scene: Scene) -> None:
    click(scene, "first")
    keys(scene, "ctrl+a", "ctrl+x", "Tab", "ctrl+v", "ctrl+v")
    assert scene.values()["first"] == ""
    assert scene.values()["second"] == "alpha betaalpha beta"


def test_a_long_text_stays_editable_at_its_end(scene: Scene) -> None:
    click(scene, "second")
    scene.apply(a.Type(text="w" * 400))
    second = field(scene, "second")
    scene.apply(a.Click(x=second.place.x1 - 2, y=second.place.center[1]))
    keys(scene, "BackSpace", "z")
    assert second.value == "w" * 399 + "z"
    scene.view()


def test_tab_walks_in_a_circle_both_ways(scene: Scene) -> None:
    click(scene, "first")
    names = []
    for _ in range(7):
        keys(scene, "Tab")
        names.append(next((n for n, w in scene.widgets.items() if w is scene.focus), "button"))
    assert names == ["second", "on", "level", "pick", "button", "button", "first"]
    keys(scene, "shift+Tab", "shift+Tab", "shift+Tab")
    assert scene.focus is scene.widgets["pick"]


def test_typed_tabs_and_returns_are_keys(scene: Scene) -> None:
    click(scene, "first")
    keys(scene, "ctrl+a")
    scene.apply(a.Type(text="done\tmore\t \t\t\t\t\n"))
    assert scene.values()["second"] == "more"
    assert scene.values()["on"] is True
    assert scene.verdict().output == "1/1 changes made; guard failed: nothing else changed"


def test_return_presses_a_focused_button_only(scene: Scene) -> None:
    click(scene, "first")
    keys(scene, "ctrl+a", "d", "o", "n", "e", "Return")
    assert scene.verdict().reward == 0.0
    keys(scene, "shift+Tab", "Return")
    assert scene.verdict().reward == 1.0


def test_a_button_released_elsewhere_is_not_pressed(scene: Scene) -> None:
    assert scene.layout.save is not None
    click(scene, "first")
    keys(scene, "ctrl+a")
    scene.apply(a.Type(text="done"))
    x, y = scene.layout.save.place.center
    scene.apply(a.MouseDown(x=x, y=y))
    scene.apply(a.MouseUp(x=5, y=5))
    assert scene.verdict().reward == 0.0
    scene.apply(a.MouseDown(x=x, y=y))
    scene.apply(a.MouseUp())
    assert scene.verdict().reward == 1.0


def test_checkbox_by_mouse_and_space(scene: Scene) -> None:
    click(scene, "on")
    assert scene.values()["on"] is True
    keys(scene, "space")
    assert scene.values()["on"] is False


def test_slider_by_drag_click_and_keys(scene: Scene) -> None:
    slider = scene.widgets["level"]
    assert isinstance(slider, Slider)
    (x, y), (to_x, to_y) = slider.point_of(3), slider.point_of(9)
    scene.apply(a.Drag(x=x, y=y, to_x=to_x, to_y=to_y + 200))
    assert slider.value == 9
    scene.apply(a.Click(x=x, y=y))
    assert slider.value == 3
    keys(scene, "Right", "Right", "Left")
    assert slider.value == 4
    keys(scene, "End", "Right")
    assert slider.value == 10


def test_list_by_wheel_click_keys_and_bar(scene: Scene) -> None:
    box = scene.widgets["pick"]
    assert isinstance(box, ListBox)
    x, y = box.place.center
    assert box.row_center("item 39") is None
    scene.apply(a.Scroll(x=x, y=y, direction="down", amount=100))
    point = box.row_center("item 39")
    assert point is not None
    scene.apply(a.Click(x=point[0], y=point[1]))
    assert box.value == "item 39"
    keys(scene, "Home", "Down")
    assert box.value == "item 1"
    assert box.row_center("item 1") is not None
    bar = box.place.x1 - 3
    scene.apply(a.Drag(x=bar, y=box.place.y0 + 5, to_x=bar, to_y=box.place.y1 - 2))
    assert box.row_center("item 39") is not None
    assert box.value == "item 1"


def test_held_modifiers_count_until_released(scene: Scene) -> None:
    click(scene, "first")
    scene.apply(a.KeyDown(key="ctrl"))
    keys(scene, "a")
    scene.apply(a.KeyUp(key="ctrl"))
    keys(scene, "a")
    assert scene.values()["first"] == "a"


@pytest.mark.parametrize(
    "action",
    [
        a.Click(x=1280, y=10),
        a.Click(x=-1, y=10),
        a.Drag(x=600, y=152, to_x=600, to_y=720),
        a.Key(key="ctrl+nope"),
        a.KeyDown(key="ctrl+nope"),
        a.Scroll(x=0, y=9999, direction="down"),
    ],
)
def test_a_rejected_action_changes_nothing(scene: Scene, action: a.AnyAction) -> None:
    click(scene, "first")
    before = scene.view()
    with pytest.raises(ActionError):
        scene.apply(action)
    keys(scene, "x")
    assert scene.values()["first"] != "alpha beta"
    keys(scene, "BackSpace")
    assert scene.view() == before


def test_what_touches_no_widget_changes_no_value(scene: Scene) -> None:
    before = scene.values()
    for action in (
        a.Click(x=2, y=715),
        a.RightClick(x=400, y=150),
        a.MiddleClick(x=400, y=150),
        a.Key(key="super"),
        a.Key(key="alt+F4"),
        a.Key(key="F5"),
        a.Wait(seconds=60),
        a.TakeScreenshot(),
        a.Scroll(x=2, y=2, direction="left"),
        a.MouseUp(),
    ):
        scene.apply(action)
    assert scene.values() == before
    assert scene.focus is None


def test_revert_goes_back_to_what_was_saved(scene: Scene) -> None:
    assert scene.layout.save is not None
    assert scene.layout.revert is not None
    click(scene, "second")
    scene.apply(a.Type(text="one"))
    scene.apply(a.Key(key="ctrl+s"))
    scene.apply(a.Type(text=" two"))
    x, y = scene.layout.revert.place.center
    scene.apply(a.Click(x=x, y=y))
    assert scene.values()["second"] == "one"


def test_tabs_hide_what_is_on_the_others() -> None:
    widgets = [
        {"type": "check", "name": "one", "tab": "First"},
        {"type": "check", "name": "two", "tab": "Second"},
    ]
    scene = Scene(read_spec({"widgets": widgets, "goal": {"two": True}}), 1280, 720, "")
    tabs = scene.layout.tabs
    assert tabs is not None
    click(scene, "one")
    assert scene.values() == {"one": True, "two": False}
    x, y = tabs.tab_center(1)
    scene.apply(a.Click(x=x, y=y))
    click(scene, "two")
    assert scene.values() == {"one": True, "two": True}
    keys(scene, "ctrl+Page_Up", "space")
    assert scene.page == 0
    assert scene.values() == {"one": True, "two": True}


@pytest.mark.parametrize(
    ("widgets", "goal", "says"),
    [
        ([], {"a": 1}, "widgets"),
        ([{"type": "knob", "name": "a"}], {"a": 1}, "knob"),
        ([{"type": "check", "name": "a"}], {}, "goal"),
        ([{"type": "check", "name": "a"}], {"b": True}, "'b'"),
        ([{"type": "check", "name": "a"}], {"a": False}, "doing nothing"),
        ([{"type": "check", "name": "a"}], {"a": "yes"}, "never"),
        ([{"type": "check", "name": "a"}] * 2, {"a": True}, "differ"),
        ([{"type": "field", "name": "a"}], {"a": "two\nlines"}, "never"),
        ([{"type": "slider", "name": "a", "value": 11}], {"a": 1}, "11"),
        ([{"type": "slider", "name": "a"}], {"a": True}, "never"),
        ([{"type": "list", "name": "a", "items": ["x", "x"]}], {"a": "x"}, "differ"),
        ([{"type": "list", "name": "a", "items": ["x"]}], {"a": "y"}, "never"),
        ([{"type": "button", "name": "a", "value": True}], {"a": False}, "unpressed"),
        (
            [{"type": "check", "name": "a", "tab": "T"}, {"type": "check", "name": "b"}],
            {"a": True},
            "every widget a tab",
        ),
    ],
)
def test_a_screen_that_makes_no_sense_is_refused(
    widgets: list[dict[str, Any]], goal: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        read_spec({"widgets": widgets, "goal": goal})


def test_a_screen_too_small_for_its_widgets_is_refused() -> None:
    widgets = [{"type": "field", "name": f"f{n}"} for n in range(40)]
    spec = read_spec({"widgets": widgets, "goal": {"f0": "x"}})
    with pytest.raises(ConfigError, match="do not fit"):
        Scene(spec, 320, 240, "")
