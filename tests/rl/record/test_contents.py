"""What a record holds, and at which cost."""

from __future__ import annotations

import base64
import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from legato.rl.record import (
    load_request,
)
from legato.rl.schema import message_json, prompt_ids
from legato.rl.types import Rollout, Status, Timing
from tests.rl.factories import frame, make_rollout
from tests.rl.record.written import (
    written,
)


def test_every_field_is_read_back(path: Path) -> None:
    rollout = make_rollout(
        steps=3,
        breaks={2},
        versions=("41", "42"),
        attempt=5,
        attempt_try=1,
        final_screenshot=frame(77),
        desktop_slot=3,
        truncated_by="time",
        status=Status.TRUNCATED,
        reward=0.5,
    )
    (record,) = written(path, rollout)
    assert record["schema"] == "legato.rollout/v0"
    for name in ("rollout_id", "task_id", "domain", "group_id", "attempt", "attempt_try"):
        assert record[name] == getattr(rollout, name)  # type: ignore[literal-required]
    assert record["policy"] == {"model": "tiny", "version": "41", "versions": ["41", "42"]}
    assert (record["status"], record["reward"], record["error"]) == ("truncated", 0.5, None)
    assert record["truncated_by"] == "time"
    assert record["n_steps"] == len(record["steps"]) == 3
    assert record["timing"] == {
        name: getattr(rollout.timing, name) for name in Timing.__dataclass_fields__
    }
    assert record["score"] == {
        "output": "1/1",
        "checks": [
            {"name": "saved", "kind": "progress", "passed": True, **_rest_of_check(rollout)}
        ],
    }
    assert record["final_screenshot"] == frame(77).sha256
    assert record["desktop_slot"] == 3
    assert record["ready_after_reset"] == {"reason": "idle", "seconds": 0.2}
    assert record["session"] == 0
    assert abs(record["recorded_at"] - time.time()) < 60

    for step, stored, ids in zip(rollout.steps, record["steps"], prompt_ids(record), strict=True):
        reply = step.generation
        assert ids == list(reply.prompt_ids or ())
        assert stored["response"] == {
            "content": reply.text,
            "reasoning": "because",
            "token_ids": list(reply.token_ids or ()),
            "logprobs": list(reply.logprobs or ()),
            "tokens": None,
            "finish_reason": "stop",
        }
        assert stored["model"] == {
            "seconds": reply.seconds,
            "attempts": 1,
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            "cached_tokens": reply.cached_tokens,
        }
        assert stored["sampling"] == step.sampling.to_json()
        assert stored["policy_version"] == reply.version
        assert stored["image_tokens"] == list(reply.image_tokens or ())
        (action,) = stored["actions"]
        assert action["action"] == {"action_type": "click", "x": reply_x(stored), "y": 2}
        assert (action["act_s"], action["wait_s"], action["ready_s"]) == (0.001, 0.5, 0.4)
        assert (action["obs_s"], action["ready_reason"], action["error"]) == (0.002, "idle", None)
        shown = [record["images"][i] for i in stored["images"]]
        assert [i["sha256"] for i in shown] == [i.sha256 for i in step.prompt.images]
        assert all((i["width"], i["height"]) == (32, 32) for i in shown)


def _rest_of_check(rollout: Rollout) -> dict[str, Any]:
    assert rollout.score is not None
    (check,) = rollout.score.checks
    known = {"name", "kind", "passed"}
    return {f: getattr(check, f) for f in check.__dataclass_fields__ if f not in known}


def reply_x(step: Any) -> int:
    return int(step["sampling"]["seed"])


def test_timing_has_the_nine_phases() -> None:
    phases = "reset wait_after_reset model act wait obs wait_before_eval eval total"
    assert set(Timing.__dataclass_fields__) == {f"{phase}_s" for phase in phases.split()}


def test_an_error_keeps_its_kind_and_message(path: Path) -> None:
    rollout = make_rollout(status=Status.ERROR, error_kind="env", error="desktop 3 hung")
    (record,) = written(path, rollout)
    assert record["error"] == {"kind": "env", "message": "desktop 3 hung"}
    assert record["reward"] is None


def test_prompt_ids_cost_only_what_is_new(path: Path) -> None:
    (record,) = written(path, make_rollout(steps=10))
    total = sum(len(s["prompt"]["new_ids"]) for s in record["steps"] if s["prompt"])
    *_, last = prompt_ids(record)
    assert last is not None
    sampled = sum(len(s["response"]["token_ids"] or ()) for s in record["steps"][:-1])
    assert total == len(last) - sampled


def test_a_request_is_rebuilt_exactly(path: Path) -> None:
    rollout = make_rollout(steps=3)
    (record,) = written(path, rollout)
    for number, step in enumerate(rollout.steps):
        assert load_request(path, record, number) == [
            message_json(message) for message in step.prompt.messages
        ]
    (part,) = [
        part
        for part in load_request(path, record, 0, inline_images=True)[1]["content"]
        if part["type"] == "image_url"
    ]
    url = part["image_url"]["url"]
    assert url.startswith("data:image/png;base64,")
    assert base64.b64decode(url.split(",")[1]) == rollout.steps[0].prompt.images[0].png


def test_messages_and_images_are_stored_once(path: Path) -> None:
    frames = [frame(k) for k in range(4)]
    written(path, *(make_rollout(steps=4, attempt=a, frames=frames) for a in range(3)))
    assert len(list((path / "images").glob("*.png"))) == 4
    system = [p for p in (path / "messages").glob("*.json") if b'"system"' in p.read_bytes()]
    assert len(system) == 1


def test_text_that_utf8_cannot_carry_survives(path: Path) -> None:
    rollout = make_rollout(steps=1)
    generation = rollout.steps[0].generation
    rollout.steps[0].generation = replace(generation, text="half \ud83d of a pair, 中文, \x00")
    (record,) = written(path, rollout)
    assert record["steps"][0]["response"]["content"] == "half \ud83d of a pair, 中文, \x00"


def test_a_number_json_cannot_carry_costs_no_record(path: Path) -> None:
    rollout = make_rollout(
        steps=1, extra={"loss": math.inf, "norm": np.float32("nan"), "where": Path("x")}
    )
    (record,) = written(path, rollout)
    assert record["extra"] == {"loss": None, "norm": None, "where": "x"}
    assert "Infinity" not in (path / "rollouts.jsonl").read_text()


def test_fifteen_steps_cost_their_new_screenshots_only(path: Path) -> None:
    frames = [frame(k, 320, 180) for k in range(16)]
    rollout = make_rollout(steps=15, frames=frames, final_screenshot=frames[15])
    (record,) = written(path, rollout)
    pngs = sum(len(f.png) for f in frames[:15])
    replies = sum(len(json.dumps(s["response"])) for s in record["steps"])
    on_disk = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    assert on_disk - replies <= 1.1 * pngs + 15 * 8 * 1024
