"""ChatML as token ids: how Qwen checkpoints write a conversation.

A message is ``<|im_start|>role\\ncontent<|im_end|>\\n``; an image in it is ONE placeholder between
its brackets, ``<|vision_start|><|image_pad|><|vision_end|>``, which the server widens. Structure
is put in as ids and text as text, so no text can forge structure, whoever wrote it.

Token-in, token-out: a reply enters the next prompt as the very ids that were sampled. Where a
reply did not end its own turn (cut off by the token limit), the end belongs to the next prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from legato.errors import ConfigError
from legato.rl.types import ImagePart, Message, Tokenizer

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>")


class ChatML:
    """Renders messages for one tokenizer. Safe to share between conversations.

    Raises :class:`~legato.errors.ConfigError` if the tokenizer lacks one of the special tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = {token: tokenizer.special(token) for token in SPECIALS}
        missing = [token for token, number in ids.items() if number is None]
        if missing:
            raise ConfigError(
                f"the tokenizer has no {', '.join(missing)}: this harness speaks the chat format "
                "of Qwen-VL checkpoints; name such a checkpoint as tokenizer, or leave it out"
            )
        start, end, *image = (number for number in ids.values() if number is not None)
        self._start, self._end, self._image = start, end, image
        # System prompts and placeholders recur in every rollout.
        self._encode = lru_cache(maxsize=256)(lambda text: tuple(tokenizer.encode(text)))

    def message(self, message: Message) -> list[int]:
        """A whole message, closed."""
        ids = [self._start]
        text = f"{message.role}\n"
        for part in message.parts:
            if isinstance(part, ImagePart):
                ids += self._encode(text)
                ids += self._image
                text = ""
            else:
                text += part.text
        ids += self._encode(text)
        return [*ids, self._end, *self._encode("\n")]

    def opening(self, prefill: str) -> list[int]:
        """The start of the assistant's message, up to where sampling begins."""
        return [self._start, *self._encode(f"assistant\n{prefill}")]

    def text(self, reply: str) -> list[int]:
        """Ids of a reply that is known as text only, its end included."""
        return [*self._encode(reply), self._end]

    def closing(self, reply: Sequence[int]) -> list[int]:
        """What is still missing after the sampled ids before another message may follow."""
        end = () if reply and reply[-1] == self._end else (self._end,)
        return [*end, *self._encode("\n")]
