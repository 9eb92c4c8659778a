"""What actions do to real programs: a GTK editor, a terminal, a browser that reports events."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from legato.desktop.actions import Action, AnyAction, Click, Drag, Key, Type
from legato.desktop.contract import Machine, Window
from legato.desktop.local import LocalDesktop
from legato.errors import ActionError
from tests.desktop.local.conftest import ScriptedTask
from tests.desktop.local.page import PORT, EventPage

pytestmark = pytest.mark.desktop

TEXT = "Zażółć €5 😀 ~`{} 日本語 Ü"
MANY = "".join(chr(0x4E00 + 7 * i) for i in range(300))
"""More distinct characters than any keyboard has spare keys."""


def eventually(condition: Callable[[], object], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def the_window(machine: Machine, title: str) -> Window:
    found = [w for w in machine.windows() if title in w.title]
    assert len(found) == 1, machine.windows()
    return found[0]


@pytest.fixture
def editor(desktop: LocalDesktop) -> Machine:
    """Mousepad on an empty file, with the keyboard."""
    task = ScriptedTask()
    desktop.reset(task)
    task.machine.write_file("/home/user/text.txt", b"")
    task.machine.launch(["mousepad", "/home/user/text.txt"])
    desktop.wait_after_reset()
    return task.machine


def saves(machine: Machine, text: str) -> None:
    """Assert that the editor, asked to save, has ``text`` in its file."""
    eventually(lambda: the_window(machine, "Mousepad").title.startswith("*"))
    machine.input(Key(key="ctrl+s"))
    eventually(lambda: not the_window(machine, "Mousepad").title.startswith("*"))
    data = machine.read_file("/home/user/text.txt")
    assert data is not None
    assert data.decode() == text


@pytest.mark.parametrize("text", [TEXT, MANY, "tab\there\nline two\n", "AaßÄ" * 500, "👩‍🚀 é é"])
def test_any_text_arrives_in_a_gtk_editor(editor: Machine, text: str) -> None:
    editor.input(Type(text=text))
    saves(editor, text)


def test_typing_is_not_changed_by_caps_lock(editor: Machine) -> None:
    editor.input(Key(key="capslock"))
    editor.input(Type(text="aBcÄ"))
    saves(editor, "aBcÄ")


def test_characters_of_one_action_do_not_change_when_the_next_needs_their_keys(
    editor: Machine,
) -> None:
    for start in range(0, 300, 60):
        editor.input(Type(text=MANY[start : start + 60]))
    saves(editor, MANY)


@pytest.mark.parametrize("text", [TEXT, MANY])
def test_any_text_arrives_in_a_terminal(desktop: LocalDesktop, text: str) -> None:
    task = ScriptedTask()
    desktop.reset(task)
    task.machine.launch(["xterm", "-u8", "-e", "cat > /home/user/typed"])
    desktop.wait_after_reset()
    desktop.act(Type(text=text + "\n"))
    desktop.act(Key(key="ctrl+d"))
    eventually(lambda: not task.machine.windows())
    typed = task.machine.read_file("/home/user/typed")
    assert typed is not None
    assert typed.decode() == text + "\n"


def test_selecting_by_drag_and_replacing(editor: Machine, desktop: LocalDesktop) -> None:
    desktop.act(Type(text="one two three"))
    window = the_window(editor, "Mousepad")
    y = window.y + 37
    desktop.act(Drag(x=window.x + 3, y=y, to_x=window.x + 600, to_y=y))
    desktop.act(Type(text="four"))
    saves(editor, "four")


def test_files_are_dragged_between_folders(desktop: LocalDesktop) -> None:
    task = ScriptedTask()
    desktop.reset(task)
    machine = task.machine
    machine.write_file("/home/user/box/a.txt", b"a")
    machine.run(["mkdir", "/home/user/box/inner"])
    machine.launch(["pcmanfm", "/home/user/box"])
    desktop.wait_after_reset()
    # The folder comes first, then the file, in the icon view of the right pane.
    window = the_window(machine, "box")
    icons = _icons(desktop, window)
    (folder, file) = icons[0], icons[1]
    desktop.act(Drag(x=file[0], y=file[1], to_x=folder[0], to_y=folder[1]))
    eventually(lambda: "inner/a.txt" in machine.list_files("/home/user/box"))


def _icons(desktop: LocalDesktop, window: Window) -> list[tuple[int, int]]:
    """Centres of what is not white in the upper part of the file pane, left to right."""
    rgb = desktop.observe().rgb
    left, right = window.x + 165, window.x + window.width - 10
    top, bottom = window.y + 85, window.y + 140
    busy = (rgb[top:bottom, left:right] < 200).any(axis=2).any(axis=0)
    runs: list[list[int]] = []
    for x in busy.nonzero()[0]:
        if runs and x - runs[-1][-1] < 12:
            runs[-1].append(int(x))
        else:
            runs.append([int(x)])
    wide = [run for run in runs if run[-1] - run[0] >= 15]
    return [(left + (run[0] + run[-1]) // 2, (top + bottom) // 2) for run in wide]


@pytest.fixture(scope="module")
def browser(shared_desktop: LocalDesktop) -> tuple[LocalDesktop, EventPage]:
    """A browser that fills the screen with the page."""
    task = ScriptedTask()
    shared_desktop.prepare()
    shared_desktop.reset(task)
    page = EventPage(Path(task.machine.scratch, "page"))
    task.machine.expose(PORT, Path(task.machine.scratch, "page"))
    page.open_in(task.machine)
    shared_desktop.wait_after_reset()
    return shared_desktop, page


@pytest.fixture
def page(browser: tuple[LocalDesktop, EventPage]) -> EventPage:
    browser[0].act(Click(x=1000, y=500))
    browser[1].wait_for(lambda events: any(e["type"] == "click" for e in events))
    browser[1].clear()
    return browser[1]


@pytest.fixture
def act(browser: tuple[LocalDesktop, EventPage]) -> Callable[..., None]:
    return lambda **fields: browser[0].act(Action(**fields)) and None


def test_any_text_arrives_in_a_browser(page: EventPage, act: Callable[..., None]) -> None:
    for text in (TEXT, MANY):
        act(action_type="click", x=100, y=60)
        act(action_type="type", text=text)
        page.wait_for(lambda events, t=text: [e for e in events if e.get("value", "").endswith(t)])


def test_clicks_of_every_kind(page: EventPage, act: Callable[..., None]) -> None:
    act(action_type="click", x=700, y=400)
    act(action_type="right_click", x=710, y=410)
    act(action_type="middle_click", x=720, y=420)
    page.wait_for(
        lambda events: [e for e in events if e["type"] == "auxclick" and e["button"] == 1]
    )
    assert [(e["x"], e["y"]) for e in page.of("click")] == [(700, 400)]
    assert [(e["x"], e["y"]) for e in page.of("contextmenu")] == [(710, 410)]
    assert [(e["x"], e["y"]) for e in page.of("auxclick") if e["button"] == 1] == [(720, 420)]


def test_double_and_triple_click_are_counted_by_the_page(
    page: EventPage, act: Callable[..., None]
) -> None:
    act(action_type="double_click", x=700, y=400)
    act(action_type="triple_click", x=900, y=300)
    page.wait_for(lambda events: [e for e in events if e["type"] == "click" and e["detail"] == 3])
    assert [e["detail"] for e in page.of("click")] == [1, 2, 1, 2, 3]


def test_two_click_actions_are_not_a_double_click(
    browser: tuple[LocalDesktop, EventPage], page: EventPage
) -> None:
    task = browser[0]._task
    assert isinstance(task, ScriptedTask)
    for _ in range(2):
        task.machine.input(Click(x=700, y=400))
    page.wait_for(lambda events: len([e for e in events if e["type"] == "click"]) == 2)
    assert [e["detail"] for e in page.of("click")] == [1, 1]
    assert not page.of("dblclick")


def test_buttons_are_held_until_released(page: EventPage, act: Callable[..., None]) -> None:
    act(action_type="mouse_down", x=700, y=400, button="right")
    assert not page.of("mouseup")
    act(action_type="mouse_up", button="right")
    page.wait_for(lambda events: [e for e in events if e["type"] == "mouseup"])
    assert [e["button"] for e in page.of("mousedown", "mouseup")] == [2, 2]


@pytest.mark.parametrize(
    ("direction", "axis", "sign"),
    [("down", "dy", 1), ("up", "dy", -1), ("right", "dx", 1), ("left", "dx", -1)],
)
def test_scrolling_goes_four_ways(
    page: EventPage, act: Callable[..., None], direction: str, axis: str, sign: int
) -> None:
    act(action_type="scroll", x=700, y=400, direction=direction, amount=2)
    page.wait_for(lambda events: [e for e in events if e["type"] == "wheel"])
    for event in page.of("wheel"):
        assert event[axis] * sign > 0
        assert event["dx" if axis == "dy" else "dy"] == 0


def test_dragging_in_a_page_drops(page: EventPage, act: Callable[..., None]) -> None:
    act(action_type="drag", x=60, y=240, to_x=500, to_y=260, path=((200, 300),))
    dropped = page.wait_for(lambda events: [e for e in events if e["type"] == "drop"])
    assert dropped[0]["data"] == "cargo"


@pytest.mark.parametrize(
    ("chord", "key", "modifiers"),
    [
        ("ctrl+s", "s", {"ctrl"}),
        ("Ctrl+S", "s", {"ctrl"}),
        ("control+shift+K", "K", {"ctrl", "shift"}),
        ("ctrl+plus", "+", {"ctrl", "shift"}),
        ("ctrl+-", "-", {"ctrl"}),
        ("alt+Left", "ArrowLeft", {"alt"}),
        ("F2", "F2", set()),
        ("enter", "Enter", set()),
        ("pgdn", "PageDown", set()),
        ("esc", "Escape", set()),
        ("space", " ", set()),
        ("é", "é", set()),
    ],
)
def test_chords(
    page: EventPage, act: Callable[..., None], chord: str, key: str, modifiers: set[str]
) -> None:
    act(action_type="key", key=chord)
    held = {"Control", "Shift", "Alt", "Meta"}
    page.wait_for(lambda events: [e for e in events if e["type"] == "keyup" and e["key"] == key])
    pressed = [e for e in page.of("keydown") if e["key"] not in held]
    assert [(e["key"], {m for m in ("ctrl", "shift", "alt", "meta") if e[m]}) for e in pressed] == [
        (key, modifiers)
    ]


def test_keys_are_held_until_released(page: EventPage, act: Callable[..., None]) -> None:
    act(action_type="key_down", key="shift")
    act(action_type="click", x=700, y=400)
    act(action_type="key_up", key="shift")
    act(action_type="click", x=800, y=400)
    page.wait_for(lambda events: len([e for e in events if e["type"] == "click"]) == 2)
    assert [e["shift"] for e in page.of("click")] == [True, False]


WRONG = [
    Action(action_type="key", key="ctrl+NoSuchKey"),
    Action(action_type="key_down", key="hyper_x"),
    Action(action_type="click", x=1280, y=0),
    Action(action_type="drag", x=0, y=0, to_x=10, to_y=720),
    Action(action_type="type", text="good until \x07 here"),
]


@pytest.mark.parametrize("action", WRONG, ids=lambda a: a.action_type)
def test_what_cannot_be_done_sends_nothing(
    browser: tuple[LocalDesktop, EventPage], page: EventPage, action: AnyAction
) -> None:
    with pytest.raises(ActionError):
        browser[0].act(action)
    browser[0].act(Click(x=700, y=400))  # and the desktop is still good
    page.wait_for(lambda events: [e for e in events if e["type"] == "click"])
    assert [e["type"] for e in page.events if e["type"] != "input"] == [
        "mousedown",
        "mouseup",
        "click",
    ]
