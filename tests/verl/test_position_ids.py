"""Position ids of a batch whose rows have one length: verl's own way fails, ours does not."""

from __future__ import annotations

import pytest
import torch
import verl.utils.tensordict_utils as tensordict_utils
from tensordict import TensorDict

from legato_verl import position_ids


def batch(lengths: list[int]) -> TensorDict:
    rows = [torch.arange(4 * n).view(4, n) for n in lengths]
    nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    return TensorDict({"position_ids": nested}, batch_size=len(lengths))


@pytest.mark.parametrize("lengths", [[5, 5, 5], [6], [4, 4], [5, 7, 5]])
def test_rows_come_back_whole(lengths: list[int]) -> None:
    position_ids.fix()
    data = batch(lengths)
    tensordict_utils.maybe_fix_3d_position_ids(data)
    fixed = data["position_ids"]
    assert fixed._ragged_idx == 2
    padded = fixed.to_padded_tensor(0)
    for row, length in zip(padded, lengths, strict=True):
        assert torch.equal(row[:, :length], torch.arange(4 * length).view(4, length))
    parts = tensordict_utils.chunk_tensordict(data, len(lengths))
    assert [part["position_ids"].offsets().diff().item() for part in parts] == lengths


def test_without_it_verl_fails() -> None:
    """When this fails verl has mended it, and the module can go."""
    data = batch([5, 5, 5])
    data["position_ids"]._ragged_idx = 2  # all that verl's function does
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        data["position_ids"].unbind()
