"""Key names: what agents write, in canonical form and as X keysyms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.desktop.keys import ALIASES, KEYSYMS, MODIFIERS, canonical_key, keysym, parse_chord
from legato.errors import ActionError


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("ctrl+shift+Tab", ("Control_L", "Shift_L", "Tab")),
        ("CTRL + a", ("Control_L", "a")),
        ("ctrl++", ("Control_L", "+")),
        ("+", ("+",)),
        ("enter", ("Return",)),
        ("\n", ("Return",)),
        (" ", (" ",)),
        ("é", ("é",)),
        ("pgdn", ("Page_Down",)),
        ("f12", ("F12",)),
        ("A", ("A",)),
    ],
)
def test_chords(written: str, canonical: tuple[str, ...]) -> None:
    assert parse_chord(written) == canonical


@pytest.mark.parametrize(
    "written", ["hyper+q", "++", "ctrl+", "+a", "a++b", "", "ctrl+nope", "\x00"]
)
def test_unknown_names_are_the_agents_error(written: str) -> None:
    with pytest.raises(ActionError):
        parse_chord(written)


def test_every_alias_leads_to_a_key() -> None:
    for alias, name in ALIASES.items():
        assert alias == alias.lower()
        assert keysym(canonical_key(alias)) == keysym(name)
    assert set(KEYSYMS) >= MODIFIERS


def test_keysym_numbers() -> None:
    assert keysym("a") == 0x61
    assert keysym("é") == 0xE9
    assert keysym("€") == 0x010020AC
    assert keysym("F1") == 0xFFBE
    with pytest.raises(ActionError):
        keysym("enter")


@given(st.text(max_size=20))
def test_any_text_is_a_chord_or_an_action_error(text: str) -> None:
    try:
        names = parse_chord(text)
    except ActionError:
        return
    assert names
    for name in names:
        keysym(name)
