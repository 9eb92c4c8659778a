"""Draws that depend on a seed alone: the same on every machine and Python version.

Only ``random.Random.random`` is used, the one method whose sequence Python promises to keep for a
given seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """A stream of choices for one ``(label, seed)``; different labels are independent."""

    def __init__(self, label: str, seed: int) -> None:
        self._random = random.Random(f"{label}:{seed}").random

    def below(self, n: int) -> int:
        """An integer in ``[0, n)``."""
        return int(self._random() * n)

    def between(self, low: int, high: int) -> int:
        """An integer in ``[low, high]``."""
        return low + self.below(high - low + 1)

    def choice(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in range(len(rest))]

    def sample(self, items: Sequence[T], k: int) -> list[T]:
        """``k`` different items, in random order."""
        return self.shuffled(items)[:k]
