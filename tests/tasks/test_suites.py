"""How tasks are found: names, variants and splits."""

from __future__ import annotations

from typing import Any

import pytest

from legato.errors import ConfigError
from legato.tasks import list_tasks, load_task, seeds, split_of
from legato.tasks.suites import VARIANTS

NAMES = [info.name for info in list_tasks()]
WORDED = [info.name for info in list_tasks() if info.suite != "buttons"]
"""The buttons have few instructions on purpose: there, only what is shown varies without end."""


@pytest.mark.parametrize("name", NAMES)
def test_a_variant_is_a_seed(name: str) -> None:
    assert load_task(name, variant=3) == load_task(name, 3) == load_task(name, seed=3)
    assert load_task(name) == load_task(name, variant=0)


def test_the_count_of_variants_is_listed() -> None:
    assert {info.variants for info in list_tasks()} == {VARIANTS} == {8}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": 1, "variant": 1}, "another word"),
        ({"variant": -1}, "at least 0"),
        ({"seed": True}, "at least 0"),
        ({"seed": "3"}, "at least 0"),
        ({"suite": "nowhere"}, "unknown suite"),
    ],
)
def test_what_names_no_variant_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_task(NAMES[0], **arguments)


def test_an_unknown_task_is_answered_by_those_there_are() -> None:
    with pytest.raises(ConfigError, match=f"known: .*{NAMES[-1]}"):
        load_task("nothing")


def test_the_splits_share_no_seed_and_leave_none_out() -> None:
    train, heldout = seeds("train", 300), seeds("heldout", 100)
    assert sorted(train + heldout) == list(range(400))
    assert all(split_of(seed) == "train" for seed in train)
    assert all(split_of(seed) == "heldout" for seed in heldout)
    with pytest.raises(ConfigError, match="known: train, heldout"):
        seeds("test", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", WORDED)
def test_the_splits_share_no_task(name: str) -> None:
    train = {load_task(name, seed).instruction for seed in seeds("train", 300)}
    heldout = {load_task(name, seed).instruction for seed in seeds("heldout", 100)}
    assert not train & heldout
