"""The command line of the trainer: what is wrong is said in one line, before anything starts."""

from __future__ import annotations

import sys

import pytest

from legato_trl.train import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --config-name: a recipe of yours, or one of buttons, desktop_apps,"),
        (["--config-name", "laptop"], "recipe: Missing mandatory value: model"),
        (
            ["--config-name=laptop", "model=m", "trainer.num_generations=1"],
            "num_generations must be at least 2",
        ),
        (["--config-name=laptop", "model=/no/such/place"], "model: no checkpoint at"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["train", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    errors = capsys.readouterr().err.splitlines()
    assert end.value.code == 2
    assert len(errors) == 1
    assert errors[0].startswith(f"error: {said}")
