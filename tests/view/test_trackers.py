from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image

from legato.errors import ConfigError
from legato.rl.types import Rollout
from legato.view.trackers import TAG, SheetLogger
from tests.view.runs import SCREEN, make_run


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> list[Rollout]:
    return make_run(tmp_path_factory.mktemp("run") / "run", tasks=1, group=3)


def test_tensorboard_shows_the_sheet_at_its_step(rollouts: list[Rollout], tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    sheets = SheetLogger(["tensorboard"], every=5, screen=SCREEN, log_dir=tmp_path)
    assert [step for step in range(12) if sheets.log(step, rollouts)] == [0, 5, 10]
    sheets.close()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    logged = events.Images(TAG)
    assert [event.step for event in logged] == [0, 5, 10]
    assert Image.open(io.BytesIO(logged[0].encoded_image_string)).height > 100


def test_wandb_gets_the_sheet_with_the_trainers_own_rows(
    rollouts: list[Rollout], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=tmp_path, project="test") as run:
        sheets = SheetLogger(["wandb"], every=1, screen=SCREEN)
        for step in range(3):
            # The trainer's explicit steps must be none too late for wandb's counter.
            assert sheets.log(step, rollouts[: step + 1])
            wandb.log({"loss": 1.0}, step=step)
        assert run.step <= 3
    wandb.teardown()
    assert len(list(tmp_path.rglob("media/images/**/*.png"))) == 3


@pytest.mark.skipif(not find_spec("trackio"), reason="trackio is not installed")
def test_trackio_keeps_the_sheet_at_its_step(tmp_path: Path) -> None:
    program = (
        "import sys, trackio; from pathlib import Path;"
        "from legato.view.trackers import SheetLogger; from tests.view.runs import *;"
        "rollouts = make_run(Path(sys.argv[1]), tasks=1, group=3);"
        "trackio.init(project='test', name='run');"
        "sheets = SheetLogger(['trackio'], every=5, screen=SCREEN);"
        "[(trackio.log({'loss': 1.0}, step=n), sheets.log(n, rollouts)) for n in range(12)];"
        "trackio.finish()"
    )
    store = tmp_path / "store"
    subprocess.run(
        [sys.executable, "-c", program, tmp_path / "run"],
        env={**os.environ, "TRACKIO_DIR": str(store)},
        check=True,
        timeout=120,
    )
    pictures = {int(path.parent.name): path for path in store.glob("media/test/run/*/*.png")}
    assert sorted(pictures) == [0, 5, 10]
    with Image.open(pictures[10]) as sheet:
        assert sheet.height > 100


def test_other_trackers_are_the_trainers_business(rollouts: list[Rollout]) -> None:
    assert not SheetLogger(["mlflow", "console"], every=1, screen=SCREEN).log(0, rollouts)


def test_never_is_never(rollouts: list[Rollout]) -> None:
    assert not SheetLogger(["trackio"], every=0, screen=SCREEN).log(0, rollouts)


def test_a_batch_without_steps_has_no_sheet(tmp_path: Path) -> None:
    sheets = SheetLogger(["tensorboard"], every=1, screen=SCREEN, log_dir=tmp_path)
    assert not sheets.log(0, [])
    sheets.close()


def test_tensorboard_needs_its_directory() -> None:
    with pytest.raises(ConfigError, match="log_dir"):
        SheetLogger(["tensorboard"], every=1, screen=SCREEN)


def test_a_tracker_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> object:
        if name == "trackio":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ConfigError, match="pip install trackio"):
        SheetLogger(["trackio"], every=1, screen=SCREEN)
