"""A bug of verl 0.9, where a vision model's rows are all of one length, or there is one only.

verl keeps the position ids of a batch as a nested tensor of (4, length) rows, and before each
forward declares the last dimension to be the ragged one (``maybe_fix_3d_position_ids``). When no
length differs torch lays the rows out along the other dimension, and the declaration makes every
later look at the tensor fail. Here such a tensor is laid out anew first; others are left to verl.
"""

from __future__ import annotations

import sys
from itertools import accumulate
from typing import Any

import torch
import verl.utils.tensordict_utils as tensordict_utils

NAME = "maybe_fix_3d_position_ids"


def fix() -> None:
    """Put it in the place of verl's function. Idempotent."""
    original = getattr(tensordict_utils, NAME)
    if getattr(original, "legato", False):
        return

    def fixed(data: Any) -> None:
        if "position_ids" in data.keys():  # noqa: SIM118 - a TensorDict looks into its first row
            positions = data["position_ids"]
            if positions.is_nested and positions.dim() == 3 and _flat(positions):
                data["position_ids"] = along_length(positions)
        original(data)

    fixed.legato = True  # type: ignore[attr-defined]
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("verl.") and NAME in vars(module):
            setattr(module, NAME, fixed)


def along_length(positions: Any) -> torch.Tensor:
    """Rows (4, L) that torch laid out as one (R * 4, L), laid out as (4, R * L)."""
    rows = torch.split(positions.values(), positions.offsets().diff().tolist())
    lengths = [row.shape[-1] for row in rows]
    offsets = torch.tensor([0, *accumulate(lengths)], device=positions.values().device)
    return torch.nested.nested_tensor_from_jagged(
        torch.cat(rows, dim=-1),
        offsets,
        jagged_dim=2,
        min_seqlen=min(lengths),
        max_seqlen=max(lengths),
    )


def _flat(positions: Any) -> bool:
    """Whether the rows lie below each other: offsets count heights, not lengths."""
    return int(positions.offsets()[-1]) == int(positions.values().shape[0])
