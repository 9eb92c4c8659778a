"""The override, the recipes, and what is refused before anything starts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hydra.errors import HydraException
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from legato.errors import ConfigError
from legato.rl.record import RunDir
from legato_verl.checks import BeforeTheRun, check, check_model, check_record
from legato_verl.search_path import recipe_dir
from tests.conftest import CheckpointFactory
from tests.rl.factories import make_rollout
from tests.verl.composing import composed

AGENT = "actor_rollout_ref.rollout.agent"
RECIPES = {path.stem for path in (recipe_dir() / "verl").glob("*.yaml")}
BUILT_ON = {"cpu", "eight_gpus", "osworld", "qwen3_vl_8b", "qwen3_5_9b"}
"""These lack a model or tasks."""
TASKS = ("data.train_files=buttons/press:train:8", "data.val_files=buttons/press:heldout:2")


def ours(*overrides: str) -> Any:
    usual = ("algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.n=4", *TASKS)
    model = "actor_rollout_ref.model.path=model"
    return composed("ppo_trainer", f"+{AGENT}=legato", model, *usual, *overrides)


def test_the_override_sets_everything() -> None:
    config = ours()
    agent = omega_conf_to_dataclass(config.actor_rollout_ref.rollout.agent)
    assert agent.default_agent_loop == "legato"
    assert agent.agent_loop_manager_class == "legato_verl.manager.LegatoAgentLoopManager"
    assert config.data.custom_cls.name == "TaskDataset"
    assert check(config).rollout.group == 4


@pytest.mark.parametrize(
    "overrides",
    [
        (f"{AGENT}.num_workers=3", f"+{AGENT}=legato"),
        (f"+{AGENT}=legato", f"{AGENT}.num_workers=3"),
    ],
)
def test_values_of_its_own_group_go_beside_it(overrides: tuple[str, ...]) -> None:
    config = composed("ppo_trainer", *overrides)
    assert config.actor_rollout_ref.rollout.agent.num_workers == 3


def test_settings_and_groups_by_the_command_line() -> None:
    settings = check(
        ours(
            "legato.desktops=9",
            "legato.oversample=0.5",
            "desktop@legato.desktop=fake",
            "harness@legato.harness=compact",
            "legato.max_turns=3",
            "legato.rollout_timeout=60",
        )
    )
    assert (settings.rollout.desktops, settings.rollout.oversample) == (9, 0.5)
    assert (settings.desktop.backend_name, settings.harness.name) == ("fake", "compact")
    assert (settings.limits.max_steps, settings.limits.rollout_timeout) == (3, 60.0)


def test_the_dataset_is_told_what_the_desktops_are() -> None:
    usual = ours().data.custom_cls
    assert (usual.environment, usual.infeasible) == (None, True)
    place = "+legato.desktop.options.environment=/opt/osworld"
    told = composed("verl/osworld_qwen3_vl_8b", place).data.custom_cls
    assert (told.backend, told.environment, told.infeasible) == ("osworld", "/opt/osworld", False)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        (f"{AGENT}=legato", f"+{AGENT}=legato"),
        (f"++{AGENT}=legato", "legato"),
        (f"+{AGENT}=nothing", "nothing"),
    ],
)
def test_hydra_says_what_to_write(override: str, told: str) -> None:
    with pytest.raises(HydraException, match="(?s).*" + told.replace("+", r"\+")):
        composed("ppo_trainer", override)


@pytest.mark.parametrize("name", sorted(RECIPES - BUILT_ON))
def test_recipes_pass_verls_own_check(name: str) -> None:
    model = () if "laptop" not in name and "buttons" not in name else ("model",)
    config = composed(f"verl/{name}", *(f"actor_rollout_ref.model.path={path}" for path in model))
    validate_config(
        config=config,
        use_reference_policy=need_reference_policy(config),
        use_critic=need_critic(config),
    )
    settings = check(config)
    assert settings.rollout.desktops >= 4
    assert settings.lengths.whole == config.actor_rollout_ref.rollout.max_model_len


@pytest.mark.parametrize("suite", ["desktop_basics", "desktop_apps", "osworld"])
@pytest.mark.parametrize(
    ("model", "harness"), [("qwen3_vl_8b", "qwen3_vl"), ("qwen3_5_9b", "qwen3_5")]
)
def test_every_suite_has_a_recipe_for_both_models(suite: str, model: str, harness: str) -> None:
    config = composed(f"verl/{suite}_{model}")
    tasks = "recipes/tasks/osworld.json" if suite == "osworld" else f"{suite}:train:"
    assert config.data.train_files.startswith(tasks)
    assert config.legato.harness.name == harness
    assert config.trainer.n_gpus_per_node == 8


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("trainer.use_v1=False", "trainer.use_v1"),
        (f"{AGENT}.default_agent_loop=tool_agent", AGENT),
        ("algorithm.adv_estimator=gae", "adv_estimator"),
        ("algorithm.norm_adv_by_std_in_grpo=False", "norm_adv_by_std_in_grpo"),
        ("actor_rollout_ref.rollout.n=1", "rollout.n"),
        ("legato.min_group=5", "legato.min_group"),
        ("legato.oversample=250", "oversample"),
        ("legato.step_timeout=0", "legato.step_timeout"),
        ("legato.max_inflight=1", "legato.max_inflight"),
        ("trainer.v1.trainer_mode=separate_async", "trainer_mode"),
        ("actor_rollout_ref.rollout.name=sglang", "rollout.name"),
        ("legato.desktop.width=1", "desktop.width"),
        ("+legato.desktop.wdith=1", "legato.desktop.wdith"),
        ("+legato.pool_size=4", "legato.pool_size"),
        ("legato.desktop.backend=nothing", "nothing"),
        ("legato.harness.name=nothing", "nothing"),
        ("actor_rollout_ref.rollout.temperature=0", "temperature"),
        ("actor_rollout_ref.rollout.top_p=0.9", "top_p"),
        ("data.train_files=/data/gsm8k.parquet", "SUITE"),
        ("data.train_files=buttons/press:trian:8", "trian"),
        ("data.train_files=buttons/nothing:train:8", "nothing"),
        ("data.val_files=nothing.json", "nothing.json"),
    ],
)
def test_what_cannot_be_served_is_named(override: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check(ours(override))


def test_an_estimator_that_would_ignore_a_penalty_is_refused() -> None:
    with pytest.raises(ConfigError, match="use_kl_in_reward"):
        check(ours("algorithm.adv_estimator=legato", "algorithm.use_kl_in_reward=True"))


def test_a_model_that_cannot_see_is_refused(
    tiny_checkpoint: CheckpointFactory, tmp_path: Path
) -> None:
    whole = tiny_checkpoint()
    check_model(ours(f"actor_rollout_ref.model.path={whole}"))
    blind = tmp_path / "blind"
    shutil.copytree(whole, blind)
    for config in blind.glob("*processor_config.json"):
        config.unlink()
    with pytest.raises(ConfigError, match="image processor"):
        check_model(ours(f"actor_rollout_ref.model.path={blind}"))
    with pytest.raises(ConfigError, match="no checkpoint"):
        check_model(ours(f"actor_rollout_ref.model.path={tmp_path / 'nowhere'}"))


def test_a_wrong_config_ends_the_program_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        BeforeTheRun().on_job_start(ours("trainer.use_v1=False"))
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: trainer.use_v1=False")


def test_rollouts_of_another_run_are_not_mixed_in(tmp_path: Path) -> None:
    place = f"trainer.default_local_dir={tmp_path}"
    anew, resumed = ours(place, "trainer.resume_mode=disable"), ours(place)
    settings = check(anew)
    check_record(anew, settings)
    with RunDir.create_or_resume(settings.record_dir, settings.manifest(validation=False)) as run:
        check_record(anew, settings)
        run.append(make_rollout())
    check_record(resumed, check(resumed))
    with pytest.raises(ConfigError, match=r"resume_mode=disable.*choose a new"):
        check_record(anew, settings)
    other = ours(place, "legato.max_turns=3")
    with pytest.raises(ConfigError, match="max_steps was 15, now 3"):
        check_record(other, check(other))
