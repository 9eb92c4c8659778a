"""The PNG encoder: what Pillow reads back is what went in."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from legato.desktop.contract import Screenshot
from legato.desktop.png import encode_png


@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**32 - 1), st.sampled_from([2, 256]))
def test_it_is_lossless(width: int, height: int, seed: int, colours: int) -> None:
    rng = np.random.default_rng(seed)
    rgb = rng.integers(0, colours, (height, width, 3)).astype(np.uint8)
    with Image.open(io.BytesIO(encode_png(rgb))) as image:
        image.verify()
    with Image.open(io.BytesIO(encode_png(rgb))) as image:
        assert (image.format, image.mode, image.size) == ("PNG", "RGB", (width, height))
        assert np.array_equal(np.asarray(image), rgb)


@pytest.mark.parametrize("view", ["flipped", "strided", "columns"])
def test_it_takes_views_of_other_arrays(view: str) -> None:
    whole = np.arange(40 * 60 * 3, dtype=np.uint32).astype(np.uint8).reshape(40, 60, 3)
    rgb = {
        "flipped": whole[:, :, ::-1],
        "strided": whole[::2, ::3],
        "columns": whole.transpose(1, 0, 2),
    }[view]
    with Image.open(io.BytesIO(encode_png(rgb))) as image:
        assert np.array_equal(np.asarray(image), rgb)


def test_screenshots_are_encoded_by_it() -> None:
    rgb = np.full((5, 4, 3), 7, np.uint8)
    assert Screenshot(rgb, 0.0).png == encode_png(rgb)
