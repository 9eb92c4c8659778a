"""What a user decides about desktops and rollouts, checked before anything starts."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from legato.desktop.contract import DesktopFactory, DesktopOptions
from legato.errors import ConfigError

SCREEN = (1280, 720)
OSWORLD_SCREEN = (1920, 1080)
"""What OSWorld's virtual machine has."""
MAX_OVERSAMPLE = 100
"""More than that is a percentage or a typing error."""


@dataclass(frozen=True, slots=True)
class DesktopConfig:
    """Which desktops to run on, and how to wait for and reset them."""

    backend: str | None = None
    """``local``, ``docker``, ``fake``, ``osworld`` or a third party's entry point in
    ``legato.desktops``; by default ``osworld`` when ``osworld_path`` is given, else ``local``."""
    osworld_path: str | None = None
    """An OSWorld checkout: its task files, and with the ``osworld`` backend its environment."""
    width: int | None = None
    """Of the screen, in pixels; by default 1280x720, and with ``osworld`` that of its image."""
    height: int | None = None
    ready_signal: bool = True
    fixed_wait: float = 3.0
    """Seconds after every action; used only without the ready signal."""
    ready_timeout: float = 15.0
    """Seconds after which waiting for a ready screen is given up and noted."""
    fast_reset: bool = True
    standby: bool = True
    """Keep a second, clean desktop per worker, made ready while the policy works."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The backend's own options."""

    def __post_init__(self) -> None:
        _at_least("desktop.width", self.screen[0], 64)
        _at_least("desktop.height", self.screen[1], 64)
        _at_least("desktop.fixed_wait", self.fixed_wait, 0)
        _at_least("desktop.ready_timeout", self.ready_timeout, 0.1)

    @property
    def backend_name(self) -> str:
        return self.backend or ("osworld" if self.osworld_path else "local")

    @property
    def screen(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        width, height = OSWORLD_SCREEN if self.backend_name == "osworld" else SCREEN
        return (
            width if self.width is None else self.width,
            height if self.height is None else self.height,
        )

    def desktop_options(self) -> DesktopOptions:
        extra = dict(self.options)
        if self.osworld_path and self.backend_name == "osworld":
            extra.setdefault("osworld_path", os.path.expanduser(self.osworld_path))
        return DesktopOptions(
            width=self.screen[0],
            height=self.screen[1],
            ready_signal=self.ready_signal,
            fixed_wait=self.fixed_wait,
            fast_reset=self.fast_reset,
            ready_timeout=self.ready_timeout,
            extra=extra,
        )

    def factory(self) -> DesktopFactory:
        """Look the backend up. Raises ``ConfigError`` naming those that are installed."""
        found = {e.name: e for e in entry_points(group="legato.desktops")}
        if self.backend_name not in found:
            raise ConfigError(
                f"no desktop backend {self.backend_name!r}; installed: "
                f"{', '.join(sorted(found)) or 'none'}"
            )
        factory: DesktopFactory = found[self.backend_name].load()
        return factory


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """How attempts and groups are run. One GRPO group a task."""

    desktops: int = 4
    """Desktops that work at the same time."""
    group: int = 4
    """Attempts per task that must end with a verdict."""
    oversample: float = 0.0
    """Extra attempts as a fraction of ``group``, rounded up; stragglers are cancelled."""
    max_steps: int = 15
    """Policy calls per rollout."""
    rollout_timeout: float | None = None
    """Wall-clock seconds per rollout; one that hits it is graded and marked ``truncated``."""
    env_retries: int = 1
    """Further desktops on which an attempt is tried after a desktop failure."""
    min_group: int = 2
    """Verdicts a group needs to have advantages."""
    seed: int | None = None
    """Makes every request carry its own seed, derived from this one."""
    infeasible: bool = True
    """Run OSWorld's tasks that cannot be done, too: an agent succeeds at one by reporting failure,
    so one that always does succeeds at 7.6 % of the benchmark."""

    def __post_init__(self) -> None:
        _at_least("rollout.desktops", self.desktops, 1)
        _at_least("rollout.group", self.group, 1)
        _at_least("rollout.oversample", self.oversample, 0)
        if self.oversample > MAX_OVERSAMPLE:
            raise ConfigError(
                f"rollout.oversample must be at most {MAX_OVERSAMPLE}, got {self.oversample:g}: it "
                "is a fraction of the group, so 0.25 starts a quarter more"
            )
        _at_least("rollout.max_steps", self.max_steps, 1)
        _at_least("rollout.env_retries", self.env_retries, 0)
        _at_least("rollout.min_group", self.min_group, 2)
        if self.rollout_timeout is not None:
            _at_least("rollout.rollout_timeout", self.rollout_timeout, 1)


@dataclass(frozen=True, slots=True)
class HarnessConfig:
    """The prompt format and action grammar; see :mod:`legato.rl.harness`."""

    name: str = "qwen3_5"
    image_max: int = 20
    """Screenshots kept in the prompt; past it the oldest half leaves at once."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The harness's own options."""

    def __post_init__(self) -> None:
        _at_least("harness.image_max", self.image_max, 1)


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """The distribution to sample from. Every field is sent with every request."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps the whole vocabulary."""
    max_tokens: int = 512
    banned_tokens: tuple[str, ...] = ("<|image_pad|>", "<|video_pad|>")
    """Special tokens that must never be sampled. A vision placeholder in a reply breaks the
    training forward; logprobs are those of the distribution without them."""
    banned_ids: tuple[int, ...] = ()
    """Further banned ids."""

    def __post_init__(self) -> None:
        _at_least("sampling.temperature", self.temperature, 0)
        _at_least("sampling.top_k", self.top_k, 0)
        _at_least("sampling.max_tokens", self.max_tokens, 1)
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"sampling.top_p must lie in (0, 1], got {self.top_p}")


def _at_least(name: str, value: float, low: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value < math.inf:
        raise ConfigError(f"{name} must be a number of at least {low:g}, got {value!r}")
