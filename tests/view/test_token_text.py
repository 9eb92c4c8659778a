from __future__ import annotations

import pytest

from legato.errors import ConfigError
from legato.rl.tokens import HFTokenizer
from legato.view.token_text import TokenText, find_token_text
from tests.rl.servers import byte_level

TOKENIZER = HFTokenizer(byte_level())


def spell(text: str) -> list[str]:
    return TokenText(TOKENIZER).spell(TOKENIZER.encode(text))


def test_ascii_is_one_string_per_token() -> None:
    assert spell("click 1") == list("click 1")


@pytest.mark.parametrize("text", ["é", "–", "漢", "😀", "a😀b", "é漢😀"])
def test_a_character_of_several_tokens_stands_at_the_last_of_them(text: str) -> None:
    texts = spell(text)
    assert len(texts) == len(text.encode())
    assert "".join(texts) == text


def test_bytes_that_make_no_character_keep_one_string_per_token() -> None:
    ids = TOKENIZER.encode("😀")[:2]
    texts = TokenText(TOKENIZER).spell(ids)
    assert len(texts) == 2
    assert "�" in texts[0]


def test_a_torn_character_does_not_swallow_what_follows() -> None:
    ids = [*TOKENIZER.encode("😀")[:1], *TOKENIZER.encode("abcdef")]
    texts = TokenText(TOKENIZER).spell(ids)
    assert len(texts) == len(ids)
    assert "".join(texts).endswith("abcdef")


def test_special_tokens_are_spelled() -> None:
    end = TOKENIZER.special("<|im_end|>")
    assert end is not None
    assert TokenText(TOKENIZER).spell([end]) == ["<|im_end|>"]


def test_a_tokenizer_that_the_run_names_but_that_is_not_here_is_none() -> None:
    named = {"policy": {"model": "no-such-model"}}
    assert find_token_text(None, named, [{"tokenizer": "/no/such/folder"}]) is None


def test_a_tokenizer_that_the_user_names_must_be_there() -> None:
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        find_token_text("/no/such/folder", {}, [])
