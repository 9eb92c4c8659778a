"""Tasks as verl's dataset, and the text of a row as a task again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from legato.desktop.fake import fake_tasks
from legato.errors import ConfigError
from legato_verl.dataset import TaskDataset
from legato_verl.tasks import read_task


def dataset(files: Any, backend: str = "local", **fields: Any) -> TaskDataset:
    config = OmegaConf.create({"custom_cls": {"backend": backend}, **fields})
    return TaskDataset(files, None, config, max_samples=fields.pop("most", -1))


def test_a_suite_is_read_directly() -> None:
    rows = dataset(["buttons/press:train:3", "desktop_basics:heldout:1"])
    assert len(rows) == 3 + 5
    for row in (rows[i] for i in range(len(rows))):
        task = read_task(row["task"], backend="local")
        assert task.task_id == row["extra_info"]["task_id"]
        assert row["raw_prompt"] == [{"role": "user", "content": task.instruction}]
        assert row["data_source"] == task.domain
    assert rows[0]["extra_info"]["task_id"] == "buttons/press/0"


def test_train_and_held_out_share_nothing() -> None:
    train, held_out = dataset("buttons/press:train:40"), dataset("buttons/press:heldout:40")
    ids = [{rows[i]["task"] for i in range(len(rows))} for rows in (train, held_out)]
    assert not ids[0] & ids[1]


def test_a_tasks_file(tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_text(json.dumps(fake_tasks(4, seed=1)))
    rows = dataset(str(tmp_path / "tasks.json"), backend="fake")
    assert len(rows) == 4
    tasks = [read_task(rows[i]["task"], backend="fake") for i in range(4)]
    assert len({task.task_id for task in tasks}) == 4
    assert [t.instruction for t in tasks] == [rows[i]["raw_prompt"][0]["content"] for i in range(4)]


def test_tasks_that_cannot_be_done_can_be_left_out(tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    never = {"config": {"instruction": "Never.", "evaluator": {"func": "infeasible"}}}
    file.write_text(json.dumps([*fake_tasks(1, seed=1), {"task_id": "never", **never}]))
    left = {"custom_cls": {"backend": "fake", "infeasible": False}}
    (row,) = dataset(str(file), **left)
    assert row["task"] == dataset(str(file), backend="fake")[0]["task"]
    assert len(dataset(str(file), backend="fake")) == 2
    file.write_text(json.dumps([{"task_id": "never", **never}]))
    with pytest.raises(ConfigError, match="all tasks are infeasible"):
        dataset(str(file), **left)


def test_only_so_many(tmp_path: Path) -> None:
    whole = [dataset("buttons/press:train:40")[i]["index"] for i in range(40)]
    config = OmegaConf.create({"custom_cls": {"backend": "local"}, "shuffle": True, "seed": 3})
    few = TaskDataset("buttons/press:train:40", None, config, max_samples=5)
    assert len(few) == 5
    assert {few[i]["index"] for i in range(5)} <= set(whole)
    again = TaskDataset("buttons/press:train:40", None, config, max_samples=5)
    assert [few[i]["task"] for i in range(5)] == [again[i]["task"] for i in range(5)]


@pytest.mark.parametrize(
    "files", ["gsm8k.parquet", "buttons/press", "buttons/press:train:0", ":::"]
)
def test_what_names_no_tasks_is_refused(files: str) -> None:
    with pytest.raises(ConfigError):
        dataset(files)
