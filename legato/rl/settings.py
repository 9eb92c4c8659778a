"""Settings from config groups, files, overrides and flags, composed by Hydra.

Later wins: the groups in ``configs/``, a user's YAML file, ``key=value`` overrides, flags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from legato.errors import ConfigError
from legato.rl.config import DesktopConfig, HarnessConfig, RolloutConfig, SamplingConfig
from legato.rl.policy import PolicyConfig

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Settings:
    policy: PolicyConfig
    sampling: SamplingConfig
    desktop: DesktopConfig
    harness: HarnessConfig
    rollout: RolloutConfig


def config_dir() -> Path:
    """Where the config groups are: inside the installed package, or beside it in a checkout."""
    package = Path(str(files("legato")))
    for place in (package / "configs", package.parent / "configs"):
        if (place / "collect.yaml").is_file():
            return place.resolve()
    raise ConfigError("legato's config groups are missing: reinstall the package")


def load_settings(
    *,
    overrides: Sequence[str] = (),
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Compose and check the settings. Raises ``ConfigError`` naming the field.

    ``overrides`` are Hydra's (``desktop=fake``, ``rollout.group=8``); ``flags`` maps dotted keys
    to values, ``None`` meaning "not given".
    """
    groups = [o for o in overrides if "." not in o.split("=", 1)[0]]
    values = [o for o in overrides if o not in groups]
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(config_dir())):
            tree = compose("collect", overrides=groups)
        OmegaConf.set_struct(tree, False)
        if file is not None:
            tree = _merge(tree, _read(file))
        if values:
            tree = _merge(tree, OmegaConf.from_dotlist([v.lstrip("+") for v in values]))
        for key, value in (flags or {}).items():
            if value is not None:
                OmegaConf.update(tree, key, value)
        if OmegaConf.select(tree, "policy.api_key") is not None:
            raise ConfigError(
                "the policy key is read from LEGATO_POLICY_KEY only; take policy.api_key out"
            )
        for key in ("policy.url", "policy.model"):
            if OmegaConf.is_missing(tree.policy, key.split(".")[1]):
                raise ConfigError(f"{key} is missing: pass --{_FLAG[key]} or {key}=…")
        plain = OmegaConf.to_container(tree, resolve=True)
    except HydraException as e:
        raise ConfigError(str(e)) from None
    except OmegaConfBaseException as e:
        raise ConfigError(f"settings: {e}") from None
    assert isinstance(plain, dict)
    return _settings({str(k): v for k, v in plain.items()})


def build(cls: type[C], data: Mapping[str, Any], where: str) -> C:
    """Make a settings dataclass from plain data; unknown keys and wrong types are named."""
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(set(data) - known)
    if unknown:
        raise ConfigError(
            f"unknown setting {where}.{unknown[0]}; known: {', '.join(sorted(known))}"
        )
    try:
        return TypeAdapter(cls).validate_python(dict(data))
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        at = ".".join([where, *(str(p) for p in first["loc"])])
        raise ConfigError(f"{at}: {first['msg']}, got {first['input']!r}") from None


_PARTS = {f.name for f in fields(Settings)}
_FLAG = {"policy.url": "policy-url", "policy.model": "model"}


def _settings(data: dict[str, Any]) -> Settings:
    unknown = sorted(set(data) - _PARTS)
    if unknown:
        raise ConfigError(f"unknown settings group {unknown[0]!r}; known: {sorted(_PARTS)}")
    return Settings(
        policy=build(PolicyConfig, data["policy"], "policy"),
        sampling=build(SamplingConfig, data["sampling"], "sampling"),
        desktop=build(DesktopConfig, data["desktop"], "desktop"),
        harness=build(HarnessConfig, data["harness"], "harness"),
        rollout=build(RolloutConfig, data["rollout"], "rollout"),
    )


def _read(file: Path) -> DictConfig:
    try:
        tree = OmegaConf.load(file)
    except OSError as e:
        raise ConfigError(f"cannot read {file}: {e.strerror}") from None
    except Exception as e:
        raise ConfigError(f"{file} is not a YAML settings file: {e}") from None
    if not isinstance(tree, DictConfig):
        raise ConfigError(f"{file} must hold a mapping of settings")
    return tree


def _merge(tree: DictConfig, more: DictConfig) -> DictConfig:
    merged = OmegaConf.merge(tree, more)
    assert isinstance(merged, DictConfig)
    return merged
