"""A server whose weights a trainer may replace, and the stage to train on."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.fake import fake_tasks
from legato.rl.config import DesktopConfig
from legato.rl.harness import registry
from legato_trl import LegatoGRPOConfig, LegatoGRPOTrainer
from legato_trl.weights import Server
from tests.conftest import Vllm
from tests.trl import stage

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

MakeTrainer = Callable[..., LegatoGRPOTrainer]


@pytest.fixture(scope="module")
def server(vllm: Vllm) -> Iterator[Vllm]:
    """The session's server; it has its own weights again when the module is done."""
    yield vllm
    admin = Server(vllm.root)
    admin.load(vllm.checkpoint)
    admin.name_weights("default")


@pytest.fixture(scope="module")
def on_stage() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._BUILT_IN, "dice", stage.Dice)
        patch.setitem(registry._BUILT_IN, "words", stage.Words)
        patch.setattr(DesktopConfig, "factory", lambda self: stage.make_desktop)
        yield


@pytest.fixture
def tasks_file(tmp_path: Path) -> Path:
    return write_tasks(tmp_path)


def write_tasks(folder: Path) -> Path:
    path = folder / "tasks.json"
    path.write_text(json.dumps(fake_tasks(4, seed=1)))
    return path


@contextlib.contextmanager
def trainers(server: Vllm, folder: Path) -> Iterator[MakeTrainer]:
    """``make(**config)``: a trainer on the stage that works below ``folder``; all are closed."""
    made: list[LegatoGRPOTrainer] = []

    def make(peft_config: Any = None, **changes: Any) -> LegatoGRPOTrainer:
        tasks = str(write_tasks(folder))
        fields = stage.settings(server.root, str(folder / "out"), tasks) | changes
        args = LegatoGRPOConfig(**fields)
        made.append(LegatoGRPOTrainer(str(server.checkpoint), args, peft_config=peft_config))
        return made[-1]

    try:
        yield make
    finally:
        for trainer in made:
            trainer.close()


@pytest.fixture
def make_trainer(server: Vllm, on_stage: None, tmp_path: Path) -> Iterator[MakeTrainer]:
    """``make_trainer(**config)``: a trainer on the stage; closed at the end of the test."""
    with trainers(server, tmp_path) as make:
        yield make
