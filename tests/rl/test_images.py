from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.errors import ConfigError
from legato.rl.images import ImageSpec, smart_resize
from tests.conftest import CheckpointFactory
from tests.rl.harness.transformers_oracle import Oracle

sides = st.integers(1, 1600)
sizes = st.tuples(sides, sides).filter(lambda size: max(size) <= 200 * min(size))


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl"])
def test_grid_and_tokens_are_those_of_the_real_processor(
    family: str, tiny_checkpoint: CheckpointFactory, oracle: Oracle
) -> None:
    checkpoint = tiny_checkpoint(family)
    spec = ImageSpec.load(str(checkpoint))

    @settings(max_examples=25, deadline=None)
    @given(st.lists(sizes, min_size=4, max_size=4))
    def check(batch: list[tuple[int, int]]) -> None:
        grids = oracle.grids(checkpoint, batch)
        assert [list(spec.grid_thw(*size)) for size in batch] == grids
        assert [spec.tokens(*size) for size in batch] == [
            t * h * w // spec.merge_size**2 for t, h, w in grids
        ]

    check()


@given(sizes, st.sampled_from([28, 32]), st.integers(2, 64), st.integers(1, 300))
def test_a_resized_image_is_left_alone_by_the_next_resize(
    size: tuple[int, int], factor: int, least: int, more: int
) -> None:
    bounds = least * factor**2, (least + more * least) * factor**2
    once = smart_resize(size[1], size[0], factor, *bounds)
    assert once[0] % factor == once[1] % factor == 0
    if bounds[0] <= once[0] * once[1] <= bounds[1]:
        assert smart_resize(*once, factor, *bounds) == once


@pytest.mark.parametrize("size", [(0, 10), (10, 0), (-1, 5), (1, 201), (4020, 20)])
def test_sizes_without_a_resize_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"{size[1]}x{size[0]}"):
        smart_resize(*size, 28, 3136, 50176)


def test_both_spellings_of_the_area_bounds() -> None:
    by_area = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 12845056}
    by_edge = {
        "patch_size": 14,
        "merge_size": 2,
        "size": {"shortest_edge": 3136, "longest_edge": 12845056},
    }
    assert ImageSpec.from_config(by_area) == ImageSpec.from_config(by_edge)
    assert ImageSpec.from_config({**by_edge, "min_pixels": 4000}).min_pixels == 4000


def test_preprocessor_config_comes_before_processor_config(tmp_path: Path) -> None:
    old = {"patch_size": 16, "merge_size": 2, "min_pixels": 4096, "max_pixels": 65536}
    new = {"image_processor": {**old, "max_pixels": 131072}}
    (tmp_path / "processor_config.json").write_text(json.dumps(new))
    assert ImageSpec.load(str(tmp_path)).max_pixels == 131072
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(old))
    assert ImageSpec.load(str(tmp_path)).max_pixels == 65536


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "neither"),
        ("{", "cannot read"),
        ("[]", "JSON object"),
        ('{"patch_size": 14, "merge_size": 2}', "min_pixels|max_pixels"),
        ('{"patch_size": "a", "merge_size": 2, "min_pixels": 1, "max_pixels": 2}', "patch_size"),
        ('{"patch_size": 14, "merge_size": 2, "min_pixels": 9, "max_pixels": 2}', "min <= max"),
        ('{"patch_size": 0, "merge_size": 2, "min_pixels": 1, "max_pixels": 2}', "at least 1"),
    ],
)
def test_an_unusable_checkpoint_is_named(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "preprocessor_config.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        ImageSpec.load(str(tmp_path))
