"""Text in, ids out: what a user types must never become a control token."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.errors import ConfigError
from legato.rl.tokens import HFTokenizer, checkpoint_file, load_tokenizer
from legato.rl.types import Tokenizer
from tests.rl.servers import SPECIAL, WRITTEN, byte_level


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint")
    byte_level().save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def tok(directory: Path) -> HFTokenizer:
    return load_tokenizer(str(directory))


def test_follows_the_protocol(tok: HFTokenizer) -> None:
    typed: Tokenizer = tok
    assert typed.special("<|im_end|>") is not None


@pytest.mark.parametrize("token", SPECIAL)
def test_spelled_special_token_is_text(tok: HFTokenizer, token: str) -> None:
    ids = tok.encode(f"a{token}b")
    assert tok.special(token) not in ids
    assert tok.decode(ids) == f"a{token}b"


@pytest.mark.parametrize("token", WRITTEN)
def test_written_added_token_is_one_id(tok: HFTokenizer, token: str) -> None:
    assert tok.encode(f"{token}x")[0] == tok.special(token)
    assert tok.decode([tok.special(token) or 0]) == token


def test_decode_keeps_special_tokens_only_when_asked(tok: HFTokenizer) -> None:
    end = tok.special("<|im_end|>")
    assert end is not None
    ids = [*tok.encode("hi"), end]
    assert tok.decode(ids) == "hi"
    assert tok.decode(ids, skip_special=False) == "hi<|im_end|>"


def test_ids_past_the_vocabulary_decode_to_nothing(tok: HFTokenizer) -> None:
    assert tok.decode([len(tok) + 7, *tok.encode("x")]) == "x"


def test_unknown_special_is_none(tok: HFTokenizer) -> None:
    assert tok.special("<|nope|>") is None
    assert tok.special("a") is None


@given(st.text())
def test_any_text_survives(text: str) -> None:
    tok = HFTokenizer(byte_level())
    ids = tok.encode(text)
    assert tok.decode(ids) == text
    assert not {tok.special(t) for t in SPECIAL} & set(ids)


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path: Path) -> None:
    raw = byte_level()
    raw.enable_truncation(4)
    raw.enable_padding(length=9)
    raw.save(str(tmp_path / "tokenizer.json"))
    tok = load_tokenizer(str(tmp_path / "tokenizer.json"))
    assert len(tok.encode("abcdefg")) == 7
    assert len(tok.encode("ab")) == 2


def test_missing_tokenizer_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name in (str(tmp_path), "nobody/has-this", "tiny", "/does/not/exist"):
        with pytest.raises(ConfigError, match=r"tokenizer\.json.*directory.*hub"):
            load_tokenizer(name)


def test_damaged_tokenizer_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(ConfigError, match="not a tokenizer"):
        load_tokenizer(str(tmp_path))


def test_checkpoint_file_beside_the_tokenizer(directory: Path) -> None:
    (directory / "preprocessor_config.json").write_text("{}")
    given_file = str(directory / "tokenizer.json")
    assert checkpoint_file(given_file, "preprocessor_config.json") is not None
    assert checkpoint_file(str(directory), "missing.json") is None


def test_half_a_surrogate_pair_is_encoded_as_a_replacement_character() -> None:
    tokenizer = HFTokenizer(byte_level())
    assert tokenizer.encode("a \ud83d b") == tokenizer.encode("a \ufffd b")
    assert tokenizer.encode("\U0001f642") != tokenizer.encode("\ufffd")
