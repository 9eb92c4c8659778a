"""Image geometry of Qwen-VL processors: how many tokens a screenshot takes.

A processor scales an image so that both sides are multiples of ``patch_size * merge_size`` and
its area lies within bounds, cuts it into patches, and merges ``merge_size`` x ``merge_size`` of
them into one token. This module computes the outcome from the numbers alone, without torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legato.errors import ConfigError
from legato.rl.tokens import checkpoint_file

MAX_ASPECT = 200
"""Longest to shortest side that Qwen's processors accept."""


def smart_resize(
    height: int, width: int, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """(height, width) in pixels after the processor's resize.

    Both sides become multiples of ``factor``, the area stays within ``[min_pixels, max_pixels]``
    where that is possible, the aspect ratio as near as the rounding allows. The formula is that
    of Qwen's ``qwen-vl-utils`` and of ``Qwen2VLImageProcessor`` in transformers, rounding half to
    even included. Raises ``ValueError`` for an empty image or an aspect ratio above 200.
    """
    if height < 1 or width < 1:
        raise ValueError(f"an image of {width}x{height} pixels has no area")
    if max(height, width) / min(height, width) > MAX_ASPECT:
        raise ValueError(f"aspect ratio of {width}x{height} is above {MAX_ASPECT}")
    rows, columns = round(height / factor), round(width / factor)
    if rows * columns * factor**2 > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        rows = max(1, math.floor(height / shrink / factor))
        columns = max(1, math.floor(width / shrink / factor))
    elif rows * columns * factor**2 < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        rows = math.ceil(height * grow / factor)
        columns = math.ceil(width * grow / factor)
    return rows * factor, columns * factor


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """What a checkpoint's image processor does to an image's size."""

    patch_size: int
    """Side of a patch, in pixels."""
    merge_size: int
    """Patches along each side of one token."""
    min_pixels: int
    max_pixels: int
    """Bounds of the resized image's area, in pixels."""

    def __post_init__(self) -> None:
        if self.patch_size < 1 or self.merge_size < 1:
            raise ConfigError("patch_size and merge_size must be at least 1")
        if not 0 < self.min_pixels <= self.max_pixels:
            raise ConfigError(
                f"image area bounds must satisfy 0 < min <= max, "
                f"got {self.min_pixels} and {self.max_pixels}"
            )

    @classmethod
    def load(cls, checkpoint: str) -> ImageSpec:
        """Read it from a checkpoint: a directory or a hub id.

        Looks at ``preprocessor_config.json``, then at the ``image_processor`` section of
        ``processor_config.json`` (where transformers 5 writes it). Raises
        :class:`~legato.errors.ConfigError` when neither holds what is needed.
        """
        for name in ("preprocessor_config.json", "processor_config.json"):
            path = checkpoint_file(checkpoint, name)
            if path is not None:
                return cls.from_config(_read(path), str(path))
        raise ConfigError(
            f"{checkpoint!r} has neither preprocessor_config.json nor processor_config.json; "
            "name a vision-language checkpoint"
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any], source: str = "image processor") -> ImageSpec:
        """Read it from a processor's JSON.

        The area bounds are ``min_pixels``/``max_pixels`` or ``size.shortest_edge``/
        ``size.longest_edge``, which Qwen's processors take as areas too; the former win.
        """
        config = config.get("image_processor", config)
        size = config.get("size") or {}
        least, most = size.get("shortest_edge"), size.get("longest_edge")
        found = {
            "patch_size": config.get("patch_size"),
            "merge_size": config.get("merge_size"),
            "min_pixels": config.get("min_pixels") or least,
            "max_pixels": config.get("max_pixels") or most,
        }
        known = {name: value for name, value in found.items() if isinstance(value, int)}
        if len(known) < len(found):
            missing = ", ".join(found.keys() - known.keys())
            raise ConfigError(f"{source} gives no whole number for {missing}; is it a Qwen-VL?")
        return cls(**known)

    @property
    def factor(self) -> int:
        """Pixels along one side of a token."""
        return self.patch_size * self.merge_size

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) in pixels after the processor's resize. Raises ``ValueError``."""
        rows, columns = smart_resize(height, width, self.factor, self.min_pixels, self.max_pixels)
        return columns, rows

    def grid_thw(self, width: int, height: int) -> tuple[int, int, int]:
        """The image's grid of patches: (time, rows, columns). Raises ``ValueError``."""
        new_width, new_height = self.resized(width, height)
        return 1, new_height // self.patch_size, new_width // self.patch_size

    def tokens(self, width: int, height: int) -> int:
        """Placeholder tokens of an image of that size in the prompt. Raises ``ValueError``."""
        _, rows, columns = self.grid_thw(width, height)
        return rows * columns // self.merge_size**2


def _read(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path} does not hold a JSON object")
    return config
