"""A stage on which a model that knows nothing earns rewards of every size, the same every time.

The harness ``dice`` reads any reply as a click whose place is drawn from the reply's text; the
desktop is the fake one, and its verdict says how far to the right the last click was. So rewards
vary, depend on nothing but the sampled text, and need neither X nor a trained model.
"""

from __future__ import annotations

import hashlib
from typing import Any

from legato.desktop.actions import AnyAction, Click
from legato.desktop.contract import ActResult, Desktop, DesktopOptions, Score, Task
from legato.desktop.fake.desktop import FakeDesktop
from legato.desktop.fake.faults import next_life, read_options
from legato.rl.config import DesktopConfig
from legato.rl.harness import registry
from legato.rl.harness.chat import ChatConversation, Point, Reading, Size
from legato.rl.harness.compact import Compact
from legato.rl.types import ImagePart, Message, Text

SIDE = 128


class Dice(Compact):
    name = "dice"

    def read(self, reply: str, screen: Size, pointer: Point | None) -> Reading:
        drawn = hashlib.sha256(reply.encode()).digest()
        x, y = (int.from_bytes(drawn[i : i + 4], "big") % side for i, side in enumerate(screen))
        return Reading((Click(x=x, y=y),))


class _InWords(ChatConversation):
    def _user(self, index: int) -> Message:
        message = super()._user(index)
        parts = [Text("[a screen]") if isinstance(p, ImagePart) else p for p in message.parts]
        return Message(message.role, tuple(parts))


class Words(Dice):
    """Describes the screen in words, as it were: its prompts hold no image."""

    name = "words"

    def start(self, instruction: str, screen: Size) -> ChatConversation:
        return _InWords(self, instruction, screen)


class FarRight(FakeDesktop):
    """Its verdict: how far to the right the last click was, from 0 to 1."""

    _x = 0

    def reset(self, task: Task) -> None:
        super().reset(task)
        self._x = 0

    def act(self, action: AnyAction) -> ActResult:
        if isinstance(action, Click):
            self._x = action.x
        return super().act(action)

    def evaluate(self) -> Score:
        super().evaluate()
        return Score(round(self._x / self._options.width, 1))


def make_desktop(options: DesktopOptions, slot: int) -> Desktop:
    return FarRight(options, read_options(options.extra), slot, next_life(options, slot))


def set_up() -> None:
    """Let this process know the stage: harness ``dice``, and every backend is the one above."""
    registry._BUILT_IN["dice"] = Dice
    DesktopConfig.factory = lambda self: make_desktop  # type: ignore[method-assign]


def settings(server: str, output_dir: str, tasks: str, **changes: Any) -> dict[str, Any]:
    """Fields of a ``LegatoGRPOConfig`` that trains on this stage, on a CPU."""
    return {
        "output_dir": output_dir,
        "tasks": tasks,
        "vllm_server_base_url": server,
        "weight_sync": "file",
        "desktop": {"backend": "fake", "width": SIDE, "height": SIDE},
        "harness": {"name": "dice", "options": {"width": SIDE, "height": SIDE}},
        "desktops": 4,
        "max_turns": 3,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "max_completion_length": 10,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "max_steps": 2,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "probe": False,
        **changes,
    }
