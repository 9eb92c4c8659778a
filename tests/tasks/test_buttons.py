"""The dialogs with labelled buttons, on real desktops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from legato.desktop.actions import AnyAction, Click, Type
from legato.desktop.contract import Desktop, DesktopOptions, Machine, Score, Task
from legato.desktop.local import make_desktop
from legato.errors import EnvFailure
from legato.tasks import load_task, seeds
from legato.tasks.buttons import TASKS
from legato.tasks.buttons.press import LABELS, Press
from legato.tasks.suites import Split
from legato.tasks.verifier import run_judge

WIDTH, HEIGHT = 160, 128


@pytest.mark.parametrize("split", get_args(Split))
def test_four_variants_in_a_row_ask_for_four_buttons(split: Split) -> None:
    asked = [Press(seed, str(seed)).targets[0] for seed in seeds(split, 40)]
    for start in range(len(asked) - len(LABELS)):
        assert set(asked[start : start + len(LABELS)]) == set(LABELS)


def test_the_judge_counts_dialog_by_dialog() -> None:
    evidence = {"targets": ["A", "B", "C"], "pressed": ["A", "C", "C"]}
    assert [check.passed for check in run_judge(Press.judge, evidence)] == [True, False, True]
    untouched = {"targets": ["A", "B"], "pressed": []}
    assert not any(check.passed for check in run_judge(Press.judge, untouched))


class _Kept:
    """A task that leaves the machine it was set up on within reach."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.machine: Machine | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self.task, name)

    def setup(self, machine: Machine) -> None:
        self.machine = machine
        self.task.setup(machine)


@pytest.fixture(scope="module")
def desktop() -> Iterator[Desktop]:
    desktop = make_desktop(DesktopOptions(width=WIDTH, height=HEIGHT), 0)
    yield desktop
    desktop.close()


def play(desktop: Desktop, task: Task, actions: list[AnyAction] | None = None) -> Score:
    """Run the actions given, or the task's own reference."""
    kept = _Kept(task)
    desktop.reset(kept)  # type: ignore[arg-type]
    desktop.wait_after_reset()
    assert kept.machine is not None
    chosen = task.reference_actions(kept.machine) if actions is None else iter(actions)  # type: ignore[attr-defined]
    for action in chosen:
        desktop.act(action)
    desktop.wait_before_eval()
    return desktop.evaluate()


@pytest.mark.desktop
@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_reference_earns_all_and_doing_nothing_nothing(desktop: Desktop, name: str) -> None:
    for seed in range(3):
        task = load_task(name, seed)
        assert play(desktop, task).reward == 1.0
        assert play(desktop, task, []).reward == 0.0


@pytest.mark.desktop
def test_only_the_named_button_counts(desktop: Desktop) -> None:
    task = Press(0, "wrong")
    others = [label for label in LABELS if label not in task.targets]
    for label in others:
        window = (1, 20)
        score = play(desktop, task, [Press.click(label, *window)])
        assert score.reward == 0.0
        assert score.checks[0].detail == f"pressed {label}"


@pytest.mark.desktop
def test_what_is_typed_or_closed_is_no_answer(desktop: Desktop) -> None:
    task = Press(0, "closed")
    close_button = Click(x=141, y=10)
    assert play(desktop, task, [Type(text=task.targets[0])]).reward == 0.0
    score = play(desktop, task, [close_button])
    assert score.reward == 0.0
    assert score.checks[0].detail == "pressed nothing"


@pytest.mark.desktop
def test_reference_without_a_dialog_says_so(desktop: Desktop) -> None:
    task = Press(1, "gone")
    kept = _Kept(task)
    desktop.reset(kept)  # type: ignore[arg-type]
    assert kept.machine is not None
    for window in kept.machine.windows():
        kept.machine.close_window(window.id)
    desktop.wait_before_eval()
    with pytest.raises(EnvFailure, match="no dialog"):
        next(task.reference_actions(kept.machine))
