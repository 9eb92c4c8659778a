"""Films, sheets, and what is drawn on them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from legato.desktop.actions import Action
from legato.errors import ConfigError
from legato.rl.manifest import Manifest
from legato.rl.record import RunDir, read_records
from legato.rl.types import Status
from legato.view.draw import INK, Shown, caption, draw_actions
from legato.view.film import write_film
from legato.view.sheet import CELL, make_sheet, write_sheet
from legato.view.strip import find_strip, read_strips, strip_of
from tests.rl.factories import make_rollout
from tests.view.runs import make_run

SCREEN = (1280, 720)


def inked(picture: Image.Image) -> np.ndarray:
    """Where the mark's colour is, as (n, 2) of (x, y)."""
    rows, columns = np.nonzero((np.asarray(picture) == INK).all(axis=2))
    return np.stack([columns, rows], axis=1)


@pytest.mark.parametrize("size", [(1280, 720), (256, 144), (320, 320)])
def test_a_click_is_drawn_where_it_went(size: tuple[int, int]) -> None:
    blank = Image.new("RGB", size, "white")
    marked = draw_actions(blank, [Shown(Action(action_type="click", x=960, y=180))], SCREEN)
    wanted = np.array([960 * size[0] / 1280, 180 * size[1] / 720])
    assert np.abs(inked(marked).mean(axis=0) - wanted).max() <= 1.5
    assert inked(blank).size == 0


@pytest.mark.parametrize(
    ("action", "ends"),
    [
        (Action(action_type="drag", x=100, y=100, to_x=900, to_y=600), [(100, 100), (900, 600)]),
        (
            Action(action_type="drag", x=100, y=100, to_x=900, to_y=100, path=[(500, 600)]),
            [(100, 100), (500, 600), (900, 100)],
        ),
    ],
)
def test_a_drag_is_drawn_along_its_way(action: object, ends: list[tuple[int, int]]) -> None:
    blank = Image.new("RGB", SCREEN, "white")
    points = inked(draw_actions(blank, [Shown(action)], SCREEN))  # type: ignore[arg-type]
    for end in ends:
        assert np.abs(points - np.array(end)).max(axis=1).min() <= 6


@pytest.mark.parametrize(
    ("direction", "towards"),
    [("up", (0, -1)), ("down", (0, 1)), ("left", (-1, 0)), ("right", (1, 0))],
)
def test_a_scroll_points_where_it_scrolls(direction: str, towards: tuple[int, int]) -> None:
    scroll = Action(action_type="scroll", x=640, y=360, direction=direction)
    points = inked(draw_actions(Image.new("RGB", SCREEN, "white"), [Shown(scroll)], SCREEN))
    middle = points.mean(axis=0) - np.array([640, 360])
    assert np.dot(middle, towards) > 5


@pytest.mark.parametrize("at", [(0, 0), (1279, 719), (5000, -4000)])
def test_marks_at_the_edge_and_beyond_do_no_harm(at: tuple[int, int]) -> None:
    click = Action(action_type="double_click", x=at[0], y=at[1])
    marked = draw_actions(Image.new("RGB", SCREEN, "white"), [Shown(click)], SCREEN)
    assert marked.size == SCREEN


def test_words_that_do_not_fit_are_cut() -> None:
    strip = caption(200, "type " + "漢字\n\x00 <b>" * 500, 12)
    assert strip.size == (200, 18)


def test_a_gif_shows_every_step_and_the_end(fake_run: Path, tmp_path: Path) -> None:
    record = max(read_records(fake_run), key=lambda r: r["n_steps"])
    write_film(find_strip(fake_run, record["rollout_id"]), tmp_path / "film.gif", seconds=0.5)
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == record["n_steps"] + 1  # type: ignore[attr-defined]
        assert film.size[0] == 960
        assert film.info["duration"] == 500
    assert [p.name for p in tmp_path.iterdir()] == ["film.gif"]


def test_the_action_is_seen_in_the_gif(fake_run: Path, tmp_path: Path) -> None:
    strip = find_strip(fake_run, "0")
    number, click = next(
        (i, shown.action)
        for i, frame in enumerate(strip.frames)
        for shown in frame.actions
        if shown.action is not None and shown.action.action_type == "click"
    )
    write_film(strip, tmp_path / "film.gif", width=1280)
    (x, y), *_ = click.points()
    with Image.open(tmp_path / "film.gif") as film:
        film.seek(number)
        around = np.asarray(film.convert("RGB"))[y - 12 : y + 13, x - 12 : x + 13].astype(int)
    assert np.abs(around - np.array(INK)).sum(axis=2).min() < 60


def test_a_missing_ffmpeg_is_said_before_anything_is_written(
    fake_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"ffmpeg.*\.gif"):
        write_film(find_strip(fake_run, "0"), tmp_path / "film.mp4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["film.avi", "film", "film.png"])
def test_other_kinds_of_film_are_refused(name: str, fake_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.gif or \.mp4"):
        write_film(find_strip(fake_run, "0"), tmp_path / name)


def test_a_rollout_is_found_by_id_and_by_number(fake_run: Path) -> None:
    for number, record in enumerate(read_records(fake_run)):
        assert find_strip(fake_run, str(number)).rollout_id == record["rollout_id"]
        assert find_strip(fake_run, record["rollout_id"]).reward == record["reward"]
    with pytest.raises(ConfigError, match="no rollout 'nobody'"):
        find_strip(fake_run, "nobody")


def test_a_rollout_without_pictures_makes_no_film(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        run.append(make_rollout(steps=0, status=Status.SKIPPED))
    with pytest.raises(ConfigError, match="no screenshots"):
        write_film(find_strip(run.path, "0"), tmp_path / "film.gif")


def test_a_sheet_has_a_line_for_every_rollout(fake_run: Path, tmp_path: Path) -> None:
    strips = list(read_strips(fake_run))
    write_sheet(strips, tmp_path / "sheet.png", columns=4)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width >= 4 * CELL
        assert sheet.height >= len(strips) * CELL * 9 / 16


def test_a_sheet_is_a_png_and_has_something_to_show(fake_run: Path, tmp_path: Path) -> None:
    strips = list(read_strips(fake_run))
    with pytest.raises(ConfigError, match=r"\.png"):
        write_sheet(strips, tmp_path / "sheet.jpg")
    with pytest.raises(ConfigError, match="no screenshot"):
        make_sheet([])


def test_rollouts_in_memory_look_as_those_on_disk(tmp_path: Path) -> None:
    rollouts = make_run(tmp_path / "run", tasks=1, group=2)
    in_memory = make_sheet([strip_of(rollout, SCREEN) for rollout in rollouts])
    on_disk = make_sheet(list(read_strips(tmp_path / "run")))
    assert in_memory.tobytes() == on_disk.tobytes()


def test_an_mp4_is_a_film(fake_run: Path, tmp_path: Path) -> None:
    strip = find_strip(fake_run, "0")
    write_film(strip, tmp_path / "film.mp4", width=320, seconds=0.4)
    assert os.listdir(tmp_path) == ["film.mp4"]
    ffmpeg = shutil.which("ffmpeg")
    assert ffmpeg, "this test needs Debian's ffmpeg"
    played = subprocess.run(
        [ffmpeg, "-loglevel", "error", "-i", tmp_path / "film.mp4", "-pix_fmt", "rgb24",
         "-f", "rawvideo", "-"],
        check=True, capture_output=True, timeout=60,
    ).stdout  # fmt: skip
    frames = round(25 * 0.4 * len(strip.frames))
    height, rest = divmod(len(played), 320 * 3 * frames)
    assert rest == 0
    assert 320 * 9 / 16 < height < 320
