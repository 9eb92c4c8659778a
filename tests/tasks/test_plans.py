"""What the seeds draw: no variant asks for what is there already."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from legato.tasks import list_tasks, load_task
from legato.tasks.planned import planned
from legato.tasks.web.task import WebTask
from tests.tasks.solved import web_evidence

NAMES = [info.name for info in list_tasks() if info.suite != "buttons"]
ONCE_ALIKE = {"expense_sheet": (5730, 15077, 20799)}
"""Seeds that once asked for an amount that stood there."""


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_is_asked_for_is_there_at_the_start(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the judge itself, and whether or not it would count."""
    module = importlib.import_module(f"legato.tasks.{load_task(name).suite}.{name}_judge")
    monkeypatch.setattr(module, "settled", list)
    judge: Callable[[dict[str, Any]], list[dict[str, Any]]] = module.judge
    for seed in (*range(8, 150), *ONCE_ALIKE.get(name, ())):
        task = load_task(name, seed)
        if isinstance(task, WebTask):
            evidence = web_evidence(task, [])
        else:
            with planned(task) as machine:
                task.settle(machine)
                evidence = task.evidence(machine)
        checks = judge(evidence)
        assert not [c for c in checks if c["kind"] == "progress" and c["passed"]], seed
        assert not [c for c in checks if c["kind"] == "guard" and not c["passed"]], seed


def test_an_amount_is_always_to_become_another() -> None:
    for seed in range(3_000):
        changes = load_task("expense_sheet", seed).changes  # type: ignore[attr-defined]
        assert not [c for c in changes if c.action == "amount" and c.new == c.line.amount], seed
