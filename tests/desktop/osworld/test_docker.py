"""OSWorld's own DesktopEnv, set-up, docker provider and evaluators, on a guest of ours."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from legato.desktop.actions import AnyAction, Done, Fail
from legato.rl.collect import OSWorldDesktop
from tests.desktop.osworld.engine import Engine
from tests.desktop.osworld.examples import EXAMPLES, NO_CONFIG, Example

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]


def play(desktop: OSWorldDesktop, example: Example, actions: Sequence[AnyAction]) -> float:
    desktop.reset(example.task)
    desktop.wait_after_reset()
    for action in actions:
        desktop.act(action)
    desktop.act(Done())
    desktop.wait_before_eval()
    return desktop.evaluate().reward


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_only_the_right_actions_score(shared_desktop: OSWorldDesktop, example: Example) -> None:
    assert play(shared_desktop, example, ()) == 0.0
    assert play(shared_desktop, example, example.right) == 1.0
    assert play(shared_desktop, example, example.wrong) == 0.0
    clean = "revert" if example.domain == "os" else "fast"
    assert shared_desktop.last_reset == clean


def test_a_task_without_config_that_cannot_be_done(shared_desktop: OSWorldDesktop) -> None:
    assert play(shared_desktop, NO_CONFIG, ()) == 0.0
    shared_desktop.reset(NO_CONFIG.task)
    shared_desktop.act(Fail())
    assert shared_desktop.evaluate().reward == 1.0


def test_containers_are_labelled_and_gone_when_the_desktop_closes(
    own_desktop, engine: Engine
) -> None:
    desktop = own_desktop()
    before = engine.docker("ps", "-aq").split()
    desktop.prepare()
    new = set(engine.docker("ps", "-aq").split()) - set(before)
    assert len(new) == 1
    labels = engine.docker("inspect", "-f", "{{json .Config.Labels}}", *new)
    assert "legato.osworld.desktop" in labels
    assert "legato.osworld.owner" in labels
    desktop.close()
    assert engine.docker("ps", "-aq").split() == before
