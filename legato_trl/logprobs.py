"""The trainer's logprobs, of the very distribution that the server sampled from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from legato.rl.policy.request import BAN


@contextmanager
def without(banned: Sequence[int], model: Any) -> Iterator[None]:
    """Take the ``banned`` ids out of the distribution that ``model``'s fused head computes.

    The server adds a bias to their logits before it divides by the temperature, and reports
    logprobs of what is left; the trainer's head gets the same bias. The head itself stays as it
    is: TRL reads weight and bias off ``get_output_embeddings`` in each forward.
    """
    if not banned:
        yield
        return
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = bare.get_output_embeddings()
    bias = torch.zeros(head.out_features, device=head.weight.device, dtype=torch.float32)
    bias[list(banned)] = BAN
    if head.bias is not None:
        bias = bias + head.bias
    if isinstance(head.weight, DTensor):
        mesh = head.weight.device_mesh
        bias = DTensor.from_local(bias, mesh, [Replicate()] * mesh.ndim, run_check=False)
    if is_deepspeed_zero3_enabled():
        _never_partitioned(bias)
    stand_in = SimpleNamespace(weight=head.weight, bias=bias)
    bare.get_output_embeddings = lambda: stand_in
    try:
        yield
    finally:
        del bare.get_output_embeddings


def importance_ratio(
    logprobs: torch.Tensor,
    sampled: torch.Tensor,
    mask: torch.Tensor,
    *,
    mode: str,
    low: float | None,
    high: float | None,
) -> torch.Tensor:
    """TRL's correction for a sampler that is not quite the trainer: exp(trainer - server).

    Per token (R, C) in the ``token_*`` modes, per row (R, 1) in the ``sequence_*`` modes; what
    leaves [``low``, ``high``] is clamped (``*_truncate``) or dropped (``*_mask``).
    """
    difference = (logprobs - sampled) * mask
    if mode.startswith("sequence"):
        difference = difference.sum(dim=-1, keepdim=True)
    ratio = difference.exp()
    if mode.endswith("truncate"):
        return ratio.clamp(min=low, max=high)
    outside = torch.zeros_like(ratio, dtype=torch.bool)
    if low is not None:
        outside |= ratio < low
    if high is not None:
        outside |= ratio > high
    return ratio.masked_fill(outside, 0.0)


def _never_partitioned(bias: torch.Tensor) -> None:
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus

    bias.ds_status = ZeroParamStatus.AVAILABLE  # type: ignore[attr-defined]
