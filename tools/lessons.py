"""Conversations in which a desktop agent replies with well-formed actions chosen at random.

They are rendered by the product's own harness and tokenizer, ids for ids what a policy server is
sent. The actions depend neither on the instruction nor on the screen, so there is nothing in them
about how to solve a task. Given the same random generator they are always the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from legato.desktop import actions as a
from legato.desktop.contract import DesktopOptions, Screenshot, Task
from legato.desktop.fake import fake_tasks, make_desktop
from legato.errors import ActionError
from legato.rl.tokens import HFTokenizer
from legato.rl.types import Generation, Harness
from legato.tasks import list_tasks, load_task, parse_tasks

SCREEN = (1280, 720)
SPOILED = 0.03
"""Share of the replies that are noise: seen in the history, with the note that follows, and not
learned. A model that slips once must not be lost for the rest of the conversation."""

WORDS = (
    *("apple", "blue", "draft", "hello", "notes", "meeting", "report", "monday", "garden", "river"),
    *("Anna", "Paris", "yes", "done.txt", "final", "budget", "paper", "green", "total", "Oslo"),
)
KEYS = (
    *("ctrl+s", "ctrl+a", "ctrl+c", "ctrl+v", "ctrl+z", "Tab", "shift+Tab", "Return", "Escape"),
    *("BackSpace", "Delete", "space", "Up", "Down", "Left", "Right", "Home", "End"),
)
SHARES = {
    "click": 0.56,
    "type": 0.1,
    "key": 0.1,
    "done": 0.08,
    "double_click": 0.05,
    "scroll": 0.04,
    "drag": 0.04,
    "wait": 0.03,
}


def random_action(rng: random.Random) -> a.AnyAction:
    """An action on a screen of ``SCREEN`` pixels, its kind by ``SHARES``, the rest uniform."""
    (kind,) = rng.choices(list(SHARES), list(SHARES.values()))
    x, y, to_x, to_y = (rng.randrange(side) for side in 2 * SCREEN)
    match kind:
        case "type":
            return a.Type(text=rng.choice([*WORDS, str(rng.randrange(100)), str(rng.randrange(9))]))
        case "key":
            return a.Key(key=rng.choice(KEYS))
        case "done":
            return a.Done()
        case "double_click":
            return a.DoubleClick(x=x, y=y)
        case "scroll":
            amount = rng.randint(1, 5)
            return a.Scroll(x=x, y=y, direction=rng.choice(("up", "down")), amount=amount)
        case "drag":
            return a.Drag(x=x, y=y, to_x=to_x, to_y=to_y)
        case "wait":
            return a.Wait(seconds=rng.choice((0.5, 1.0)))
    return a.Click(x=x, y=y)


# --- where to say it ---------------------------------------------------------------------------


def instructions(rng: random.Random) -> list[str]:
    """Those of the seeded tasks, of the fake desktop's tasks, and a few words."""
    kinds = rng.choices(list_tasks(), k=180)
    seeded = [load_task(kind.name, rng.randrange(10**6), suite=kind.suite) for kind in kinds]
    words = [" ".join(rng.choices(WORDS, k=rng.randint(0, 12))) for _ in range(40)]
    return [*(task.instruction for task in (*seeded, *_drawn(120, rng))), *words]


def screens(harness: Harness, rng: random.Random, count: int = 64) -> list[Screenshot]:
    """Screenshots as the model sees them: half are fake desktops in use, half are noise."""
    seen = []
    desktop = make_desktop(DesktopOptions(width=SCREEN[0], height=SCREEN[1]), slot=0)
    try:
        for task in _drawn(count // 2, rng):
            desktop.reset(task)
            for _ in range(rng.randrange(4)):
                desktop.act(random_action(rng))
            seen.append(harness.view(desktop.observe()).seal())
    finally:
        desktop.close()
    while len(seen) < count:
        seen.append(harness.view(_noise(rng)).seal())
    return seen


def _drawn(count: int, rng: random.Random) -> list[Task]:
    return parse_tasks(fake_tasks(count, seed=rng.randrange(10**6)), backend="fake")


def _noise(rng: random.Random) -> Screenshot:
    """Squares of random colours, from grains to a patchwork."""
    side = rng.choice((4, 20, 80, 240))
    rows, columns = (-(-pixels // side) for pixels in reversed(SCREEN))
    colours = np.frombuffer(rng.randbytes(rows * columns * 3), np.uint8).reshape(rows, columns, 3)
    squares = np.repeat(np.repeat(colours, side, axis=0), side, axis=1)
    return Screenshot(np.ascontiguousarray(squares[: SCREEN[1], : SCREEN[0]]), taken_at=0.0)


@dataclass(frozen=True, slots=True)
class Lesson:
    """A conversation to learn the replies of."""

    ids: tuple[int, ...]
    """One placeholder per image."""
    images: tuple[str, ...]
    """Hashes of the screenshots, in the order of their placeholders."""
    replies: tuple[tuple[int, int], ...]
    """Begin and end of every reply in ``ids`` that is to be learned."""


def make_lesson(
    harness: Harness,
    tokenizer: HFTokenizer,
    instruction: str,
    seen: Sequence[Screenshot],
    turns: int,
    rng: random.Random,
) -> Lesson:
    """Talk through ``turns`` turns (at least 1) as a rollout does, replying at random."""
    end = tokenizer.special("<|im_end|>")
    assert end is not None
    conversation = harness.start(instruction, SCREEN)
    note: str | None = None
    replies: list[tuple[int, int]] = []
    for _ in range(turns):
        conversation.observe(rng.choice(seen), note)
        prompt = conversation.prompt()
        assert prompt.token_ids is not None
        sampled = [*tokenizer.encode(harness.render_reply(random_action(rng), SCREEN)), end]
        at = len(prompt.token_ids)
        if rng.random() < SPOILED:
            sampled = _slip(sampled, rng)
        else:
            replies.append((at, at + len(sampled)))
        ids = (*prompt.token_ids, *sampled)
        try:
            conversation.reply(_generation(tokenizer, sampled, end))
            note = None
        except ActionError as error:
            note = str(error)
    return Lesson(ids, tuple(image.sha256 for image in prompt.images), tuple(replies))


def _slip(reply: list[int], rng: random.Random) -> list[int]:
    """A piece of the reply is lost, or replaced by other letters."""
    at = rng.randrange(len(reply))
    letters = [rng.randrange(256) for _ in range(rng.randint(0, 3))]
    return [*reply[:at], *letters, *reply[at + rng.randint(1, 3) :]] or reply[-1:]


def _generation(tokenizer: HFTokenizer, sampled: Sequence[int], end: int) -> Generation:
    return Generation(
        text=tokenizer.decode(sampled),
        token_ids=tuple(sampled),
        logprobs=None,
        prompt_ids=None,
        image_tokens=None,
        version="",
        finish_reason="stop" if sampled[-1] == end else "length",
    )
