"""``algorithm.adv_estimator=legato``: the driver's own advantages, on every row of a rollout.

verl's ``grpo`` computes the same numbers as long as every kept attempt has a row. The two part
where an attempt came to a verdict without one (its first prompt was too long): the driver counts
it in its group, verl never sees it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from legato_verl.settings import ESTIMATOR

_given: list[torch.Tensor] = []


@contextmanager
def given(advantages: torch.Tensor) -> Iterator[None]:
    """Let the estimator return these (R,) for the R rows that it is asked about meanwhile."""
    _given.append(advantages)
    try:
        yield
    finally:
        _given.pop()


@register_adv_est(ESTIMATOR)
def passed_through(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns (R, T): a row's advantage on its trained tokens, 0 elsewhere."""
    if not _given:
        raise RuntimeError(
            "adv_estimator=legato needs the agent loop legato, which brings the advantages"
        )
    advantages = _given[-1].to(response_mask.device).unsqueeze(-1) * response_mask
    return advantages, advantages
