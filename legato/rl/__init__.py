"""Graded desktop rollouts for computer-use RL: collect, export, and the types between them."""

from legato.rl.collect import collect, collect_async
from legato.rl.config import DesktopConfig, HarnessConfig, RolloutConfig, SamplingConfig
from legato.rl.export import export_steps
from legato.rl.policy import PolicyConfig
from legato.rl.record import load_request, read_records
from legato.rl.summary import Summary, summarise

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
