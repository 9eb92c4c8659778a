"""The warm start through the whole loop: real prompts, a real model server, drawn desktops."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from legato.desktop.fake import fake_tasks
from legato.rl import DesktopConfig, PolicyConfig, SamplingConfig, collect, read_records
from tests.conftest import Vllm


@pytest.mark.vllm
def test_replies_are_actions_of_many_kinds_and_solve_nothing(vllm: Vllm, tmp_path: Path) -> None:
    collect(
        fake_tasks(6, seed=3, kinds=["form", "picker", "settings"]),
        PolicyConfig(vllm.url, vllm.model, tokenizer=str(vllm.checkpoint)),
        out=tmp_path / "run",
        desktops=4,
        group=4,
        max_steps=6,
        seed=1,
        harness="compact",
        sampling=SamplingConfig(max_tokens=24),
        desktop=DesktopConfig(backend="fake"),
    )
    found = list(read_records(tmp_path / "run"))
    first = [step["actions"][0]["action"] for record in found for step in record["steps"]]
    kinds = Counter(action and action["action_type"] for action in first)
    assert len(first) >= 48
    assert kinds[None] <= 0.1 * len(first)
    assert kinds["click"] >= 0.4 * len(first)
    assert {"type", "key", "done"} <= kinds.keys()
    # spread over the screen, not the one place of a collapsed model
    assert len({(a["x"], a["y"]) for a in first if a and a["action_type"] == "click"}) >= 20
    assert max(record["reward"] for record in found) < 1
