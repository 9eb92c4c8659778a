"""What is to be seen of a run on a terminal."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console
from tqdm import tqdm

from legato.desktop.fake import fake_tasks
from legato.rl import progress
from legato.rl.board import Board
from legato.rl.config import DesktopConfig, HarnessConfig, RolloutConfig, SamplingConfig
from legato.rl.policy import PolicyConfig
from legato.rl.progress import LiveTable
from legato.rl.settings import Settings
from legato.rl.types import Sampling
from legato.tasks import parse_tasks
from legato_trl import LegatoGRPOConfig, showing
from legato_trl.rollouts import Rollouts
from tests.rl.stubs import StubPolicy


def config(tmp_path: Path, *, live: bool = True) -> LegatoGRPOConfig:
    return LegatoGRPOConfig(
        output_dir=str(tmp_path), suite="buttons/press", weight_sync="file", report_to="none",
        use_cpu=True, bf16=False, num_generations=4, per_device_train_batch_size=4, live=live,
    )  # fmt: skip


def terminal(monkeypatch: pytest.MonkeyPatch, *, real: bool) -> io.StringIO:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=real, width=100, height=30)
    monkeypatch.setattr(showing, "get_console", lambda: console)
    return shown


def work(board: Board, place: Path) -> None:
    """Two groups of two on fake desktops."""
    settings = Settings(
        PolicyConfig("http://nobody/v1", "stub"),
        SamplingConfig(),
        DesktopConfig(backend="fake"),
        HarnessConfig("compact"),
        RolloutConfig(desktops=2, group=2, max_steps=2),
    )
    tasks = parse_tasks(fake_tasks(2, seed=1), backend="fake")
    with Rollouts(settings, None, Sampling(), place, policy=StubPolicy, board=board) as rollouts:
        board.title = "step 1/9"
        rollouts.run(tasks)


def test_a_terminal_shows_the_desktops_while_they_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown = terminal(monkeypatch, real=True)
    args = config(tmp_path)
    board = showing.board_for(args)
    assert isinstance(board, LiveTable)
    assert args.disable_tqdm, "a bar would be written into the table"
    work(board, tmp_path / "run")
    assert "step 1/9  4/4 verdicts" in shown.getvalue()
    assert "desktop" in shown.getvalue()


def test_elsewhere_there_is_a_line_now_and_then_beside_the_bar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = terminal(monkeypatch, real=False)
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    # Both streams into one, as with 2>&1.
    monkeypatch.setattr(sys, "stdout", log)
    monkeypatch.setattr(sys, "stderr", log)
    args = config(tmp_path)
    board = showing.board_for(args)
    assert not args.disable_tqdm
    with tqdm(total=9, file=sys.stderr):
        work(board, tmp_path / "run")
    lines = [line.rpartition("\r")[2] for line in log.getvalue().splitlines()]
    ours = [line for line in lines if "verdicts" in line]
    assert ours[-1].startswith("step 1/9  4/4 verdicts  2/2 groups")
    assert all(line.startswith("step 1/9") for line in ours), "written into the bar"


@pytest.mark.parametrize("real", [False, True])
def test_who_does_not_want_it_is_shown_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, real: bool
) -> None:
    terminal(monkeypatch, real=real)
    args = config(tmp_path, live=False)
    assert type(showing.board_for(args)) is Board
    assert not args.disable_tqdm
