from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import socket
import stat
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from legato.rl import progress
from legato.rl.board import NAMED_S, Board
from legato.rl.driver import GroupResult
from legato.rl.observer import Phase, Silent
from legato.rl.progress import LiveTable, PlainLines, make_progress, tally
from legato.rl.publish import FOLDER, published, read_shot, read_state, sockets
from legato.rl.types import Rollout, Status
from tests.rl.factories import frame, make_rollout
from tests.view.runs import make_run


class Notebook(Silent):
    """Writes down the phases of every rollout."""

    def __init__(self) -> None:
        self.phases: dict[str, list[Phase]] = {}

    def phase_began(self, rollout: Rollout, phase: Phase) -> None:
        self.phases.setdefault(rollout.rollout_id, []).append(phase)


def under_way(slot: int = 3) -> Rollout:
    rollout = make_rollout(steps=2, desktop_slot=slot)
    rollout.final_screenshot = frame(7)
    return rollout


def result(rewards: dict[int, float]) -> GroupResult:
    return GroupResult("g0", "t", [], rewards, {}, wanted=2, refills=0)


def test_phases_come_in_the_order_of_an_episode(tmp_path: Path) -> None:
    notebook = Notebook()
    recorded = make_run(tmp_path / "run", tasks=2, group=2, observer=notebook)
    assert set(notebook.phases) == {r.rollout_id for r in recorded}
    for rollout in recorded:
        steps: list[Phase] = ["model", "act"] * len(rollout.steps)
        assert notebook.phases[rollout.rollout_id] == [
            *("reset", "settle"),
            *steps,
            *("grade", "ended"),
        ]


def test_a_desktop_is_on_the_board_while_it_is_leased() -> None:
    board = Board()
    rollout = under_way()
    board.phase_began(rollout, "model")
    (desktop,) = board.state()["desktops"]
    assert (desktop["slot"], desktop["phase"], desktop["steps"]) == (3, "model", 2)
    assert desktop["actions"] == []
    board.phase_began(rollout, "act")
    assert board.state()["desktops"][0]["actions"] == [{"action_type": "click", "x": 1, "y": 2}]
    board.phase_began(rollout, "ended")
    assert board.state()["desktops"] == []


def test_only_verdicts_are_tallied_as_such() -> None:
    board = Board()
    board.batch_started(2, 6, 1)
    board.rollout_ended(make_rollout(reward=1.0))
    board.rollout_ended(make_rollout(status=Status.TRUNCATED, reward=0.5))
    board.rollout_ended(make_rollout(status=Status.SURPLUS, reward=1.0))
    board.rollout_ended(make_rollout(status=Status.ERROR, error_kind="env"))
    board.rollout_ended(make_rollout(status=Status.RETRIED, error_kind="env"))
    board.rollout_ended(make_rollout(status=Status.CANCELLED))
    board.group_ended(result({0: 1.0}))
    state = board.state()
    assert (state["verdicts"], state["wanted"], state["mean_reward"]) == (3, 6, 0.75)
    assert (state["groups_done"], state["groups"]) == (1, 2)
    assert state["lost"] == {"env": 2}
    assert state["eta_s"] > 0


def test_a_new_batch_starts_at_nothing_and_keeps_the_desktops() -> None:
    board = Board()
    board.batch_started(1, 1, 0)
    board.rollout_ended(make_rollout())
    board.phase_began(under_way(), "model")
    board.batch_started(1, 4, 0)
    assert (board.verdicts, board.mean_reward, board.eta_s) == (0, None, None)
    assert list(board.desktops) == [3]


# --- within reach of a viewer ------------------------------------------------------------------


def test_a_viewer_gets_the_board_and_its_pictures(tmp_path: Path) -> None:
    board = Board()
    rollout = under_way()
    board.phase_began(rollout, "model")
    shot = rollout.final_screenshot
    assert shot is not None

    async def look() -> None:
        async with published(board, tmp_path):
            (name,) = sockets(tmp_path)
            state = await asyncio.to_thread(read_state, tmp_path, name)
            assert state["desktops"][0]["screenshot"]["sha256"] == shot.sha256
            assert await asyncio.to_thread(read_shot, tmp_path, name, shot.sha256) == shot.png
            assert await asyncio.to_thread(read_shot, tmp_path, name, "0" * 64) is None
        assert sockets(tmp_path) == []

    asyncio.run(look())


def test_a_picture_that_was_named_is_there_when_its_desktop_has_gone_on() -> None:
    board = Board()
    rollout = under_way()
    shot = rollout.final_screenshot
    assert shot is not None
    board.phase_began(rollout, "model")
    assert asyncio.run(board.picture(shot.sha256)) is None
    asyncio.run(board.look())
    board.phase_began(rollout, "ended")
    asyncio.run(board.look())
    assert asyncio.run(board.picture(shot.sha256)) == shot.png


def test_pictures_named_long_ago_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board()
    rollout = under_way()
    shot = rollout.final_screenshot
    assert shot is not None
    board.phase_began(rollout, "model")
    asyncio.run(board.look())
    board.phase_began(rollout, "ended")
    later = time.monotonic() + NAMED_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    asyncio.run(board.look())
    assert asyncio.run(board.picture(shot.sha256)) is None


def test_several_boards_of_one_run_are_told_apart(tmp_path: Path) -> None:
    async def look() -> None:
        async with published(Board(), tmp_path), published(Board(), tmp_path):
            assert len(sockets(tmp_path)) == 2

    asyncio.run(look())


def test_only_the_owner_can_look(tmp_path: Path) -> None:
    async def look() -> int:
        async with published(Board(), tmp_path):
            return stat.S_IMODE((tmp_path / FOLDER).stat().st_mode)

    assert asyncio.run(look()) == 0o700


def test_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a" * 50] * 5)
    deep.mkdir(parents=True)

    async def look() -> int:
        async with published(Board(), deep):
            (name,) = sockets(deep)
            return len(await asyncio.to_thread(read_state, deep, name))

    assert asyncio.run(look()) > 0


def test_a_dead_socket_is_swept_and_a_living_one_is_not(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / FOLDER / "1.0.sock"))
    with pytest.raises(ConnectionRefusedError):
        read_state(tmp_path, "1.0.sock")

    async def look() -> None:
        async with published(Board(), tmp_path):
            (first,) = sockets(tmp_path)
            assert first != "1.0.sock"
            async with published(Board(), tmp_path):
                assert first in sockets(tmp_path)

    asyncio.run(look())


@pytest.mark.parametrize(
    "question", [b"", b"\n", b"nonsense\n", b"shot\n", b"\xff\xfe\n", b"x" * 99999]
)
def test_a_question_without_sense_gets_no_answer(question: bytes, tmp_path: Path) -> None:
    async def look() -> None:
        async with published(Board(), tmp_path):
            (name,) = sockets(tmp_path)
            fd = os.open(tmp_path / FOLDER, os.O_PATH)
            try:
                reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{fd}/{name}")
            finally:
                os.close(fd)
            writer.write(question)
            writer.write_eof()
            # It may be closed with some of the question unread.
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            # And the next viewer is served.
            assert await asyncio.to_thread(read_state, tmp_path, name)

    asyncio.run(look())


def test_where_no_socket_can_be_the_batch_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FOLDER).write_text("in the way")

    async def look() -> str:
        async with published(Board(), tmp_path):
            return "went on"

    assert asyncio.run(look()) == "went on"
    assert "no live view" in caplog.text


# --- on a terminal -----------------------------------------------------------------------------


def console(*, terminal: bool, height: int = 12) -> Console:
    return Console(file=io.StringIO(), width=110, height=height, force_terminal=terminal)


def printed(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", of.file.getvalue())


def test_the_table_says_what_each_desktop_is_doing() -> None:
    to = console(terminal=True)
    table = make_progress(to)
    assert isinstance(table, LiveTable)
    table.batch_started(2, 4, 0)
    table.phase_began(under_way(3), "model")
    table.phase_began(under_way(5), "act")
    table.rollout_ended(make_rollout(reward=0.5))
    to.print(table.render())
    text = printed(to)
    assert re.search(r"3 +model +0\.\d +2 +g0/0 +click 1,2", text)
    assert re.search(r"5 +act ", text)
    assert "1/4 verdicts  0/2 groups  reward 0.50" in text


def test_the_table_is_no_taller_than_the_terminal() -> None:
    to = console(terminal=True, height=10)
    table = LiveTable(to)
    for slot in range(40):
        table.phase_began(under_way(slot), "model")
    to.print(table.render())
    assert len(printed(to).splitlines()) <= 10
    assert "and 34 more desktops" in printed(to)


def test_what_a_model_wrote_is_no_markup() -> None:
    to = console(terminal=True)
    rollout = under_way()
    rollout.rollout_id = "[red]x[/red]"
    rollout.steps[-1].actions[-1].error = "[bold]loud[/bold] \x1b[2J"
    table = LiveTable(to)
    table.phase_began(rollout, "model")
    to.print(table.render())
    assert "[red]x[/red]" in printed(to)
    assert "[bold]loud[/bold]" in printed(to)
    assert isinstance(to.file, io.StringIO)
    assert "\x1b[2J" not in to.file.getvalue()


def test_elsewhere_there_is_a_line_for_every_group() -> None:
    to = console(terminal=False)
    lines = make_progress(to)
    assert isinstance(lines, PlainLines)
    with lines:
        lines.batch_started(2, 4, 0)
        lines.rollout_ended(make_rollout(reward=1.0))
        lines.rollout_ended(make_rollout(reward=0.0))
        lines.group_ended(result({0: 1.0, 1: 0.0}))
    (line,) = printed(to).splitlines()
    assert line.startswith("group g0: 1.00 0.00  2/4 verdicts  1/2 groups  reward 0.50")


def test_beside_a_trainers_lines_there_is_one_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    to = console(terminal=False)
    lines = PlainLines(to, every_group=False)
    lines.batch_started(3, 6, 0)
    lines.rollout_ended(make_rollout(reward=1.0))
    lines.group_ended(result({0: 1.0}))
    assert printed(to) == ""
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    lines.group_ended(result({0: 1.0}))
    assert printed(to).startswith("1/6 verdicts  2/3 groups  reward 1.00")
    assert len(printed(to).splitlines()) == 1


def test_the_table_may_be_drawn_while_the_batch_goes_on(tmp_path: Path) -> None:
    to = console(terminal=True)
    table = LiveTable(to)
    over = threading.Event()
    failures: list[BaseException] = []

    def draw() -> None:
        while not over.is_set():
            try:
                to.print(table.render())
            except BaseException as e:
                failures.append(e)
                return

    drawing = threading.Thread(target=draw)
    drawing.start()
    try:
        make_run(tmp_path / "run", tasks=2, group=4, observer=table)
    finally:
        over.set()
        drawing.join(20)
    assert failures == []
    assert tally(table.state()).startswith("8/8 verdicts  2/2 groups")
