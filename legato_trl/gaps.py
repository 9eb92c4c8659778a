"""How far the trainer's logprobs lie from the server's, told to the record for the viewer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch

from legato.rl.row import Row
from legato.view.gaps import Gap

Gaps = Mapping[str, Sequence[Gap]]
"""By rollout id, in order of the steps."""


def gaps_of(rows: Sequence[Row], difference: torch.Tensor, turns: torch.Tensor) -> Gaps:
    """``|trainer - server|`` of the logprobs (R, C), by rollout and by its turns (R, C)."""
    found: dict[str, list[Gap]] = defaultdict(list)
    for row, differs, turn in zip(rows, difference, turns, strict=True):
        for step in turn[turn >= 0].unique().tolist():
            of_turn = differs[turn == step]
            gap = Gap(step, of_turn.mean().item(), of_turn.max().item())
            found[row.rollout_id].append(gap)
    return dict(found)


def merged(parts: Sequence[Gaps]) -> Gaps:
    """Those of all processes; a rollout's rows may have been dealt out to several."""
    found: dict[str, list[Gap]] = defaultdict(list)
    for part in parts:
        for rollout_id, gaps in part.items():
            found[rollout_id] += gaps
    return {name: sorted(gaps) for name, gaps in found.items()}
