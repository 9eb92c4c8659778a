"""Rollouts as one padded ``DataProto``, for trainers that take batches rather than the loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from verl.protocol import DataProto

from legato.desktop.contract import Screenshot
from legato.errors import ConfigError, SampleError
from legato.rl.advantage import MIN_GROUP
from legato.rl.images import ImageSpec
from legato.rl.row import Expanded, Row
from legato.rl.samples import Vision, samples_from, screenshots
from legato.rl.types import Rollout

IMAGE_TOKEN = "<|image_pad|>"


def to_dataproto(
    rollouts: Iterable[Rollout], tokenizer: Any, processor: Any, *, min_group: int = MIN_GROUP
) -> DataProto:
    """Rows of rollouts (give whole groups), with the driver's advantages.

    ``tokenizer`` and ``processor`` are those of the model, as transformers or verl's
    ``hf_tokenizer`` and ``hf_processor`` load them; the latter bring the positions of images
    (``get_rope_index``), without which positions are plain counts.

    With R rows, P prompt tokens padded on the left and C response tokens padded on the right, the
    batch holds ``prompts`` (R, P); ``responses``, ``response_mask`` (1 where the policy sampled),
    ``rollout_log_probs``, ``rm_scores`` (the verdict, on the last token), ``token_level_scores``,
    ``token_level_rewards``, ``advantages`` and ``returns`` (R, C); ``input_ids`` and
    ``attention_mask`` (R, P + C); ``position_ids`` (R, 4, P + C), or (R, P + C) when plain. Beside
    it ``uid`` (the group), ``rollout_id``, ``multi_modal_inputs`` (``pixel_values`` and
    ``image_grid_thw`` of each row), ``__num_turns__``, and the lowest and highest policy version,
    ``min_global_steps`` and ``max_global_steps``, as text.

    Raises :class:`~legato.errors.SampleError` if a step does not add up to a row, or if there is
    none, and :class:`~legato.errors.ConfigError` for a processor that takes no images.
    """
    kept = list(rollouts)
    vision = _vision(tokenizer, processor)
    rows = samples_from(kept, min_group=min_group, vision=vision)
    if not rows:
        raise SampleError("no rollout has a verdict and a step: there is no row to train on")
    shown = screenshots(kept)
    expanded = [row.expanded(vision.image_token_id) for row in rows]
    inputs = [_pixels(row, shown, processor) for row in rows]
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    prompts = _pad([wide.prompt_ids for wide in expanded], pad, left=True)
    responses = _pad([wide.response_ids for wide in expanded], pad)
    mask = _pad([wide.loss_mask for wide in expanded], 0)
    attention = torch.cat(
        [
            _pad([[1] * len(wide.prompt_ids) for wide in expanded], 0, left=True),
            _pad([[1] * len(wide.response_ids) for wide in expanded], 0),
        ],
        dim=1,
    )
    ids = torch.cat([prompts, responses], dim=1)
    scores = torch.zeros(mask.shape, dtype=torch.float32)
    for number, (row, wide) in enumerate(zip(rows, expanded, strict=True)):
        scores[number, len(wide.response_ids) - 1] = row.reward
    logprobs = [_logprobs(row, wide) for row, wide in zip(rows, expanded, strict=True)]
    advantages = torch.tensor([row.advantage for row in rows]).unsqueeze(-1) * mask
    batch = {
        "prompts": prompts,
        "responses": responses,
        "response_mask": mask,
        "input_ids": ids,
        "attention_mask": attention,
        "position_ids": _positions(ids, attention, inputs, vision, processor),
        "rollout_log_probs": _pad(logprobs, 0.0),
        "rm_scores": scores,
        "token_level_scores": scores.clone(),
        "token_level_rewards": scores.clone(),
        "advantages": advantages,
        "returns": advantages.clone(),
    }
    turns = {rollout.rollout_id: len(rollout.steps) for rollout in kept}
    return DataProto(
        batch=TensorDict(batch, batch_size=len(rows)),
        non_tensor_batch={
            "uid": _objects([row.group_id for row in rows]),
            "rollout_id": _objects([row.rollout_id for row in rows]),
            "multi_modal_inputs": _objects(inputs),
            "__num_turns__": np.array([turns[row.rollout_id] for row in rows], dtype=np.int32),
            "min_global_steps": _objects([row.policy_version_min for row in rows]),
            "max_global_steps": _objects([row.policy_version_max for row in rows]),
        },
        meta_info={"global_token_num": attention.sum(dim=-1).tolist()},
    )


def _vision(tokenizer: Any, processor: Any) -> Vision:
    images = getattr(processor, "image_processor", None)
    token = tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)
    if images is None or token is None or token == tokenizer.unk_token_id:
        raise ConfigError("to_dataproto needs the tokenizer and processor of a Qwen-VL model")
    return Vision(int(token), ImageSpec.from_config(images.to_dict()))


def _logprobs(row: Row, wide: Expanded) -> list[float]:
    if wide.logprobs is None:
        raise SampleError(f"rollout {row.rollout_id} has no logprobs to train with")
    return wide.logprobs


def _pixels(row: Row, shown: Mapping[str, Screenshot], processor: Any) -> dict[str, torch.Tensor]:
    if not row.images:
        return {}
    made = processor.image_processor(
        images=[shown[image.sha256].pil() for image in row.images], return_tensors="pt"
    )
    merged = processor.image_processor.merge_size**2
    for image, grid in zip(row.images, made["image_grid_thw"], strict=True):
        if int(grid.prod()) // merged != image.tokens:
            raise SampleError(
                f"a screenshot of {image.width}x{image.height} takes {image.tokens} tokens at the "
                f"server and {int(grid.prod()) // merged} here: is the processor the model's?"
            )
    return {"pixel_values": made["pixel_values"], "image_grid_thw": made["image_grid_thw"]}


def _positions(
    ids: torch.Tensor,
    attention: torch.Tensor,
    inputs: Sequence[Mapping[str, torch.Tensor]],
    vision: Vision,
    processor: Any,
) -> torch.Tensor:
    plain = (attention.cumsum(dim=-1) - 1).clamp(min=0)
    if not hasattr(processor, "get_rope_index"):
        return plain
    rows = []
    for number, images in enumerate(inputs):
        positions, _ = processor.get_rope_index(
            input_ids=ids[number : number + 1],
            attention_mask=attention[number : number + 1],
            image_grid_thw=images.get("image_grid_thw"),
            video_grid_thw=None,
            mm_token_type_ids=(ids[number : number + 1] == vision.image_token_id).long(),
        )
        rows.append(torch.cat([plain[number : number + 1], positions[:, 0]]))
    return torch.stack(rows)


def _pad(rows: Sequence[Sequence[float]], value: float, *, left: bool = False) -> torch.Tensor:
    whole = isinstance(value, int)
    tensors = [torch.tensor(row, dtype=torch.int64 if whole else torch.float32) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(
        tensors, batch_first=True, padding_value=value, padding_side="left" if left else "right"
    )


def _objects(values: Sequence[Any]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
