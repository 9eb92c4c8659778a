"""Screenshots in the size the model is to see."""

from __future__ import annotations

import numpy as np
from PIL import Image

from legato.desktop.contract import Screenshot


def resize(screenshot: Screenshot, size: tuple[int, int]) -> Screenshot:
    """Scale to (width, height) pixels; the same object if it has that size already.

    Enlarging is bicubic, as Qwen's processors do it; shrinking averages the pixels that fall
    together, which keeps thin strokes visible and is the quickest.
    """
    if (screenshot.width, screenshot.height) == size:
        return screenshot
    smaller = size[0] * size[1] < screenshot.width * screenshot.height / 2
    method = Image.Resampling.BOX if smaller else Image.Resampling.BICUBIC
    return Screenshot(np.asarray(screenshot.pil().resize(size, method)), screenshot.taken_at)
