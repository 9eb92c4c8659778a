"""Graded desktop rollouts for computer-use RL: collect, export, and the types between them."""

from legato.rl import starting

starting.begin()

from legato.rl.collect import collect, collect_async  # noqa: E402
from legato.rl.config import (  # noqa: E402
    DesktopConfig,
    HarnessConfig,
    RolloutConfig,
    SamplingConfig,
)
from legato.rl.export import export_steps  # noqa: E402
from legato.rl.policy import PolicyConfig  # noqa: E402
from legato.rl.record import load_request, read_records  # noqa: E402
from legato.rl.summary import Summary, summarise  # noqa: E402

__all__ = [
    "DesktopConfig",
    "HarnessConfig",
    "PolicyConfig",
    "RolloutConfig",
    "SamplingConfig",
    "Summary",
    "collect",
    "collect_async",
    "export_steps",
    "load_request",
    "read_records",
    "summarise",
]
