"""How far the trainer's logprobs are from the server's, turn by turn and rollout by rollout."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch

from legato.view.gaps import Gap


def mismatch(rows: Iterable[tuple[torch.Tensor, Sequence[Sequence[int]]]]) -> dict[str, float]:
    """Mean and largest |difference| in nats, over all trained tokens and of each policy step.

    Each row is the difference trainer - server (T,) over its response, and ``[step, start,
    stop]`` of every reply in it.
    """
    by_turn: dict[int, list[torch.Tensor]] = defaultdict(list)
    for difference, turns in rows:
        for step, start, stop in turns:
            by_turn[step].append(difference[start:stop].abs())
    if not by_turn:
        return {}
    merged = {step: torch.cat(parts) for step, parts in sorted(by_turn.items())}
    whole = torch.cat(list(merged.values()))
    told = {"mismatch/mean": whole.mean().item(), "mismatch/max": whole.max().item()}
    for step, values in merged.items():
        told[f"mismatch/turn_{step}/mean"] = values.mean().item()
        told[f"mismatch/turn_{step}/max"] = values.max().item()
    return told


def gaps_of(
    rows: Iterable[tuple[str, torch.Tensor, Sequence[Sequence[int]]]],
) -> dict[str, list[Gap]]:
    """The same of each rollout, by its id: of each row the id, the difference and the turns."""
    found: dict[str, list[Gap]] = defaultdict(list)
    for rollout_id, difference, turns in rows:
        for step, start, stop in turns:
            values = difference[start:stop].abs()
            found[rollout_id].append(Gap(step, values.mean().item(), values.max().item()))
    return {rollout_id: sorted(gaps) for rollout_id, gaps in found.items()}
