"""Group-relative advantages, as in GRPO.

``advantage = (r - mean) / (std + 1e-6)`` with ``std`` over n - 1, taken over the verdicts that
count in a group: its ``ok`` and ``truncated`` attempts. ``surplus`` attempts and every kind of
failure stay outside, so that neither can move the mean. For groups of two and more this is
verl's ``compute_grpo_outcome_advantage``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TypeVar

from legato.rl.types import VERDICTS, Status

EPSILON = 1e-6
MIN_GROUP = 2
"""Fewest verdicts from which a group is trained; below, a standard deviation means nothing."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the advantage of an attempt is made from."""

    rollout_id: str
    group_id: str
    status: Status
    reward: float | None


def group_advantages(rewards: Mapping[K, float], *, min_group: int = MIN_GROUP) -> dict[K, float]:
    """Advantages of one group's verdicts, by the same keys.

    All 0 when there are fewer than ``min_group`` of them or when every reward is the same.
    """
    values = list(rewards.values())
    if len(values) < max(min_group, 2) or min(values) == max(values):
        return dict.fromkeys(rewards, 0.0)
    mean, std = fmean(values), stdev(values)
    return {key: (reward - mean) / (std + EPSILON) for key, reward in rewards.items()}


def advantages(outcomes: Iterable[Outcome], *, min_group: int = MIN_GROUP) -> dict[str, float]:
    """Advantages by ``rollout_id`` over any number of groups; only verdicts get one.

    Raises ``ValueError`` for a verdict without a reward, and for one given twice.
    """
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for outcome in outcomes:
        if outcome.status not in VERDICTS:
            continue
        if outcome.reward is None:
            raise ValueError(f"rollout {outcome.rollout_id} is {outcome.status} without a reward")
        group = groups[outcome.group_id]
        if outcome.rollout_id in group:
            raise ValueError(f"rollout {outcome.rollout_id} was given twice")
        group[outcome.rollout_id] = outcome.reward
    result: dict[str, float] = {}
    for group in groups.values():
        result.update(group_advantages(group, min_group=min_group))
    return result
