"""Bad input is refused before anything starts, by the name of its field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.fake import fake_tasks
from legato.errors import ConfigError
from legato.rl.harness import make_harness
from legato.tasks.suites import SUITES
from legato_trl import LegatoGRPOConfig, load_recipe
from legato_trl.prompts import as_dataset, held_out_tasks, training_tasks
from legato_trl.recipe import recipe_dir

GOOD: dict[str, Any] = {
    "suite": "buttons/press",
    "weight_sync": "file",
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "per_device_train_batch_size": 8,
    "num_generations": 4,
}


def config(tmp_path: Path, **changes: Any) -> LegatoGRPOConfig:
    return LegatoGRPOConfig(output_dir=str(tmp_path), **{**GOOD, **changes})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"suite": None}, "tasks .* or suite"),
        ({"tasks": "tasks.json"}, "tasks .* or suite"),
        ({"weight_sync": "carrier pigeon"}, "weight_sync"),
        ({"use_vllm": False}, "use_vllm"),
        ({"num_generations": 1}, "num_generations"),
        ({"min_group": 5}, "min_group"),
        ({"min_group": 1}, "min_group"),
        ({"max_turns": 0}, "max_turns"),
        ({"seeds": 0}, "seeds"),
        ({"eval_seeds": -1}, "eval_seeds"),
        ({"desktops": 0}, "desktops"),
        ({"oversample": -0.5}, "oversample"),
        ({"max_inflight": 0}, "max-inflight"),
        ({"rollout_timeout": 0.1}, "rollout_timeout"),
        ({"step_timeout": 0}, "step timeout"),
        ({"max_completion_length": 0}, "max_completion_length"),
        ({"temperature": 0.0}, "temperature"),
        ({"desktop": {"backend": "local", "colour": "red"}}, "desktop.colour"),
        ({"desktop": {"width": 3}}, "desktop.width"),
        ({"harness": {"name": "compact", "image_max": 0}}, "harness.image_max"),
        ({"harness": 3}, "harness"),
        ({"scale_rewards": "batch"}, "scale_rewards"),
        ({"scale_rewards": False}, "scale_rewards"),
        ({"reward_weights": [1.0]}, "reward_weights"),
        ({"mask_truncated_completions": True}, "mask_truncated_completions"),
        ({"top_p": 0.9}, "top_p"),
        ({"top_k": 20}, "top_k"),
        ({"min_p": 0.1}, "min_p"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"generation_kwargs": {"seed": 1}}, "generation_kwargs"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
        ({"remove_unused_columns": True}, "remove_unused_columns"),
        ({"vllm_enable_sleep_mode": True}, "vllm_enable_sleep_mode"),
        ({"vllm_mode": "colocate"}, "weight_sync=file"),
        ({"vllm_mode": "colocate", "weight_sync": "trl", "step_timeout": 5.0}, "step_timeout"),
        ({"vllm_mode": "colocate", "weight_sync": "trl", "max_inflight": 4}, "max_inflight"),
    ],
)
def test_the_field_is_named(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        config(tmp_path, **changes)


def test_tasks_that_cannot_be_done_can_be_left_out(tmp_path: Path) -> None:
    never = {"instruction": "Never.", "evaluator": {"func": "infeasible"}}
    entries = [*fake_tasks(1, seed=1), {"task_id": "never", "config": never}]
    (tmp_path / "tasks.json").write_text(json.dumps(entries))
    file = {"suite": None, "tasks": str(tmp_path / "tasks.json"), "desktop": "fake"}
    assert len(training_tasks(config(tmp_path, **file))) == 2
    (kept,) = training_tasks(config(tmp_path, **file, infeasible=False))
    assert kept.task_id != "never"


def test_what_trl_spells_in_two_ways_is_taken_in_both(tmp_path: Path) -> None:
    assert config(tmp_path, scale_rewards=True).scale_rewards == "group"


def test_a_backend_or_harness_is_a_name_or_a_mapping(tmp_path: Path) -> None:
    named = config(tmp_path, desktop="fake", harness="compact").settings("m", "t")
    mapped = config(
        tmp_path, desktop={"backend": "fake"}, harness={"name": "compact", "options": {}}
    ).settings("m", "t")
    assert (named.desktop, named.harness) == (mapped.desktop, mapped.harness)


@pytest.mark.parametrize("suite", ["nowhere", "buttons/nothing"])
def test_an_unknown_suite_or_task_is_answered_by_those_there_are(
    tmp_path: Path, suite: str
) -> None:
    with pytest.raises(ConfigError, match=r"known: .*(buttons|press)"):
        training_tasks(config(tmp_path, suite=suite))


def test_a_tasks_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.json"):
        training_tasks(config(tmp_path, suite=None, tasks=str(tmp_path / "nothing.json")))


def test_no_variants_can_be_held_out_of_a_tasks_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="eval_seeds"):
        held_out_tasks(config(tmp_path, suite=None, tasks="tasks.json", eval_seeds=2))


def test_held_out_variants_are_never_trained_on(tmp_path: Path) -> None:
    chosen = config(tmp_path, suite="buttons", seeds=9, eval_seeds=4)
    train, held_out = training_tasks(chosen), held_out_tasks(chosen)
    kinds = len(SUITES["buttons"])
    assert len(train) == kinds * 9
    assert len(held_out) == kinds * 4
    assert not {task.task_id for task in train} & {task.task_id for task in held_out}
    dataset = as_dataset(train)
    assert dataset["task_id"] == [task.task_id for task in train]
    assert dataset[0]["prompt"] == [{"role": "user", "content": train[0].instruction}]


# --- recipes -----------------------------------------------------------------------------------


RECIPES = sorted(path.stem for path in recipe_dir().glob("*.yaml"))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_composes_and_its_tasks_load(name: str) -> None:
    recipe = load_recipe(name, ["model=m", "++trainer.use_cpu=true"])
    assert recipe.trainer.num_generations >= 2
    assert training_tasks(recipe.trainer)
    settings = recipe.trainer.settings("m", "t")
    assert settings.rollout.group == recipe.trainer.num_generations
    settings.desktop.factory()
    assert make_harness(settings.harness.name, tokenizer=None, **settings.harness.options)


def test_every_suite_has_a_recipe() -> None:
    chosen = [load_recipe(n, ["model=m", "++trainer.use_cpu=true"]).trainer for n in RECIPES]
    suites = {trainer.suite for trainer in chosen if trainer.suite is not None}
    assert {suite.partition("/")[0] for suite in suites} == set(SUITES)


def test_the_large_models_have_recipes() -> None:
    for name, model, harness in (
        ("qwen3_vl_8b", "Qwen/Qwen3-VL-8B-Instruct", "qwen3_vl"),
        ("qwen3_5_9b", "Qwen/Qwen3.5-9B", "qwen3_5"),
    ):
        recipe = load_recipe(name, ["++trainer.use_cpu=true"])
        assert recipe.model == model
        assert recipe.trainer.settings("m", "t").harness.name == harness
        assert recipe.trainer.weight_sync == "trl"
        assert recipe.trainer.vllm_mode == "server"


def test_a_recipe_takes_overrides(tmp_path: Path) -> None:
    recipe = load_recipe(
        "laptop", ["model=m", f"trainer.output_dir={tmp_path}", "desktop=fake", "desktop.width=64"]
    )
    assert recipe.model == "m"
    assert recipe.trainer.desktop["backend"] == "fake"  # type: ignore[index]
    assert recipe.trainer.settings("m", "t").desktop.width == 64


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ([], "model"),
        (["model=m", "+trainer.colour=red"], "trainer.colour"),
        (["model=m", "+colour=red"], "colour"),
        (["model=m", "trainer.max_turns=0"], "max_turns"),
        (["model=m", "desktop=nowhere"], "nowhere"),
        (["model=m", "trainer.learning_rate=fast"], "learning_rate|fast"),
    ],
)
def test_a_bad_recipe_is_named(overrides: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_recipe("laptop", overrides)


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        load_recipe("nowhere")
