"""What a step's rollouts were like, as figures for a trainer's own logging."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev

from legato.rl.driver import GroupResult
from legato.rl.row import Row
from legato.rl.summary import SUCCESS
from legato.rl.types import Rollout, Status

PHASES = {
    "reset": ("reset_s", "wait_after_reset_s"),
    "model": ("model_s",),
    "act": ("act_s",),
    "ready": ("wait_s", "wait_before_eval_s"),
    "observe": ("obs_s",),
    "grade": ("eval_s",),
}
"""Shares of the rollouts' time, and the phases of the record that make them up."""

Figures = Iterator[tuple[str, float]]


def outcome(groups: Sequence[GroupResult]) -> Figures:
    """Rewards under the names that TRL uses; what became of the attempts."""
    rewards = [reward for group in groups for reward in group.rewards.values()]
    even = [len(set(group.rewards.values())) < 2 for group in groups]
    if rewards:
        yield "reward", fmean(rewards)
        yield "reward_std", stdev(rewards) if len(rewards) > 1 else 0.0
        yield "success_rate", fmean(reward >= SUCCESS for reward in rewards)
    if even:
        yield "frac_reward_zero_std", fmean(even)
    yield "rollout/verdicts", len(rewards)
    yield "rollout/short_groups", sum(group.short for group in groups)
    yield "rollout/refills", sum(group.refills for group in groups)
    tries = [r for group in groups for r in (*group.rollouts, *group.others)]
    lost = Counter(r.error_kind for r in tries if r.status in (Status.ERROR, Status.RETRIED))
    for kind in ("env", "policy", "grade"):
        yield f"rollout/{kind}_errors", lost[kind]
    yield "rollout/cancelled", sum(r.status is Status.CANCELLED for r in tries)


def effort(rollouts: Sequence[Rollout]) -> Figures:
    """Turns, tokens, and where the time of these rollouts went."""
    if not rollouts:
        return
    generations = [step.generation for r in rollouts for step in r.steps]
    yield "rollout/turns", fmean(len(r.steps) for r in rollouts)
    yield "rollout/truncated", fmean(r.status is Status.TRUNCATED for r in rollouts)
    actions = [taken for r in rollouts for step in r.steps for taken in step.actions]
    if actions:
        yield "rollout/invalid_actions", fmean(taken.error is not None for taken in actions)
    lengths = [float(len(g.token_ids)) for g in generations if g.token_ids is not None]
    if lengths:
        yield "completions/mean_length", fmean(lengths)
        yield "completions/min_length", min(lengths)
        yield "completions/max_length", max(lengths)
        yield "completions/clipped_ratio", fmean(g.finish_reason == "length" for g in generations)
    total = math.fsum(r.timing.total_s for r in rollouts)
    if total:
        for share, phases in PHASES.items():
            spent = math.fsum(getattr(r.timing, phase) for r in rollouts for phase in phases)
            yield f"time_share/{share}", spent / total
    told = [g for g in generations if g.cached_tokens is not None and g.prompt_tokens]
    if told:
        cached = sum(g.cached_tokens or 0 for g in told)
        yield "rollout/cache_hit_rate", cached / sum(g.prompt_tokens or 0 for g in told)
    versions = [(g.version, g.version_last or g.version) for g in generations]
    if versions:
        yield "rollout/spans_versions", fmean(first != last for first, last in versions)


def economy(rows: Sequence[Row], image_token_id: int) -> Figures:
    """Rows and forward tokens per rollout, against one row for every step."""
    rollouts = len({row.rollout_id for row in rows})
    if not rollouts:
        return
    shared = stepwise = 0
    for row in rows:
        wide = row.expanded(image_token_id)
        shared += len(wide.prompt_ids) + len(wide.response_ids)
        stepwise += sum(len(wide.prompt_ids) + stop for _, _, stop in wide.turns)
    yield "rows/per_rollout", len(rows) / rollouts
    yield "rows/per_rollout_stepwise", sum(len(row.turns) for row in rows) / rollouts
    yield "rows/forward_tokens_per_rollout", shared / rollouts
    yield "rows/forward_tokens_per_rollout_stepwise", stepwise / rollouts
    yield "rows/trained_tokens_per_rollout", sum(sum(row.loss_mask) for row in rows) / rollouts
