"""The vocabulary of a rollout: what flows between policy, harness, driver, record and trainer.

The path of one policy step::

    Conversation.prompt -> Prompt -> Policy.generate -> Generation -> Conversation.reply -> actions

Token-in, token-out: :attr:`Generation.token_ids` are the ids the server sampled, and the next
:attr:`Prompt.token_ids` starts with the last prompt's ids followed by exactly those ids for as
long as the prefix holds. Nothing is re-tokenised from text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, Protocol

from legato.desktop.actions import AnyAction
from legato.desktop.contract import Ready, Score, Screenshot
from legato.errors import FailureKind

# --- what is asked of the policy ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sampling:
    """The distribution to sample from. Sent whole with every request and kept per step.

    A server's own ``generation_config`` must not decide any of these.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps the whole vocabulary."""
    max_tokens: int = 512
    """Longest reply of one step, in tokens."""
    banned_ids: tuple[int, ...] = ()
    """Never sampled (vision placeholders of an untrained model); logprobs are those of the
    distribution without them."""
    seed: int | None = None

    def with_seed(self, key: str) -> Sampling:
        """The same distribution with a 31-bit seed derived from ``key``."""
        digest = hashlib.sha256(key.encode()).digest()
        return replace(self, seed=int.from_bytes(digest[:4], "big") >> 1)

    def to_json(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "max_tokens": self.max_tokens,
            "banned_ids": list(self.banned_ids),
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """A screenshot inside a message, as the model is to see it (after any resize)."""

    image: Screenshot


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. Its JSON form, with images by hash, is what the record stores."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[Text | ImagePart, ...]

    @property
    def images(self) -> list[Screenshot]:
        return [p.image for p in self.parts if isinstance(p, ImagePart)]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to the policy, in both forms a server may take."""

    messages: tuple[Message, ...]
    token_ids: tuple[int, ...] | None
    """Ids with ONE placeholder per image; ``None`` when there is no tokenizer on this side."""
    prefix_len: int = 0
    """How many leading ids equal the previous step's ids + reply (0: first step, or broken)."""
    template: Mapping[str, Any] = field(default_factory=dict)
    """What a server's own chat template must be told to render the same prompt (chat only)."""

    @property
    def images(self) -> list[Screenshot]:
        """Every image of the prompt, in the order of its placeholders."""
        return [image for message in self.messages for image in message.images]


# --- what the policy answers -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Generation:
    """One reply of the policy with everything a trainer needs to trust it."""

    text: str
    """The reply decoded, special tokens removed."""
    token_ids: tuple[int, ...] | None
    """Sampled ids, the end-of-turn id included when it was sampled; ``None``: not reported."""
    logprobs: tuple[float, ...] | None
    """One natural-log probability per token, of exactly the requested distribution."""
    prompt_ids: tuple[int, ...] | None
    """The prompt as the server ran it, with ONE placeholder per image."""
    image_tokens: tuple[int, ...] | None
    """How many placeholder tokens each image of the prompt took; ``None``: not reported."""
    version: str
    """Policy version that sampled the first token."""
    finish_reason: Literal["stop", "length", "abort"]
    reasoning: str | None = None
    tokens: tuple[str, ...] | None = None
    """Token strings, only when the server gives no ids."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    """Prompt tokens found in the prefix cache; ``None``: not reported."""
    seconds: float = 0.0
    """Wall-clock seconds of the call, retries and queueing on this side included."""
    attempts: int = 1
    version_last: str | None = None
    """Policy version that sampled the last token, when it differs from ``version``."""


class Policy(Protocol):
    """Whatever answers prompts: an HTTP model server, verl's client, TRL's vLLM."""

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        """Sample one reply.

        Cancelling the call aborts the request on the server. Raises
        :class:`~legato.errors.PolicyFailure` once its own retries are spent.
        """
        ...

    async def aclose(self) -> None: ...


# --- how screenshots become prompts and replies become actions ---------------------------------


class Conversation(Protocol):
    """One rollout's history under a harness. Not shared, not thread-safe."""

    def observe(self, screenshot: Screenshot, note: str | None = None) -> None:
        """Add what the agent sees next; ``note`` tells it of a rejected action."""
        ...

    def prompt(self) -> Prompt: ...

    def reply(self, generation: Generation) -> list[AnyAction]:
        """Add the reply to the history and read its actions, in screen pixels.

        Raises :class:`~legato.errors.ActionError` if it holds none that can be understood; the
        reply stays in the history all the same.
        """
        ...


class Harness(Protocol):
    """A prompt format and an action grammar."""

    name: str

    def start(self, instruction: str, screen: tuple[int, int]) -> Conversation:
        """Begin a rollout on a screen of (width, height) pixels. Pure CPU, a few milliseconds."""
        ...

    def view(self, screenshot: Screenshot) -> Screenshot:
        """The screenshot as the model is to see it; the same object if it is so already.

        ``observe`` calls it too. Resizing costs milliseconds and needs raw pixels, so a driver may
        call it on the desktop's thread, before sealing, and observe the result.
        """
        ...

    def render_reply(self, action: AnyAction, screen: tuple[int, int]) -> str:
        """A well-formed reply that asks for ``action``, as supervised rows need it.

        Read back, it gives the action within the rounding of the coordinate grid. Raises
        :class:`~legato.errors.ActionError` if the grammar has no words for it.
        """
        ...


class Tokenizer(Protocol):
    """The little that token-in, token-out needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; the spelling of a special token in it is treated as text."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str: ...

    def special(self, token: str) -> int | None:
        """Id of a special token such as ``<|im_end|>``, ``None`` if there is none."""
        ...


# --- outcome -----------------------------------------------------------------------------------


class Status(StrEnum):
    """How an attempt ended. Values are those of the ``legato.rollout/v0`` record."""

    OK = "ok"
    """Finished by the agent or by the step limit; graded."""
    TRUNCATED = "truncated"
    """A wall-clock or context limit was hit; graded."""
    CANCELLED = "cancelled"
    """Its group closed first; stopped at once, not graded."""
    SKIPPED = "skipped"
    """Its group was full before it started."""
    SURPLUS = "surplus"
    """Finished and graded after its group had closed; not part of the group."""
    RETRIED = "retried"
    """The desktop failed; the same attempt ran again on another one."""
    ERROR = "error"
    """Infrastructure failed for good; no verdict."""


VERDICTS = frozenset({Status.OK, Status.TRUNCATED})
"""The statuses whose reward counts in the group."""


@dataclass(slots=True)
class Timing:
    """Seconds by phase, summed over the rollout."""

    reset_s: float = 0.0
    wait_after_reset_s: float = 0.0
    model_s: float = 0.0
    act_s: float = 0.0
    wait_s: float = 0.0
    obs_s: float = 0.0
    wait_before_eval_s: float = 0.0
    eval_s: float = 0.0
    total_s: float = 0.0


@dataclass(slots=True)
class ActionTaken:
    """One action of a step and what it cost."""

    action: AnyAction | None
    """``None`` when the reply held no readable action; ``error`` then says why."""
    act_s: float = 0.0
    wait_s: float = 0.0
    """Waited after the input, whatever for: the ready signal or a fixed wait."""
    ready_s: float = 0.0
    """The share of ``wait_s`` that the ready signal took (0 under a fixed wait)."""
    obs_s: float = 0.0
    ready_reason: str = "none"
    error: str | None = None


@dataclass(slots=True)
class Step:
    """One policy call and its actions."""

    prompt: Prompt
    generation: Generation
    sampling: Sampling
    actions: list[ActionTaken] = field(default_factory=list)


@dataclass(slots=True)
class Rollout:
    """One attempt from reset to verdict."""

    rollout_id: str
    """Unique for each try: a retried attempt has several, told apart by ``attempt_try``."""
    task_id: str
    domain: str
    group_id: str
    attempt: int
    """Number of the attempt within its group, from 0; final once and only once."""
    attempt_try: int
    """0 for the first try on a desktop, 1 for the first retry, ..."""
    policy_model: str
    policy_version: str
    status: Status
    reward: float | None = None
    """Only a verdict; ``None`` without one."""
    score: Score | None = None
    error_kind: FailureKind | None = None
    error: str | None = None
    timing: Timing = field(default_factory=Timing)
    steps: list[Step] = field(default_factory=list)
    ready_after_reset: Ready | None = None
    final_screenshot: Screenshot | None = None
    """What the last action led to; no prompt contains it."""
    truncated_by: Literal["time", "context"] | None = None
    harness: str = ""
    seed: int | None = None
    started_at: float = 0.0
    """Unix time in seconds."""
    desktop_slot: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
