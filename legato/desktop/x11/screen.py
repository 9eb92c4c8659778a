"""What can be seen of an X session: one contract, whether its memory is shared or told."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from legato.desktop.x11.connection import XConnection


class Screen(Protocol):
    """The screen of one session; ``x`` is a connection to its server. Raises ``EnvFailure``."""

    def pixels(self, x: XConnection) -> np.ndarray:
        """The screen as it is now: uint32 ``0x00RRGGBB``, shape (height, width).

        It may change under the caller's eyes, or with the next call.
        """
        ...

    def rgb(self, x: XConnection) -> np.ndarray:
        """A copy in which nothing is half drawn by one request: uint8, shape (height, width, 3)."""
        ...

    def last_rgb(self) -> np.ndarray | None:
        """As :meth:`rgb`, of the last look that was taken, if one is at hand for nothing."""
        ...


def to_rgb(pixels: np.ndarray) -> np.ndarray:
    """A copy of uint32 ``0x00RRGGBB`` (height, width) as uint8 RGB (height, width, 3)."""
    height, width = pixels.shape
    raw = pixels.view(np.uint8).reshape(height, width, 4)
    out = np.empty((height, width, 3), np.uint8)
    for channel in range(3):  # by channel: ten times faster than all three at once
        out[..., channel] = raw[..., 2 - channel]
    return out
