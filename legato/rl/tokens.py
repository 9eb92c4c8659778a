"""The model's tokenizer, from its ``tokenizer.json``: no torch, no transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import httpx
import tokenizers
from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from legato.errors import ConfigError


class HFTokenizer:
    """A :class:`~legato.rl.types.Tokenizer` over the ``tokenizers`` library.

    Text is data: whatever spells a *special* token in it (``<|im_end|>`` typed by a user or shown
    on a screen) becomes ordinary text tokens, so nobody can forge a turn. Added tokens that are
    not special, such as ``<tool_call>``, are part of a model's written language and match as one
    id. Safe to share between threads.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        tokenizer.encode_special_tokens = True
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._added = {token.content: token_id for token_id, token in added.items()}

    def __len__(self) -> int:
        """Number of ids, added tokens included; a model's output layer is often padded past it."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        """Ids of plain text, nothing added before or after.

        Half a surrogate pair, which JSON can carry and UTF-8 cannot, counts as U+FFFD.
        """
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return list(self._tokenizer.encode(whole, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of ``ids``; ids past the vocabulary (padding of the output layer) give nothing."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=skip_special))

    def special(self, token: str) -> int | None:
        """Id of an added token (``<|im_end|>``, ``<think>``), ``None`` if the model has none."""
        return self._added.get(token)


def load_tokenizer(name: str) -> HFTokenizer:
    """Load the tokenizer of a checkpoint directory, of a ``tokenizer.json`` or of a hub id.

    Raises :class:`~legato.errors.ConfigError` if there is none or if it cannot be read.
    """
    path = checkpoint_file(name, "tokenizer.json")
    if path is None:
        raise ConfigError(
            f"no tokenizer.json for {name!r}: give a checkpoint directory that holds one, or a "
            f"model id of the Hugging Face hub (offline: one that is already in its cache; "
            f"HF_HUB_OFFLINE=1 skips the attempts to reach it)"
        )
    try:
        return HFTokenizer(tokenizers.Tokenizer.from_file(str(path)))
    except Exception as error:  # the library raises bare Exception for a malformed file
        raise ConfigError(f"{path} is not a tokenizer this version can read: {error}") from error


def checkpoint_file(name: str, filename: str) -> Path | None:
    """Path of one file of a checkpoint: in a directory, beside a file, or of a hub id.

    A hub id (``owner/name``) is looked up in the local cache first and fetched when it is not
    there. ``None`` if the file does not exist or cannot be fetched.
    """
    local = Path(name).expanduser()
    if local.exists():
        path = (local if local.is_dir() else local.parent) / filename
        return path if path.is_file() else None
    if name.count("/") != 1:
        return None
    try:
        cached = try_to_load_from_cache(name, filename)
        return Path(cached if isinstance(cached, str) else hf_hub_download(name, filename))
    except (HFValidationError, httpx.HTTPError, OSError):
        return None
