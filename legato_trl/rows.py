"""Training rows as the tensors that TRL's loss consumes, screenshots included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from trl.trainer.utils import pad

from legato.desktop.contract import Screenshot
from legato.errors import SampleError
from legato.rl.row import Row
from legato.rl.samples import Vision

Tensors = dict[str, Any]

FORWARD = ("pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids")
"""Entries of a batch that the model's forward takes beside ids and mask."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one process trains on: the same number of rows as every other one."""

    rows: list[Row]
    pngs: Mapping[str, bytes]
    """The rows' screenshots by hash."""
    real: int
    """Rows of all processes together, padding apart."""
    total: int
    """The same, padding included."""


def shares(
    rows: Sequence[Row], images: Mapping[str, Screenshot], *, processes: int, chunks: int
) -> list[Share]:
    """Deal rows out to ``processes``, each a multiple of ``chunks``, filling up with padding.

    A padding row repeats the shortest row, so that every process runs the same parts of the model,
    but trains nothing: mask and advantage are 0. Long rows are dealt out evenly.
    """
    ordered = sorted(rows, key=length, reverse=True)
    missing = -len(ordered) % (processes * chunks)
    padded = [*ordered, *[padding(ordered[-1])] * missing]
    result = []
    for rank in range(processes):
        mine = padded[rank::processes]
        names = {image.sha256 for row in mine for image in row.images}
        pngs = {name: images[name].png for name in names}
        result.append(Share(mine, pngs, len(rows), len(padded)))
    return result


def padding(row: Row) -> Row:
    """The same row without anything to train on."""
    return replace(row, loss_mask=(0,) * len(row.loss_mask), advantage=0.0)


def length(row: Row) -> int:
    """Tokens of the row as the model runs it."""
    images = sum((image.tokens or 1) - 1 for image in row.images)
    return len(row.prompt_ids) + len(row.response_ids) + images


def take(batch: Tensors, start: int, stop: int) -> Tensors:
    """Rows ``start`` to ``stop`` of a batch, with their share of the screenshots."""
    counts = batch["num_images"]
    rows = len(counts)
    part = {
        name: value[start:stop]
        for name, value in batch.items()
        if name not in ("pixel_values", "image_grid_thw") and _per_row(value, rows)
    }
    if "pixel_values" in batch:
        first, last = sum(counts[:start]), sum(counts[:stop])
        patches = batch["image_grid_thw"].prod(dim=-1)
        begin, end = int(patches[:first].sum()), int(patches[:last].sum())
        part["pixel_values"] = batch["pixel_values"][begin:end]
        part["image_grid_thw"] = batch["image_grid_thw"][first:last]
    return part


def _per_row(value: Any, rows: int) -> bool:
    return isinstance(value, list) or (value.ndim > 0 and len(value) == rows)


class Tensoriser:
    """Makes tensors of rows, with one model's processor. All of them stay on the CPU."""

    def __init__(
        self, processor: Any, vision: Vision, pad_id: int, multiple_of: int | None
    ) -> None:
        self._images = processor.image_processor
        self._vision = vision
        self._pad_id = pad_id
        self._multiple_of = multiple_of

    def tensors(self, share: Share) -> tuple[Tensors, torch.Tensor]:
        """The batch, and the turn of every completion token.

        With R rows, P prompt tokens and C completion tokens, padded: ``prompt_ids`` and
        ``prompt_mask`` (R, P), ``completion_ids``, ``completion_mask``, ``tool_mask`` (1 where the
        policy sampled) and ``sampling_per_token_logps`` (R, C), ``advantages`` (R,), ``num_images``
        (a list of R), ``pixel_values`` (patches, features), ``image_grid_thw`` (images, 3),
        ``mm_token_type_ids`` (R, P + C). Turns are (R, C), -1 where nothing is trained.

        Raises :class:`~legato.errors.SampleError` where ids and screenshots do not match.
        """
        expanded = [row.expanded(self._vision.image_token_id) for row in share.rows]
        for row, wide in zip(share.rows, expanded, strict=True):
            if wide.logprobs is None:
                raise SampleError(f"rollout {row.rollout_id} has no logprobs to train with")
        prompts = [torch.tensor(wide.prompt_ids) for wide in expanded]
        completions = [torch.tensor(wide.response_ids) for wide in expanded]
        batch: Tensors = {
            "prompt_ids": self._pad(prompts, self._pad_id, "left"),
            "prompt_mask": self._pad([torch.ones_like(ids) for ids in prompts], 0, "left"),
            "completion_ids": self._pad(completions, self._pad_id),
            "completion_mask": self._pad([torch.ones_like(ids) for ids in completions], 0),
            "tool_mask": self._pad([torch.tensor(wide.loss_mask) for wide in expanded], 0),
            "sampling_per_token_logps": self._pad(
                [torch.tensor(wide.logprobs, dtype=torch.float32) for wide in expanded], 0.0
            ),
            "advantages": torch.tensor([row.advantage for row in share.rows]),
            "num_images": [len(row.images) for row in share.rows],
            **self._pixels(share),
        }
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        batch["mm_token_type_ids"] = (ids == self._vision.image_token_id).long()
        turns = [self._turns(row) for row in share.rows]
        return batch, self._pad(turns, -1)

    def _pad(self, tensors: list[torch.Tensor], value: float, side: str = "right") -> torch.Tensor:
        padded: torch.Tensor = pad(
            tensors, padding_value=value, padding_side=side, pad_to_multiple_of=self._multiple_of
        )
        return padded

    def _pixels(self, share: Share) -> Tensors:
        """Every screenshot is processed once, however many rows show it."""
        made: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for name, png in share.pngs.items():
            picture = Screenshot.from_png(png).pil()
            features = self._images(images=[picture], return_tensors="pt")
            made[name] = (features["pixel_values"], features["image_grid_thw"])
        shown = [image for row in share.rows for image in row.images]
        for image in shown:
            tokens = int(made[image.sha256][1].prod()) // self._vision.spec.merge_size**2
            if tokens != image.tokens:
                raise SampleError(
                    f"a screenshot of {image.width}x{image.height} takes {image.tokens} tokens at "
                    f"the server and {tokens} in the trainer: both must have the same processor"
                )
        if not shown:
            return {}
        return {
            "pixel_values": torch.cat([made[image.sha256][0] for image in shown]),
            "image_grid_thw": torch.cat([made[image.sha256][1] for image in shown]),
        }

    def _turns(self, row: Row) -> torch.Tensor:
        """The policy step of each completion token as the model runs it, -1 off the mask."""
        numbers = [-1] * len(row.response_ids)
        for turn in row.turns:
            numbers[turn.start : turn.stop] = [turn.step] * (turn.stop - turn.start)
        shown = iter(row.images[row.n_prompt_images :])
        wide: list[int] = []
        for token, number, trained in zip(row.response_ids, numbers, row.loss_mask, strict=True):
            placeholder = token == self._vision.image_token_id
            times = (next(shown).tokens or 1) if placeholder else 1
            wide += [number if trained else -1] * times
        return torch.tensor(wide)
