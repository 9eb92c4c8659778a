from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from legato.errors import ConfigError
from legato.rl.harness import harness_names, make_harness, registry
from legato.rl.harness.compact import Compact
from legato.rl.types import Tokenizer
from tests.rl.harness.talk import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_built_in_harnesses_know_their_names(name: str) -> None:
    assert make_harness(name, tokenizer=None).name == name
    assert name in harness_names()


def test_an_unknown_name_lists_the_known_ones() -> None:
    known = "compact, osworld, qwen2_5_vl, qwen3_5, qwen3_vl"
    with pytest.raises(ConfigError, match=f"'qwen4'.*{known}"):
        make_harness("qwen4", tokenizer=None)


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("compact", {"size": 3}, "no option size.*width=256, height=144, grid=100"),
        ("compact", {"grid": 64}, "grid"),
        ("compact", {"width": 0}, "width"),
        ("compact", {"width": "wide"}, "width"),
        ("qwen3_5", {"thinking": "maybe"}, "thinking"),
        ("qwen3_5", {"budget": 1}, "no option budget.*thinking=False"),
        ("qwen3_vl", {"thinking": True}, "no option thinking.*max_pixels=None"),
        ("qwen3_vl", {"max_pixels": 0}, "max_pixels"),
        ("qwen2_5_vl", {"factor": 28}, "min_pixels=3136"),
    ],
)
def test_wrong_options_say_what_there_is(name: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_harness(name, tokenizer=None, **options)


def test_options_may_be_written_as_on_a_command_line() -> None:
    harness = make_harness("compact", tokenizer=None, width="64", grid="1000")
    assert "999" in harness.system((100, 100))  # type: ignore[attr-defined]
    assert make_harness("qwen3_5", tokenizer=None, thinking="true").prefill.endswith("<think>\n")  # type: ignore[attr-defined]


@pytest.mark.parametrize("image_max", [0, -1])
def test_no_screenshot_at_all_is_refused(image_max: int) -> None:
    with pytest.raises(ConfigError, match="image_max"):
        make_harness("compact", tokenizer=None, image_max=image_max)


class Terse(Compact):
    """A third party's harness."""

    name = "terse"

    def __init__(self, *, tokenizer: Tokenizer | None, image_max: int, loud: bool = False) -> None:
        super().__init__(tokenizer=tokenizer, image_max=image_max)
        self.loud = loud


def test_other_packages_bring_harnesses(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("terse", f"{__name__}:Terse", registry.ENTRY_POINTS)

    def installed(**asked: str) -> EntryPoints:
        return EntryPoints([entry]).select(**asked)

    monkeypatch.setattr(EntryPoint, "load", lambda self: Terse)
    monkeypatch.setattr(registry, "entry_points", installed)
    assert "terse" in harness_names()
    harness = make_harness("terse", tokenizer=None, image_max=3, loud=True)
    assert isinstance(harness, Terse)
    assert (harness.image_max, harness.loud) == (3, True)
    with pytest.raises(ConfigError, match=r"terse.*quiet"):
        make_harness("terse", tokenizer=None, quiet=True)
