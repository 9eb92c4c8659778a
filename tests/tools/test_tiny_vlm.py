from __future__ import annotations

import filecmp
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPO, CheckpointFactory

FAMILIES = ["qwen3_vl", "qwen2_5_vl", "qwen3_5"]


def build(out: Path, *options: str) -> None:
    subprocess.run(
        [sys.executable, REPO / "tools" / "tiny_vlm.py", out, *options], check=True, timeout=120
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_checkpoint_has_its_parts_and_no_id_without_a_token(
    tiny_checkpoint: CheckpointFactory, family: str
) -> None:
    checkpoint = tiny_checkpoint(family)
    config = json.loads((checkpoint / "config.json").read_text())
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    ids = set(tokenizer["model"]["vocab"].values()) | {t["id"] for t in tokenizer["added_tokens"]}
    assert config["model_type"] == family
    assert ids == set(range(config["text_config"]["vocab_size"]))
    assert config["image_token_id"] in ids
    assert "<|vision_start|>" in (checkpoint / "chat_template.jinja").read_text()


def test_same_arguments_give_the_same_bytes_and_another_seed_does_not(
    tiny_checkpoint: CheckpointFactory, tmp_path: Path
) -> None:
    first = tiny_checkpoint("qwen3_vl")
    build(tmp_path / "again")
    build(tmp_path / "other", "--seed", "1")
    names = sorted(p.name for p in first.iterdir())
    assert names == sorted(p.name for p in (tmp_path / "again").iterdir())
    assert filecmp.cmpfiles(first, tmp_path / "again", names, shallow=False) == (names, [], [])
    _, different, _ = filecmp.cmpfiles(first, tmp_path / "other", names, shallow=False)
    assert different == ["model.safetensors"]


def test_generation_fields_are_written_and_neutral_otherwise(
    tiny_checkpoint: CheckpointFactory,
) -> None:
    def generation(checkpoint: Path) -> dict[str, float]:
        loaded: dict[str, float] = json.loads((checkpoint / "generation_config.json").read_text())
        return loaded

    neutral = generation(tiny_checkpoint("qwen3_vl"))
    assert (neutral["temperature"], neutral["top_p"], neutral["top_k"]) == (1.0, 1.0, 0)
    assert generation(tiny_checkpoint("qwen3_vl", top_k=20))["top_k"] == 20


def test_an_existing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        build(tmp_path)
    assert list(tmp_path.iterdir()) == []
