"""What is to be seen of a run under verl: the workers' desktops on one board, and on a terminal."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
import torch
from hydra.core.utils import JobReturn
from omegaconf import DictConfig
from rich.console import Console

from legato.rl.board import Board
from legato.rl.driver import GroupResult
from legato.view.gaps import Gap
from legato_verl import terminal
from legato_verl.board import ClusterBoard
from legato_verl.metrics import gaps_of
from legato_verl.terminal import Terminal
from tests.rl.factories import frame, make_rollout

LONG = 60.0


class Driving:
    """A worker, as far as a board asks it."""

    def __init__(self, slot: int) -> None:
        self.board = Board()
        rollout = make_rollout(steps=1, desktop_slot=slot)
        rollout.final_screenshot = frame(slot)
        self.board.phase_began(rollout, "model")

    async def look(self) -> dict[str, Any]:
        return await self.board.look()

    async def picture(self, sha256: str) -> bytes | None:
        return await self.board.picture(sha256)

    async def pid(self) -> int:
        return os.getpid()


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("_cluster")
def test_the_board_shows_the_desktops_of_every_worker_that_lives() -> None:
    async def look() -> None:
        board = ClusterBoard()
        drivers = {slot: ray.remote(Driving).options(num_cpus=0).remote(slot) for slot in (7, 2)}
        for slot, driver in drivers.items():
            board.enrol(f"worker-{slot}", driver)
        state = await seen(board, 2)
        assert [desktop["slot"] for desktop in state["desktops"]] == [2, 7]
        for desktop in state["desktops"]:
            shot = frame(desktop["slot"])
            assert desktop["screenshot"]["sha256"] == shot.sha256
            assert await board.picture(shot.sha256) == shot.png
        assert await board.picture("0" * 64) is None
        os.kill(await drivers[7].pid.remote(), signal.SIGKILL)
        state = await seen(board, 1)
        assert [desktop["slot"] for desktop in state["desktops"]] == [2]

    asyncio.run(look())


async def seen(board: ClusterBoard, desktops: int) -> dict[str, Any]:
    """The board once it shows so many: a worker takes a while to start, and to be gone."""
    deadline = time.monotonic() + LONG
    while True:
        state = await board.look()
        if len(state["desktops"]) == desktops:
            return state
        assert time.monotonic() < deadline


def test_what_is_added_to_a_batch_under_way_does_not_begin_another() -> None:
    board = ClusterBoard()
    board.more_groups("step 1", 2, 8)
    board.rollout_ended(make_rollout(reward=1.0))
    board.group_ended(ended())
    board.more_groups("step 2", 2, 8)
    state = board.state()
    assert (state["groups_done"], state["groups"]) == (1, 4)
    assert (state["verdicts"], state["wanted"]) == (1, 16)
    for _ in range(3):
        board.group_ended(ended())
    board.more_groups("step 3", 2, 8)
    state = board.state()
    assert (state["title"], state["groups_done"], state["groups"]) == ("step 3", 0, 2)
    assert (state["verdicts"], state["wanted"]) == (0, 8)


def ended() -> GroupResult:
    return GroupResult("g", "t", [], {}, {}, wanted=4, refills=0)


def test_gaps_are_told_by_rollout_and_step() -> None:
    rows = [
        ("a/1", torch.tensor([0.0, 0.5, 0.25, 0.0]), [[1, 1, 3]]),
        ("a/1", torch.tensor([-1.0, 0.0]), [[0, 0, 1]]),
        ("a/0", torch.tensor([0.25]), [[0, 0, 1]]),
    ]
    assert gaps_of(rows) == {
        "a/1": [Gap(0, 1.0, 1.0), Gap(1, 0.375, 0.5)],
        "a/0": [Gap(0, 0.25, 0.25)],
    }


# --- on the terminal ---------------------------------------------------------------------------


def drawn(monkeypatch: pytest.MonkeyPatch, *, real: bool, live: bool) -> str:
    """What a run shows whose recorder answers at the first question."""
    board = ClusterBoard()
    board.more_groups("step 3/9", 2, 8)
    board.phase_began(make_rollout(steps=2, desktop_slot=5), "act")
    asked = 0

    def told() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return board.state()

    shown = io.StringIO()
    console = Console(file=shown, force_terminal=real, width=100, height=30)
    monkeypatch.setattr(terminal, "get_console", lambda: console)
    monkeypatch.setattr(terminal, "told", told)
    config = DictConfig({"legato": {"live": live}})
    show = Terminal()
    monkeypatch.setattr(terminal, "LINE_EVERY_S", 0.05)
    show.on_job_start(config)
    deadline = time.monotonic() + LONG
    while live and ("step 3/9" not in shown.getvalue() or asked < 3):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    show.on_job_end(config, JobReturn())
    assert bool(asked) == live
    return shown.getvalue()


def test_a_terminal_shows_the_desktops_while_they_work(monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn(monkeypatch, real=True, live=True)
    assert "desktop" in text
    assert "g0/0" in text
    assert "0/8 verdicts" in text
    assert "\x1b[?25h" in text, "the cursor is hidden for good"


def test_elsewhere_there_is_a_line_when_there_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, real=False, live=True) == "step 3/9  0/8 verdicts  0/2 groups\n"


@pytest.mark.parametrize("real", [False, True])
def test_who_does_not_want_it_is_shown_nothing(monkeypatch: pytest.MonkeyPatch, real: bool) -> None:
    assert drawn(monkeypatch, real=real, live=False) == ""


def test_before_a_run_has_begun_there_is_nothing_to_tell() -> None:
    assert terminal.told() is None
