"""The harnesses of the Qwen-VL families, compatible with OSWorld's Qwen agents.

==============  =========================  ====================================================
``qwen3_5``     XML-like calls             grid 0-999; reasoning on or off; screenshots after the
                                           first come as tool responses
``qwen3_vl``    JSON calls                 grid 0-999
``qwen2_5_vl``  JSON calls                 pixels of the image the model sees, which is resized
                                           here so that the server's processor leaves it as it is
==============  =========================  ====================================================

Prompts equal the checkpoint's own chat template, id for id. On later turns that holds as long as
the template itself is append-only. For ``qwen3_5`` it is: to its template everything after the
first turn is one run of tool calls, whose reasoning it keeps. Reasoning that a ``qwen3_vl`` model
writes is kept too. Templates that strip old reasoning would break the prefix at every step, and
train on tokens in a context they were not sampled in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from legato.desktop.actions import AnyAction
from legato.desktop.contract import Screenshot
from legato.errors import ActionError, ConfigError
from legato.rl.harness.chat import ChatHarness, Point, Reading, Size
from legato.rl.harness.computer_use import Space, read_arguments, tool, write_arguments
from legato.rl.harness.options import read_options
from legato.rl.harness.tool_calls import (
    JSON_CALLS,
    XML_CALLS,
    CallGrammar,
    json_frame,
    xml_frame,
)
from legato.rl.harness.view import resize
from legato.rl.images import smart_resize
from legato.rl.types import ImagePart, Text, Tokenizer

ROLE = """\
You work on a computer desktop for the user. Each turn shows you the screen as it is now. Find \
the next step towards the task and carry it out.

# Reply

First one line that starts with "Action:" and says the step in a few words, then the tool call. \
If more steps need no new look at the screen, their calls may follow in the same reply. When the \
task is complete or cannot be done, call terminate."""

GRID_NOTE = (
    "Coordinates are a grid over the whole screen, whatever its resolution: "
    "from [0, 0] at the top left to [999, 999] at the bottom right."
)

Pixels = Annotated[int, Field(ge=1)]

_IN_WORDS = {
    "click": "click the target",
    "double_click": "double-click the target",
    "triple_click": "triple-click the target",
    "right_click": "right-click the target",
    "middle_click": "middle-click the target",
    "move": "move the pointer to the target",
    "drag": "drag from one point to the other",
    "scroll": "scroll",
    "type": "type the text",
    "key": "press the keys",
    "wait": "wait",
    "done": "end the task, it is complete",
    "fail": "end the task, it cannot be done",
    "answer": "answer the user",
}


class QwenHarness(ChatHarness):
    """What the three have in common: ``computer_use`` calls after an ``Action:`` line."""

    grammar: CallGrammar
    hold_modifiers = False

    def space(self, screen: Size) -> Space:
        return Space.grid(screen)

    def system(self, screen: Size) -> str:
        return f"{ROLE}\n\n{json_frame(tool(GRID_NOTE))}"

    def read(self, reply: str, screen: Size, pointer: Point | None) -> Reading:
        space, actions = self.space(screen), list[AnyAction]()
        try:
            for arguments in self.grammar.read(reply):
                new = read_arguments(arguments, space, pointer, hold_modifiers=self.hold_modifiers)
                actions += new
                pointer = next((a.points()[-1] for a in reversed(new) if a.points()), pointer)
        except ActionError as error:
            where = "A tool call after those performed was left out" if actions else "No action"
            return Reading(tuple(actions), f"{where}: {error}")
        if not actions:
            return Reading((), "the reply holds no <tool_call>...</tool_call>")
        return Reading(tuple(actions))

    def render_reply(self, action: AnyAction, screen: Size) -> str:
        """See :meth:`ChatHarness.render_reply`; a drag reads back as a move and the drag."""
        calls = write_arguments(action, self.space(screen))
        written = "\n".join(self.grammar.write(arguments) for arguments in calls)
        return f"Action: {_IN_WORDS[action.action_type]}.\n{written}"


@dataclass(frozen=True)
class GridOptions:
    max_pixels: Pixels | None = None
    """Screenshots of a larger area are scaled down to it; by default the server decides."""


class GridHarness(QwenHarness):
    """The families whose coordinates do not depend on the size of the image."""

    options: GridOptions

    def view(self, screenshot: Screenshot) -> Screenshot:
        width, height = screenshot.width, screenshot.height
        most = self.options.max_pixels
        if most is None or width * height <= most:
            return screenshot
        rows, columns = smart_resize(height, width, 32, 1, most)
        return resize(screenshot, (columns, rows))


class Qwen3VL(GridHarness):
    name = "qwen3_vl"
    grammar = JSON_CALLS

    def __init__(self, *, tokenizer: Tokenizer | None, image_max: int, **options: Any) -> None:
        super().__init__(tokenizer=tokenizer, image_max=image_max)
        self.options = read_options(GridOptions, self.name, options)


@dataclass(frozen=True)
class Qwen35Options(GridOptions):
    thinking: bool = False
    """Whether the model reasons before it acts."""


class Qwen35(GridHarness):
    name = "qwen3_5"
    grammar = XML_CALLS
    hold_modifiers = True

    def __init__(self, *, tokenizer: Tokenizer | None, image_max: int, **options: Any) -> None:
        super().__init__(tokenizer=tokenizer, image_max=image_max)
        self.options = read_options(Qwen35Options, self.name, options)
        self.thinking = self.options.thinking
        self.template = {"enable_thinking": self.thinking}
        self.prefill = "<think>\n" if self.thinking else "<think>\n\n</think>\n\n"

    def system(self, screen: Size) -> str:
        return f"{xml_frame(tool(GRID_NOTE))}\n\n{ROLE}"

    def later(self, parts: Sequence[Text | ImagePart]) -> Sequence[Text | ImagePart]:
        return [Text("<tool_response>\n"), *parts, Text("\n</tool_response>")]

    def render_reply(self, action: AnyAction, screen: Size) -> str:
        reply = super().render_reply(action, screen)
        return f"\n</think>\n\n{reply}" if self.thinking else reply


@dataclass(frozen=True)
class Qwen25VLOptions:
    """Area bounds of the checkpoint's image processor, in pixels; the defaults are Qwen's."""

    min_pixels: Pixels = 3136
    max_pixels: Pixels = 12_845_056


class Qwen25VL(QwenHarness):
    name = "qwen2_5_vl"
    grammar = JSON_CALLS
    factor = 28
    """Patches of 14 pixels, merged 2 by 2."""

    def __init__(self, *, tokenizer: Tokenizer | None, image_max: int, **options: Any) -> None:
        super().__init__(tokenizer=tokenizer, image_max=image_max)
        self.options = read_options(Qwen25VLOptions, self.name, options)

    def system(self, screen: Size) -> str:
        width, height = self._seen(screen)
        note = f"Coordinates are pixels of the screenshot, which is {width} wide and {height} high."
        return f"{ROLE}\n\n{json_frame(tool(note))}"

    def space(self, screen: Size) -> Space:
        return Space.image(screen, self._seen(screen))

    def view(self, screenshot: Screenshot) -> Screenshot:
        return resize(screenshot, self._seen((screenshot.width, screenshot.height)))

    def _seen(self, screen: Size) -> Size:
        bounds = self.options.min_pixels, self.options.max_pixels
        try:
            height, width = smart_resize(screen[1], screen[0], self.factor, *bounds)
        except ValueError as error:
            raise ConfigError(f"{self.name} cannot show this screen: {error}") from None
        return width, height
