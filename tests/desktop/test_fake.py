"""The fake desktop as a desktop: the contract, its tasks, and what earns a reward."""

from __future__ import annotations

import gc
import io
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from legato.desktop import actions as a
from legato.desktop.contract import Desktop, DesktopOptions, Screenshot
from legato.desktop.extras import CanCheckHealth, CanKill, CanPrepare
from legato.desktop.fake import KINDS, drawing, fake_tasks, make_desktop, reference_actions
from legato.desktop.fake.generate import SMALLEST_FORM
from legato.errors import ActionError, ConfigError, EnvFailure
from legato.tasks.tasks_file import CarriedTask, parse_tasks

SIZES = [(1280, 720), (1920, 1080), (1024, 768), (320, 240)]


def carried(entry: dict[str, Any]) -> CarriedTask:
    config = entry["config"]
    return CarriedTask(entry["task_id"], "inline", config["instruction"], config)


def started(task: CarriedTask, screen: tuple[int, int] = (1280, 720), slot: int = 0) -> Desktop:
    desktop = make_desktop(DesktopOptions(width=screen[0], height=screen[1]), slot)
    desktop.reset(task)
    return desktop


def foreign(task_id: str) -> CarriedTask:
    """A task made for another desktop."""
    config = {"instruction": "Make it bold", "config": [], "evaluator": {"func": "exact_match"}}
    return CarriedTask(task_id, "writer", "Make it bold", config)


@pytest.fixture
def desktop() -> Iterator[Desktop]:
    desktop = started(carried(fake_tasks(1, kinds=("form",))[0]))
    yield desktop
    desktop.close()


# --- the contract ------------------------------------------------------------------------------


def test_it_has_the_optional_capabilities(desktop: Desktop) -> None:
    assert isinstance(desktop, CanPrepare)
    assert isinstance(desktop, CanKill)
    assert isinstance(desktop, CanCheckHealth)


def test_the_walk_of_an_episode() -> None:
    task = carried(fake_tasks(1, seed=5, kinds=("picker",))[0])
    desktop = make_desktop(DesktopOptions(), 3)
    assert isinstance(desktop, CanPrepare)
    desktop.prepare()
    assert desktop.observe().rgb.shape == (720, 1280, 3)
    desktop.reset(task)
    assert desktop.wait_after_reset().reason == "idle"
    for action in reference_actions(task.task_id, task.config):
        before = desktop.observe()
        result = desktop.act(action)
        if action.action_type != "done":
            assert result.ready.reason == "idle"
            assert not np.array_equal(before.rgb, desktop.observe().rgb)
    assert desktop.wait_before_eval().reason == "idle"
    score = desktop.evaluate()
    assert (score.reward, score.output) == (1.0, "2/2 changes made")
    desktop.reset(task)
    assert desktop.evaluate().reward == 0.0
    desktop.close()
    desktop.close()


def test_an_unchanged_screen_is_neither_drawn_nor_encoded_again(desktop: Desktop) -> None:
    first = desktop.observe()
    pixels = first.rgb.copy()
    first.seal()
    desktop.act(a.Wait())
    assert desktop.observe() is first
    desktop.act(a.Move(x=3, y=3))
    moved = desktop.observe()
    assert not np.array_equal(moved.rgb, pixels)
    desktop.act(a.Move(x=640, y=360))
    assert np.array_equal(desktop.observe().rgb, pixels)


def test_it_keeps_no_frame_that_nobody_holds(desktop: Desktop) -> None:
    frame = weakref.ref(desktop.observe())
    gc.collect()
    assert frame() is None
    assert desktop.observe().rgb.shape == (720, 1280, 3)


def test_frames_survive_the_png(desktop: Desktop) -> None:
    shot = desktop.observe()
    decoded = np.asarray(Image.open(io.BytesIO(shot.png)).convert("RGB"))
    assert np.array_equal(decoded, shot.rgb)


def test_the_instruction_is_on_the_screen() -> None:
    entry = fake_tasks(1, kinds=("form",))[0]
    task = carried(entry)
    other = CarriedTask(task.task_id, "inline", "Something else entirely", task.config)
    assert not np.array_equal(started(task).observe().rgb, started(other).observe().rgb)
    changed = np.argwhere((started(task).observe().rgb != started(other).observe().rgb).any(2))
    assert changed[:, 0].max() < 720 // 4


def test_nothing_to_grade_before_the_first_reset() -> None:
    desktop = make_desktop(DesktopOptions(), 0)
    desktop.act(a.Click(x=1, y=1))
    with pytest.raises(ActionError):
        desktop.act(a.Click(x=5000, y=1))
    with pytest.raises(EnvFailure, match="reset"):
        desktop.evaluate()


@pytest.mark.parametrize(
    "fake",
    [
        "form",
        {"kind": "nonsense"},
        {"kind": "form", "seed": 1.5},
        {"kind": "form", "colour": "red"},
        {"widgets": [], "goal": {}},
    ],
)
def test_a_bad_config_names_the_task_and_is_not_worth_a_retry(desktop: Desktop, fake: Any) -> None:
    with pytest.raises(EnvFailure, match="task t7") as caught:
        desktop.reset(CarriedTask("t7", "inline", "do", {"instruction": "do", "fake": fake}))
    assert not caught.value.transient
    desktop.reset(foreign("fine"))
    desktop.observe()


@pytest.mark.parametrize("size", [(95, 720), (1280, 9000)])
def test_screen_sizes_it_cannot_draw_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="pixels"):
        make_desktop(DesktopOptions(width=size[0], height=size[1]), 0)


def test_many_threads_draw_what_one_draws() -> None:
    tasks = [carried(entry) for entry in fake_tasks(24, seed=9)]

    def last_frame(task: CarriedTask) -> bytes:
        desktop = started(task)
        for action in reference_actions(task.task_id, task.config):
            desktop.observe()
            desktop.act(action)
        return desktop.observe().rgb.tobytes()

    with ThreadPoolExecutor(24) as threads:
        together = list(threads.map(last_frame, tasks))
    drawing._pixels.cache_clear()
    assert together == [last_frame(task) for task in tasks]


# --- tasks -------------------------------------------------------------------------------------


def test_fake_tasks_are_entries_of_a_tasks_file() -> None:
    tasks = parse_tasks(fake_tasks(40, seed=2), backend="fake")
    assert len({task.task_id for task in tasks}) == len(tasks)
    assert fake_tasks(40, seed=2) == fake_tasks(40, seed=2)
    assert fake_tasks(4, seed=2) != fake_tasks(4, seed=3)


def test_a_whole_screen_can_be_given() -> None:
    fake = {
        "title": "Lamp",
        "widgets": [
            {"type": "check", "name": "lamp", "label": "Lamp"},
            {"type": "button", "name": "ring", "colour": [200, 40, 40]},
        ],
        "goal": {"lamp": True, "ring": True},
        "save": False,
    }
    task = CarriedTask("lamp", "inline", "Light it", {"fake": fake})
    desktop = started(task)
    first, second, done = reference_actions(task.task_id, task.config)
    assert done.action_type == "done"
    desktop.act(first)
    assert desktop.evaluate().reward == 0.5
    desktop.act(second)
    assert desktop.evaluate().reward == 1.0


@pytest.mark.parametrize("size", [*SIZES, (128, 128), (96, 96)])
def test_a_task_of_another_kind_gets_a_screen_that_can_be_solved(size: tuple[int, int]) -> None:
    for number in range(12):
        task = foreign(f"some-uuid-{number}")
        desktop = started(task, size)
        assert desktop.evaluate().reward == 0.0
        for action in reference_actions(task.task_id, task.config, size):
            desktop.act(action)
        assert desktop.evaluate().reward == 1.0


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.integers(96, 2000), st.integers(96, 1300))
def test_on_any_screen_a_task_is_refused_or_can_be_solved(
    kind: str, width: int, height: int
) -> None:
    task = task_of(kind, width)
    try:
        desktop = started(task, (width, height))
    except EnvFailure:
        assert width < SMALLEST_FORM[0] or height < SMALLEST_FORM[1]
        return
    for action in reference_actions(task.task_id, task.config, (width, height)):
        assert desktop.observe().rgb.shape == (height, width, 3)
        desktop.act(action)
    assert desktop.evaluate().reward == 1.0


# --- what earns a reward -----------------------------------------------------------------------

kinds = st.sampled_from(KINDS)
seeds = st.integers(0, 10**6)


def task_of(kind: str, seed: int) -> CarriedTask:
    return carried(fake_tasks(1, seed=seed, kinds=(kind,))[0])


@settings(deadline=None)
@given(kinds, seeds, st.sampled_from(SIZES))
def test_reference_actions_earn_everything(kind: str, seed: int, size: tuple[int, int]) -> None:
    task = task_of(kind, seed)
    desktop = started(task, size)
    for action in reference_actions(task.task_id, task.config, size):
        desktop.act(action)
    score = desktop.evaluate()
    assert score.reward == 1.0, score
    assert all(check.passed for check in score.checks)


@settings(deadline=None)
@given(kinds, seeds)
def test_doing_nothing_and_saving_nothing_earn_nothing(kind: str, seed: int) -> None:
    desktop = started(task_of(kind, seed))
    assert desktop.evaluate().reward == 0.0
    desktop.act(a.Key(key="ctrl+s"))
    score = desktop.evaluate()
    assert score.reward == 0.0
    assert all(check.passed for check in score.checks if check.kind == "guard")


@settings(deadline=None)
@given(st.sampled_from(KINDS[1:]), seeds)
def test_work_that_is_not_saved_earns_nothing(kind: str, seed: int) -> None:
    task = task_of(kind, seed)
    desktop = started(task)
    *work, _save, _done = reference_actions(task.task_id, task.config)
    for action in work:
        desktop.act(action)
    score = desktop.evaluate()
    assert score.reward == 0.0
    assert "saved" in score.output


@settings(deadline=None)
@given(seeds)
def test_part_of_the_work_earns_its_share(seed: int) -> None:
    task = task_of("form", seed)
    desktop = started(task)
    select, enter, *_ = reference_actions(task.task_id, task.config)
    for action in (select, enter, a.Key(key="ctrl+s")):
        desktop.act(action)
    assert desktop.evaluate().reward == pytest.approx(1 / 3)


@settings(deadline=None)
@given(seeds)
def test_pressing_another_button_too_earns_nothing(seed: int) -> None:
    right, wrong = task_of("press", seed), None
    target = reference_actions(right.task_id, right.config)[0]
    for other in range(20):
        task = task_of("press", other)
        wrong = reference_actions(task.task_id, task.config)[0]
        if wrong != target:
            break
    desktop = started(right)
    desktop.act(target)
    assert desktop.evaluate().reward == 1.0
    assert wrong is not None
    desktop.act(wrong)
    assert desktop.evaluate().reward == 0.0


@settings(deadline=None)
@given(
    st.sampled_from(KINDS[1:]),
    seeds,
    st.lists(st.text(min_size=1, max_size=30), max_size=8),
    st.randoms(),
)
def test_random_typing_earns_nothing(kind: str, seed: int, texts: list[str], rng: Any) -> None:
    desktop = started(task_of(kind, seed))
    for text in texts:
        words = "".join(char for char in text if char.isprintable())
        desktop.act(a.Click(x=rng.randrange(100, 1180), y=rng.randrange(130, 640)))
        desktop.act(a.Key(key="ctrl+a"))
        desktop.act(a.Type(text=words))
    assert desktop.evaluate().reward == 0.0


# --- any input at all --------------------------------------------------------------------------

xs, ys = st.integers(-50, 1400), st.integers(-50, 800)
points = st.fixed_dictionaries({"x": xs, "y": ys})
maybe_points = st.one_of(st.just({}), points)
key_names = st.one_of(
    st.sampled_from(["Tab", "shift+Tab", "Return", "ctrl+a", "ctrl+x", "ctrl+v", "BackSpace"]),
    st.sampled_from(["Left", "shift+Right", "ctrl+Left", "Up", "Page_Down", "ctrl+Page_Down"]),
    st.sampled_from(["shift", "ctrl", "space", "alt+Tab", "no such key", "+", "ctrl+s", "End"]),
    st.text(min_size=1, max_size=6),
)


def action_of(action_type: str, fields: st.SearchStrategy[dict[str, Any]]) -> Any:
    return fields.map(lambda given: {"action_type": action_type, **given})


any_action = st.one_of(
    *[
        action_of(kind, points)
        for kind in ("click", "double_click", "triple_click", "right_click", "middle_click", "move")
    ],
    *[action_of(kind, maybe_points) for kind in ("mouse_down", "mouse_up")],
    action_of("drag", st.fixed_dictionaries({"x": xs, "y": ys, "to_x": xs, "to_y": ys})),
    action_of(
        "scroll",
        st.fixed_dictionaries(
            {
                "x": xs,
                "y": ys,
                "direction": st.sampled_from(["up", "down", "left", "right"]),
                "amount": st.integers(1, 100),
            }
        ),
    ),
    action_of("type", st.fixed_dictionaries({"text": st.text(max_size=300)})),
    *[
        action_of(kind, st.fixed_dictionaries({"key": key_names}))
        for kind in ("key", "key_down", "key_up")
    ],
    *[action_of(kind, st.just({})) for kind in ("wait", "screenshot", "done", "fail")],
    action_of("answer", st.fixed_dictionaries({"text": st.text(max_size=20)})),
)


@settings(deadline=None, max_examples=200)
@given(kinds, seeds, st.lists(any_action, max_size=25), st.sampled_from(SIZES))
def test_any_actions_at_all_raise_only_action_errors_and_always_do_the_same(
    kind: str, seed: int, wanted: list[dict[str, Any]], size: tuple[int, int]
) -> None:
    task = task_of(kind, seed)
    one, two = started(task, size, slot=0), started(task, size, slot=7)
    for fields in wanted:
        before: Screenshot | None = None
        try:
            action = a.parse_action(fields)
            before = one.observe()
            one.act(action)
        except ActionError:
            if before is None:
                continue
            assert np.array_equal(one.observe().rgb, before.rgb)
            with pytest.raises(ActionError):
                two.act(action)
        else:
            two.act(action)
    frames = one.observe().rgb, two.observe().rgb
    assert frames[0].shape == (size[1], size[0], 3)
    assert np.array_equal(*frames)
    assert one.evaluate() == two.evaluate()
