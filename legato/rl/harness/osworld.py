"""OSWorld's own Qwen agents as a harness: their prompt, history and parsing, our policy's call.

Use it to compare with results on OSWorld's own loop. For training the other harnesses are better:
these agents show the last few screenshots only, so the prompt's prefix breaks at every step, and
every step becomes a row of its own.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from legato.desktop.actions import AnyAction
from legato.desktop.contract import Screenshot
from legato.desktop.osworld.environment import Environment, default_path
from legato.desktop.osworld.process import WorkerProcess
from legato.desktop.osworld.pyautogui_code import read_code
from legato.errors import ActionError, ConfigError, LegatoError
from legato.rl.harness.chatml import ChatML
from legato.rl.harness.options import read_options
from legato.rl.types import Generation, ImagePart, Message, Prompt, Text, Tokenizer

_PROGRAM = "legato.desktop.osworld.agent"
_CALL_S = 90.0


@dataclass(frozen=True)
class OSWorldAgentOptions:
    agent: Literal["qwen3_vl", "qwen2_5_vl"] = "qwen3_vl"
    """``Qwen3VLAgent`` or ``Qwen25VLAgent``."""
    osworld_path: str | None = None
    """The checkout with the agents; ``--osworld`` by default."""
    environment: str | None = None
    """Where ``osworld-setup`` has put OSWorld's environment, if not at its usual place."""
    history_n: int = Field(default=4, ge=0)
    """Earlier steps that the agent shows with their screenshot."""


class OSWorldAgents:
    """Implements :class:`~legato.rl.types.Harness`; one process runs the agents of all rollouts."""

    name = "osworld"

    def __init__(self, *, tokenizer: Tokenizer | None, image_max: int, **options: Any) -> None:
        """Raises ``ConfigError``. The agents choose which screenshots stay: not ``image_max``."""
        self._options = read_options(OSWorldAgentOptions, self.name, options)
        if self._options.osworld_path is None:
            raise ConfigError("harness osworld needs a checkout: --osworld, or its osworld_path")
        self._checkout = Path(self._options.osworld_path).expanduser().absolute()
        if not self._checkout.is_dir():
            raise ConfigError(f"there is no OSWorld checkout {self._checkout}")
        where = self._options.environment
        self._environment = Environment(Path(where).expanduser() if where else default_path())
        self._environment.check()
        self._chatml = None if tokenizer is None else ChatML(tokenizer)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._process: WorkerProcess | None = None

    def start(self, instruction: str, screen: tuple[int, int]) -> AgentConversation:
        number = str(next(self._numbers))
        options = {"history_n": self._options.history_n}
        self.call(
            "start", id=number, agent=self._options.agent, instruction=instruction, options=options
        )
        conversation = AgentConversation(self, self._chatml, number)
        weakref.finalize(conversation, self._drop, number)
        return conversation

    def view(self, screenshot: Screenshot) -> Screenshot:
        return screenshot  # the agents resize it themselves

    def render_reply(self, action: AnyAction, screen: tuple[int, int]) -> str:
        raise ActionError("OSWorld's agents only read replies: take qwen3_vl for reference rows")

    def call(self, op: str, blob: bytes = b"", **arguments: Any) -> tuple[Any, bytes]:
        """Ask the agents' process. Raises ``ActionError`` for a reply that an agent fell over."""
        with self._lock:
            if self._process is None:
                self._process = WorkerProcess(
                    self._environment, self._checkout, "agents", program=_PROGRAM
                )
                weakref.finalize(self, self._process.kill)
            return self._process.call(op, arguments, _CALL_S, blob)

    def close(self) -> None:
        """End the agents' process now; it ends with the harness anyway."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def _drop(self, number: str) -> None:
        try:
            self.call("drop", id=number)
        except LegatoError:
            return  # the process is gone, and the agent with it


class AgentConversation:
    """A :class:`~legato.rl.types.Conversation` led by one of OSWorld's agents."""

    def __init__(self, harness: OSWorldAgents, chatml: ChatML | None, number: str) -> None:
        self._harness, self._chatml, self._number = harness, chatml, number
        self._screenshot: Screenshot | None = None
        self._prompt: Prompt | None = None
        self._images: dict[str, Screenshot] = {}
        self._pointer: tuple[int, int] | None = None

    def observe(self, screenshot: Screenshot, note: str | None = None) -> None:
        """Add what the agent sees next. OSWorld's agents have no words for a ``note``."""
        self._screenshot, self._prompt = screenshot, None

    def prompt(self) -> Prompt:
        if self._prompt is None:
            if self._screenshot is None:
                raise RuntimeError("observe() a screenshot first: every prompt shows a new one")
            messages, png = self._harness.call("prompt", self._screenshot.png, id=self._number)
            newest = Screenshot.from_png(png, self._screenshot.taken_at)
            self._images[newest.sha256] = newest
            self._prompt = self._read(messages)
        return self._prompt

    def reply(self, generation: Generation) -> list[AnyAction]:
        self.prompt()
        self._screenshot = self._prompt = None
        code, _ = self._harness.call("reply", id=self._number, text=generation.text)
        actions: list[AnyAction] = []
        for line in code:
            actions += read_code(line, self._pointer)
            points = actions[-1].points() if actions else []
            self._pointer = points[-1] if points else self._pointer
        if not actions:
            raise ActionError("OSWorld's agent found no action in the reply")
        return actions

    def _read(self, messages: list[dict[str, Any]]) -> Prompt:
        read = tuple(
            Message(
                message["role"],
                tuple(
                    ImagePart(self._images[part["image"]])
                    if "image" in part
                    else Text(part["text"])
                    for part in message["parts"]
                ),
            )
            for message in messages
        )
        shown = {image.sha256 for message in read for image in message.images}
        self._images = {name: image for name, image in self._images.items() if name in shown}
        token_ids = None
        if self._chatml is not None:
            ids = [number for message in read for number in self._chatml.message(message)]
            token_ids = (*ids, *self._chatml.opening(""))
        return Prompt(read, token_ids)
