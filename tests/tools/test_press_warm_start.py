"""The lessons of the demo's warm start do not know the answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tools import press_warm_start
from tools.press_warm_start import JITTER, SCREEN, lessons

PLACES = {"press": {"A": 20, "B": 56, "C": 92, "D": 128}, "find": {"left": 26, "right": 108}}


def row(asked: str, x: int) -> dict[str, Any]:
    said = [{"type": "image"}, {"type": "text", "text": f"\npress {asked}"}]
    return {
        "prompt": [{"role": "user", "content": said}],
        "images": ["images/0.png"],
        "action": {"action_type": "click", "x": x, "y": 60},
        "step": 0,
    }


def taught(task: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """What each lesson's instruction asks for, what its reply presses, and where, in pixels."""
    rows = [row("OK" if task == "find" else name, x) for name, x in PLACES[task].items()]
    monkeypatch.setattr(press_warm_start, "reference_rows", lambda _: rows)
    found = []
    for lesson in lessons(task, seed=3):
        asked = lesson["prompt"][-1]["content"][-1]["text"].split()[-1]
        verb, named, pressed, x, _ = lesson["completion"][0]["content"][0]["text"].split()
        assert (verb, named) == ("click", asked)
        found.append((asked, pressed, int(x) * SCREEN[0] // 100))
    return found


@pytest.mark.parametrize("task", PLACES)
def test_what_is_pressed_is_drawn_whatever_is_asked_for(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = taught(task, monkeypatch)
    names = list(PLACES[task])
    for asked in {asked for asked, _, _ in found}:
        pressed = Counter(name for said, name, _ in found if said == asked)
        total = sum(pressed.values())
        assert total > 1000
        for name in names:
            assert pressed[name] / total == pytest.approx(1 / len(names), abs=0.05)


@pytest.mark.parametrize("task", PLACES)
def test_the_click_is_where_the_reply_says(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for _, pressed, x in taught(task, monkeypatch):
        assert abs(x - PLACES[task][pressed]) <= JITTER + 2
    assert len({x for _, _, x in taught(task, monkeypatch)}) > 3 * len(PLACES[task])
