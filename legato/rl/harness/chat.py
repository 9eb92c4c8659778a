"""A conversation of screenshots and replies, and what tells one harness from another.

The prompt only ever grows: system, then one user turn for each screenshot with the policy's reply
after it. Ids already sent are never rendered anew, so the server's prefix cache holds and training
rows can be shared. There is one exception. When the screenshots outnumber ``image_max``, the
oldest half of them leaves at once; those turns are rendered again without their image, replies
keep their exact ids, and that one prompt has ``prefix_len`` 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from legato.desktop.actions import AnyAction
from legato.desktop.contract import Screenshot
from legato.errors import ActionError, ConfigError
from legato.rl.harness.chatml import ChatML
from legato.rl.types import Generation, ImagePart, Message, Prompt, Text, Tokenizer

OMITTED = "[earlier screenshot, no longer shown]"

Size = tuple[int, int]
"""(width, height) in pixels."""
Point = tuple[int, int]
"""(x, y) in screen pixels."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply asks for: its actions up to the first part that cannot be read."""

    actions: tuple[AnyAction, ...]
    problem: str | None = None
    """Why reading stopped, in words for the policy; set whenever there is no action."""


class ChatHarness(ABC):
    """A :class:`~legato.rl.types.Harness` over ChatML; subclasses give prompt and grammar."""

    name: str
    prefill: str = ""
    """What the prompt already holds of the assistant's turn."""
    template: Mapping[str, Any] = MappingProxyType({})
    """What a server's own chat template must be told to render the same prompt."""

    def __init__(self, *, tokenizer: Tokenizer | None, image_max: int) -> None:
        """Without a ``tokenizer`` prompts carry messages only. Raises ``ConfigError``."""
        if image_max < 1:
            raise ConfigError(f"image_max must be at least 1, got {image_max}")
        self.image_max = image_max
        self.chatml = None if tokenizer is None else ChatML(tokenizer)

    def start(self, instruction: str, screen: Size) -> ChatConversation:
        """Begin a rollout. Raises ``ConfigError`` for a screen the model cannot be shown."""
        return ChatConversation(self, instruction, screen)

    @abstractmethod
    def system(self, screen: Size) -> str:
        """The system prompt, without whitespace at either end."""

    def view(self, screenshot: Screenshot) -> Screenshot:
        """The screenshot as the model is to see it; the same object if it is so already.

        Resizing costs milliseconds: a driver may call this where the pixels are still at hand and
        give the result to ``observe``, which then has nothing left to do.
        """
        return screenshot

    def task(self, instruction: str) -> str:
        """How the first turn states the task, below the screenshot."""
        return f"Task: {instruction}"

    def later(self, parts: Sequence[Text | ImagePart]) -> Sequence[Text | ImagePart]:
        """Dress the content of a user turn after the first."""
        return parts

    @abstractmethod
    def read(self, reply: str, screen: Size, pointer: Point | None) -> Reading:
        """Read a reply's actions, in screen pixels. Never raises.

        ``pointer`` is where the policy's own actions left the pointer, ``None`` if nowhere yet.
        """

    @abstractmethod
    def render_reply(self, action: AnyAction, screen: Size) -> str:
        """The well-formed reply that asks for ``action``: the inverse of reading, within the
        rounding of the coordinate grid. Raises ``ActionError`` if the grammar has no words for it.
        """


@dataclass(slots=True)
class _Exchange:
    """One user turn and, once there is one, the reply to it."""

    screenshot: Screenshot | None
    """``None`` once it has been left out."""
    note: str | None
    reply: Message | None = None
    reply_ids: Sequence[int] = ()


class ChatConversation:
    """A :class:`~legato.rl.types.Conversation` under a :class:`ChatHarness`."""

    def __init__(self, harness: ChatHarness, instruction: str, screen: Size) -> None:
        self._harness = harness
        self._chatml = harness.chatml
        self._screen = screen
        self._task = harness.task(_clean(instruction).strip())
        self._system = Message("system", (Text(harness.system(screen)),))
        self._exchanges: list[_Exchange] = []
        self._pointer: Point | None = None
        self._unread: str | None = None
        self._settled: list[int] = self._render_settled()
        self._prefix_len = 0

    def observe(self, screenshot: Screenshot, note: str | None = None) -> None:
        """Add what the agent sees next; replaces a screenshot that was never replied to."""
        if self._exchanges and self._exchanges[-1].reply is None:
            self._exchanges.pop()
        notes = [_clean(text) for text in (self._unread, note) if text]
        view = self._harness.view(screenshot).seal()
        self._exchanges.append(_Exchange(view, "\n".join(notes) or None))
        shown = [e for e in self._exchanges if e.screenshot is not None]
        if len(shown) > self._harness.image_max:
            for exchange in shown[: (self._harness.image_max + 1) // 2]:
                exchange.screenshot = None
            self._settled = self._render_settled()
            self._prefix_len = 0

    def prompt(self) -> Prompt:
        """The prompt for the screenshot observed last; the same until there is a reply."""
        self._pending()
        token_ids = None
        if self._chatml is not None:
            token_ids = (*self._settled, *self._turn_ids(len(self._exchanges) - 1))
        return Prompt(tuple(self._messages()), token_ids, self._prefix_len, self._harness.template)

    def reply(self, generation: Generation) -> list[AnyAction]:
        """Add the reply and read its actions; see :class:`~legato.rl.types.Conversation`.

        Calls after the first that cannot be read are not performed, and the next turn says so.
        """
        exchange = self._pending()
        text = _clean(generation.text)
        if generation.reasoning and "</think>" not in text:
            text = f"<think>\n{_clean(generation.reasoning)}\n</think>\n\n{text}"
        exchange.reply = Message("assistant", (Text(text),))
        self._prefix_len = 0
        if self._chatml is not None:
            sampled = generation.token_ids
            exchange.reply_ids = (
                self._chatml.text(text.removeprefix(self._harness.prefill))
                if sampled is None
                else sampled
            )
            self._settled += [*self._turn_ids(len(self._exchanges) - 1), *exchange.reply_ids]
            self._prefix_len = 0 if sampled is None else len(self._settled)
        reading = self._read(generation)
        self._unread = reading.problem if reading.actions else None
        if not reading.actions:
            raise ActionError(reading.problem or "the reply holds no action")
        points = [point for action in reading.actions for point in action.points()]
        self._pointer = points[-1] if points else self._pointer
        return list(reading.actions)

    def _read(self, generation: Generation) -> Reading:
        thought, closed, answer = generation.text.partition("</think>")
        if not closed:
            # A reasoning parser on the server takes the tags along with the thought.
            raw = generation.token_ids is not None and generation.reasoning is None
            thinking = raw and self._harness.prefill.rstrip().endswith("<think>")
            if thinking or thought.lstrip().startswith("<think>"):
                return Reading((), "the reasoning did not end with </think>, so no action was read")
            answer = thought
        reading = self._harness.read(answer, self._screen, self._pointer)
        if reading.problem and generation.finish_reason == "length":
            return Reading(reading.actions, f"{reading.problem} (the token limit cut it off)")
        return reading

    def _pending(self) -> _Exchange:
        if not self._exchanges or self._exchanges[-1].reply is not None:
            raise RuntimeError("observe() a screenshot first: every prompt shows a new one")
        return self._exchanges[-1]

    def _messages(self) -> list[Message]:
        messages = [self._system]
        for index, exchange in enumerate(self._exchanges):
            messages.append(self._user(index))
            if exchange.reply is not None:
                messages.append(exchange.reply)
        return messages

    def _user(self, index: int) -> Message:
        exchange = self._exchanges[index]
        shown = exchange.screenshot
        parts: list[Text | ImagePart] = [Text(OMITTED) if shown is None else ImagePart(shown)]
        if exchange.note is not None:
            parts.append(Text(f"\nNote: {exchange.note.strip()}"))
        if index == 0:
            return Message("user", (*parts, Text(f"\n{self._task}".rstrip())))
        return Message("user", tuple(self._harness.later(parts)))

    def _turn_ids(self, index: int) -> list[int]:
        """A user turn, from the end of the reply before it to where the next one begins."""
        assert self._chatml is not None
        before = self._chatml.closing(self._exchanges[index - 1].reply_ids) if index else []
        turn = self._chatml.message(self._user(index))
        return [*before, *turn, *self._chatml.opening(self._harness.prefill)]

    def _render_settled(self) -> list[int]:
        """Everything up to and including the last reply."""
        if self._chatml is None:
            return []
        ids = self._chatml.message(self._system)
        for index, exchange in enumerate(self._exchanges):
            if exchange.reply is not None:
                ids += [*self._turn_ids(index), *exchange.reply_ids]
        return ids


def _clean(text: str) -> str:
    """Text that can be encoded as UTF-8: lone surrogates, as JSON may hold, become ``?``."""
    return text.encode("utf-8", "replace").decode("utf-8")
