"""The shipped reference episodes are those the tasks make, and one can be made for any seed."""

from __future__ import annotations

import pickle

import pytest

from legato.desktop.actions import Done, check_on_screen
from legato.errors import ConfigError
from legato.tasks import list_tasks, load_task
from legato.tasks.planned import SCREEN
from legato.tasks.reference import (
    SHIPPED,
    generate,
    planned_actions,
    reference_file,
    shipped_actions,
)
from legato.tasks.suites import VARIANTS

NAMES = [info.name for info in list_tasks() if info.suite in SHIPPED]


@pytest.mark.parametrize("suite", SHIPPED)
def test_the_shipped_file_is_what_the_tasks_make(suite: str) -> None:
    assert reference_file(suite).read_text(encoding="utf-8") == generate(suite), (
        "run: python -m legato.tasks reference"
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_fixed_variant_has_its_episode(name: str) -> None:
    for seed in range(VARIANTS):
        actions = shipped_actions(load_task(name, seed))
        assert actions is not None
        assert actions[-1] == Done()
        assert 2 < len(actions) < 60
        for action in actions:
            check_on_screen(action, *SCREEN)
    assert shipped_actions(load_task(name, VARIANTS)) is None


@pytest.mark.parametrize("name", NAMES)
def test_any_seed_has_an_episode(name: str) -> None:
    for seed in (VARIANTS, 10**9 + 7):
        task = load_task(name, seed)
        actions = planned_actions(task)
        assert actions[-1] == Done()
        # A worker elsewhere gets the task by pickle, also after it was set up once.
        assert planned_actions(pickle.loads(pickle.dumps(task))) == actions


def test_a_suite_without_a_file_says_which_have_one() -> None:
    with pytest.raises(ConfigError, match="desktop_basics"):
        reference_file("buttons")
