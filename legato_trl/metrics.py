"""How far the trainer is from the server in a step, as figures for TRL's own logging."""

from __future__ import annotations

import torch

from legato.rl.figures import Figures


def mismatch(difference: torch.Tensor, turns: torch.Tensor) -> Figures:
    """|trainer - server| of the logprobs (R, C), over all trained tokens and by their turn."""
    trained = difference[turns >= 0]
    if not len(trained):
        return
    yield "mismatch/mean", trained.mean().item()
    yield "mismatch/max", trained.max().item()
    for turn in turns[turns >= 0].unique().tolist():
        of_turn = difference[turns == turn]
        yield f"mismatch/turn_{turn}/mean", of_turn.mean().item()
        yield f"mismatch/turn_{turn}/max", of_turn.max().item()
