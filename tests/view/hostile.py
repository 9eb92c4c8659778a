"""A run in which everything that can be text tries to be code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from legato.desktop.actions import Action
from legato.desktop.contract import Check, Score
from legato.rl.manifest import Manifest
from legato.rl.record import RunDir
from legato.rl.types import ActionTaken, Message, Rollout, Status, Text
from tests.rl.factories import make_rollout

PAYLOADS = [
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    '"><svg onload=window.pwned=1>',
    "');window.pwned=1;//",
    "\\');window.pwned=1;//",
    "</title></textarea><iframe srcdoc='<script>parent.pwned=1</script>'>",
    "javascript:window.pwned=1",
    "${window.pwned=1}{{constructor.constructor('window.pwned=1')()}}",
    "\u2028window.pwned=1\u2029",
    "__proto__",
    "../../../etc/passwd",
    "%2e%2e/?status=error#/run/1",
    "a/b c&d=e#f%g",
    "constructor",
]


def hostile_rollout(payload: str, number: int, *, lost: bool) -> Rollout:
    """One rollout with ``payload`` wherever a task, a page or a model may put a string."""
    rollout = make_rollout(
        steps=2,
        group_id=payload,
        attempt=number,
        task_id=payload,
        status=Status.ERROR if lost else Status.OK,
        error_kind="env" if lost else None,
        error=payload if lost else None,
        extra={payload: payload, "__proto__": {"pwned": 1}, "nested": [payload]},
        versions=(payload,),
    )
    rollout.harness = rollout.policy_model = payload
    if not lost:
        rollout.score = Score(0.5, (Check(payload, "progress", True, payload, 0.5),), payload)
    for step in rollout.steps:
        step.generation = replace(step.generation, text=payload, reasoning=payload)  # type: ignore[misc]
        said = Message("user", (Text(payload), *step.prompt.messages[-1].parts))
        step.prompt = replace(step.prompt, messages=(*step.prompt.messages[:-1], said))  # type: ignore[misc]
        step.actions[:] = [
            ActionTaken(Action(action_type="type", text=payload)),
            ActionTaken(Action(action_type="key", key=payload[:100]), error=payload),
            ActionTaken(None, error=payload),
        ]
    return rollout


def make_hostile_run(path: Path) -> list[Rollout]:
    manifest = Manifest(
        tasks=[{"task_id": p, "instruction": p, "config": {p: p}} for p in PAYLOADS],
        settings={"policy": {p: p for p in PAYLOADS}},
        session={"desktops": 2},
    )
    made: list[Rollout] = []
    with RunDir.create_or_resume(path, manifest) as run:
        for payload in PAYLOADS:
            for number, lost in enumerate((False, False, True)):
                made.append(hostile_rollout(payload, number, lost=lost))
                run.append(made[-1])
    return made
