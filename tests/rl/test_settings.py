"""Settings: one set of defaults, whichever way they are reached, and errors that name the field."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from typer.main import get_command

from legato.errors import ConfigError
from legato.rl.cli import app
from legato.rl.collect import collect
from legato.rl.config import DesktopConfig, HarnessConfig, RolloutConfig, SamplingConfig
from legato.rl.policy import PolicyConfig
from legato.rl.settings import config_dir, load_settings

SERVER = {"policy.url": "http://localhost:1/v1", "policy.model": "m"}


def test_config_groups_have_the_defaults_of_the_code() -> None:
    settings = load_settings(flags=SERVER)
    assert settings.policy == PolicyConfig("http://localhost:1/v1", "m")
    assert settings.sampling == SamplingConfig()
    assert settings.desktop == DesktopConfig(backend="local")
    assert settings.harness == HarnessConfig()
    assert settings.rollout == RolloutConfig()


def test_the_function_has_the_defaults_of_the_settings() -> None:
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(collect).parameters.items()
        if hasattr(RolloutConfig, name) or name in RolloutConfig.__dataclass_fields__
    }
    assert set(defaults) == set(RolloutConfig.__dataclass_fields__)
    assert RolloutConfig(**defaults) == RolloutConfig()


@pytest.mark.parametrize("group", ["desktop", "harness", "rollout", "policy", "sampling"])
def test_every_member_of_every_group_composes(group: str) -> None:
    members = sorted(path.stem for path in (config_dir() / group).glob("*.yaml"))
    assert members
    for member in members:
        load_settings(overrides=[f"{group}={member}"], flags=SERVER)


def test_the_options_of_the_command_line() -> None:
    command = get_command(app)
    options = {
        name: {
            flag for parameter in sub.params for flag in parameter.opts + parameter.secondary_opts
        }
        for name, sub in command.commands.items()  # type: ignore[attr-defined]
    }
    assert {"probe", "collect", "export", "profile"} <= set(options)
    assert {"--policy-url", "--model"} <= options["probe"]
    assert {
        "--tasks", "--policy-url", "--model", "--version", "--out", "--desktops", "--group",
        "--oversample", "--max-steps", "--max-inflight", "--osworld", "--step-timeout",
        "--retries", "--rollout-timeout", "--env-retries", "--no-ready-signal", "--fixed-wait",
        "--no-fast-reset", "--image-max", "--backend", "--harness", "--temperature", "--top-p",
        "--top-k", "--max-tokens", "--ban-id",
    } <= options["collect"]  # fmt: skip
    assert {"--out", "--merged", "--inline-images"} <= options["export"]


def test_later_wins(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("rollout: {group: 6, max_steps: 6, desktops: 6}")
    settings = load_settings(
        file=file,
        overrides=["rollout.group=7", "rollout.max_steps=7"],
        flags={**SERVER, "rollout.group": 8},
    )
    rollout = settings.rollout
    assert (rollout.group, rollout.max_steps, rollout.desktops) == (8, 7, 6)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["rollout.gruop=1"], "unknown setting rollout.gruop"),
        (["rollout.group=many"], "rollout.group"),
        (["desktop.standby=maybe"], "desktop.standby"),
        (["sampling.top_p=2"], "sampling.top_p"),
        (["policy.api=grpc"], "api"),
        (["policy.api_key=secret"], "LEGATO_POLICY_KEY"),
        (["nonsense=1"], "nonsense"),
        (["rollout.oversample=.inf"], "rollout.oversample"),
        (["rollout.oversample=1e9"], "fraction of the group"),
        (["rollout.rollout_timeout=.inf"], "rollout.rollout_timeout"),
        (["sampling.temperature=.inf"], "sampling.temperature"),
        (["desktop.fixed_wait=.inf"], "desktop.fixed_wait"),
        (["desktop.ready_timeout=.nan"], "desktop.ready_timeout"),
    ],
)
def test_what_is_wrong_is_named(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(overrides=overrides, flags=SERVER)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_missing_server_says_which_flag() -> None:
    with pytest.raises(ConfigError, match="--policy-url"):
        load_settings(flags={"policy.model": "m"})
    with pytest.raises(ConfigError, match="--model"):
        load_settings(flags={"policy.url": "http://localhost:1/v1"})


def test_the_backend_follows_the_checkout() -> None:
    assert DesktopConfig().backend_name == "local"
    assert DesktopConfig(osworld_path="/somewhere").backend_name == "osworld"
    assert DesktopConfig(backend="local", osworld_path="/somewhere").backend_name == "local"


@pytest.mark.parametrize("text", ["[1, 2]", "a: ["])
def test_a_file_that_is_no_settings(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        load_settings(file=file, flags=SERVER)
