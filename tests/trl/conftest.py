"""A server whose weights a trainer may replace, and the stage to train on."""

from __future__ import annotations

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


@pytest.fixture
def on_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._BUILT_IN, "dice", stage.Dice)
    monkeypatch.setitem(registry._BUILT_IN, "words", stage.Words)
    monkeypatch.setattr(DesktopConfig, "factory", lambda self: stage.make_desktop)


@pytest.fixture
def tasks_file(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(fake_tasks(4, seed=1)))
    return path


@pytest.fixture
def make_trainer(
    server: Vllm, on_stage: None, tasks_file: Path, tmp_path: Path
) -> Iterator[MakeTrainer]:
    """``make_trainer(**config)``: a trainer on the stage; closed at the end of the test."""
    made: list[LegatoGRPOTrainer] = []

    def make(**changes: Any) -> LegatoGRPOTrainer:
        fields = stage.settings(server.root, str(tmp_path / "out"), str(tasks_file), **changes)
        made.append(LegatoGRPOTrainer(str(server.checkpoint), LegatoGRPOConfig(**fields)))
        return made[-1]

    yield make
    for trainer in made:
        trainer.close()
