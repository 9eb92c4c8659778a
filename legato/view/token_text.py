"""Token ids as text, one string per token, for people to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from legato.errors import ConfigError
from legato.rl.tokens import load_tokenizer
from legato.rl.types import Tokenizer

TORN = "\ufffd"
LONGEST_CHARACTER = 4
"""Bytes of a UTF-8 character, so at most as many tokens of a byte-level vocabulary."""


class TokenText:
    """Spells ids with a model's tokenizer, special tokens included."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, str] = {}

    def spell(self, ids: Sequence[int]) -> list[str]:
        """One string per id.

        A character whose bytes are spread over several tokens stands at the last of them, after
        empty strings; bytes that make no character stay U+FFFD.
        """
        texts: list[str] = []
        open_ids: list[int] = []
        for token_id in ids:
            one = self._one(token_id)
            if not open_ids and TORN not in one:
                texts.append(one)
                continue
            open_ids.append(token_id)
            text = self._tokenizer.decode(open_ids, skip_special=False)
            if TORN not in text or len(open_ids) == LONGEST_CHARACTER:
                texts += [*[""] * (len(open_ids) - 1), text]
                open_ids = []
        texts += [self._one(token_id) for token_id in open_ids]
        return texts

    def _one(self, token_id: int) -> str:
        if token_id not in self._known:
            self._known[token_id] = self._tokenizer.decode([token_id], skip_special=False)
        return self._known[token_id]


def find_token_text(
    name: str | None, settings: Mapping[str, Any], sessions: Sequence[Mapping[str, Any]]
) -> TokenText | None:
    """The spelling of a run's ids: by ``name``, else by what the run says of itself.

    A tokenizer that the run names but that is not here gives ``None``: ids are shown instead.
    Raises :class:`ConfigError` if ``name`` was given and is none.
    """
    if name is not None:
        return TokenText(load_tokenizer(name))
    named = [session.get("tokenizer") for session in reversed(sessions)]
    model = settings.get("policy")
    named.append(model.get("model") if isinstance(model, Mapping) else None)
    for candidate in dict.fromkeys(n for n in named if isinstance(n, str)):
        try:
            return TokenText(load_tokenizer(candidate))
        except ConfigError:
            continue
    return None
