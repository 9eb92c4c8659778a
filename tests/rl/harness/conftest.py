from __future__ import annotations

import pytest

from legato.rl.tokens import HFTokenizer, load_tokenizer
from tests.conftest import CheckpointFactory


@pytest.fixture(scope="session")
def tokenizer(tiny_checkpoint: CheckpointFactory) -> HFTokenizer:
    """The tiny checkpoints' tokenizer, the same for every family."""
    return load_tokenizer(str(tiny_checkpoint("qwen3_vl")))
