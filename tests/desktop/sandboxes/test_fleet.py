from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from legato.desktop.sandboxes import owner
from legato.desktop.sandboxes.contract import Busy
from legato.desktop.sandboxes.fleet import Fleet, retrying
from legato.desktop.sandboxes.local import LocalSandboxes
from legato.desktop.sandboxes.options import SandboxOptions
from legato.errors import EnvFailure

NEVER = threading.Event()


def labels_of_the_dead() -> dict[str, str]:
    """Those of a process that has ended."""
    say = "from legato.desktop.sandboxes import owner; print(owner.labels()[owner.OWNER])"
    done = subprocess.run(
        [sys.executable, "-c", say], capture_output=True, text=True, check=True, timeout=120
    )
    return {**owner.OURS, owner.OWNER: done.stdout.strip()}


def test_the_first_of_a_process_ends_what_the_dead_left_behind() -> None:
    sandboxes = LocalSandboxes()
    left = sandboxes.create(labels_of_the_dead(), life_s=300, timeout=30)
    strange = sandboxes.create({"team": "other"}, life_s=300, timeout=30)
    fleet = Fleet(sandboxes, SandboxOptions())
    try:
        made = fleet.create(NEVER)
        there = {each.id for each in sandboxes.list({})}
        assert there == {strange.id, made.id}
        assert left.id not in there
    finally:
        fleet.close()
    assert sandboxes.list({}) == []


def test_what_was_not_deleted_is_ended_with_the_fleet() -> None:
    sandboxes = LocalSandboxes()
    fleet = Fleet(sandboxes, SandboxOptions())
    first, second = fleet.create(NEVER), fleet.create(NEVER)
    assert {each.labels[owner.OWNER] for each in (first, second)} == {owner.labels()[owner.OWNER]}
    fleet.delete(first.id)
    fleet.delete(first.id)
    assert [each.id for each in sandboxes.list({})] == [second.id]
    fleet.close()
    assert sandboxes.list({}) == []


def test_a_provider_is_given_the_time_it_asks_for() -> None:
    def refuse() -> None:
        raise Busy("full", retry_after=3600.0)

    with pytest.raises(EnvFailure, match=r"a thing was not to be had in time: full"):
        retrying(refuse, "a thing", 0.0, NEVER)


def test_labels_tell_whose_a_sandbox_is() -> None:
    assert owner.state(owner.labels()) == "in use"
    assert owner.state(labels_of_the_dead()) == "left behind"
    assert owner.state({**owner.OURS, owner.OWNER: "0123456789ab-1-1"}) == "of another machine"
    assert owner.state({**owner.OURS}) == "of another machine"
    assert not owner.is_ours({"legato": "other"})
