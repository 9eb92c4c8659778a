"""One rollout in full, as its page needs it: every prompt, reply, token, action and picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from legato.errors import StorageError
from legato.rl.manifest import Manifest
from legato.rl.schema import IMAGE_SCHEME, StepRecord, StoredRecord
from legato.rl.store import Blobs
from legato.view.gaps import Gap
from legato.view.token_text import TokenText


def rollout_detail(
    run_dir: Path,
    manifest: Manifest,
    record: StoredRecord,
    spelling: TokenText | None = None,
    gaps: list[Gap] | None = None,
) -> dict[str, Any]:
    """The page of one rollout as JSON.

    Messages and pictures appear once, steps name them by number and hash. A message whose file is
    missing or damaged says so in its place.
    """
    stored = Blobs(run_dir / "messages", ".json")
    names = list(dict.fromkeys(name for step in record["steps"] for name in step["request"]))
    number = {name: index for index, name in enumerate(names)}
    by_step = {gap.step: gap for gap in gaps or ()}
    messages = [_message(stored, name) for name in names]
    return {
        **{key: value for key, value in record.items() if key not in ("schema", "steps")},
        "instruction": _instruction(manifest, record["task_id"]) or _first_words(messages),
        "screen": screen_of(manifest),
        "messages": messages,
        "steps": [
            {
                **_step(step, spelling),
                "request": [number[name] for name in step["request"]],
                "gap": by_step.get(index),
            }
            for index, step in enumerate(record["steps"])
        ],
    }


def screen_of(manifest: Manifest) -> tuple[int, int] | None:
    """(width, height) of the screen that action coordinates refer to; ``None``: the picture's."""
    desktop = manifest.settings.get("desktop")
    if not isinstance(desktop, Mapping):
        return None
    width, height = desktop.get("width"), desktop.get("height")
    return (width, height) if isinstance(width, int) and isinstance(height, int) else None


def _instruction(manifest: Manifest, task_id: str) -> str | None:
    for task in manifest.tasks:
        if task.get("task_id") == task_id:
            return str(task.get("instruction", ""))
    return None


def _first_words(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """What the policy was told first: tasks that stream in from a trainer are in no manifest."""
    for message in messages:
        if message["role"] == "user":
            texts = (part["text"].strip() for part in message["parts"] if "text" in part)
            return "\n".join(filter(None, texts)) or None
    return None


def _message(stored: Blobs, name: str) -> dict[str, Any]:
    try:
        message: dict[str, Any] = json.loads(stored.get(name))
    except StorageError as e:
        return {"role": "missing", "parts": [{"text": str(e)}]}
    content = message["content"]
    if isinstance(content, str):
        return {"role": message["role"], "parts": [{"text": content}]}
    parts = [
        {"image": part["image_url"]["url"].removeprefix(IMAGE_SCHEME)}
        if part["type"] == "image_url"
        else {"text": part["text"]}
        for part in content
    ]
    return {"role": message["role"], "parts": parts}


def _step(step: StepRecord, spelling: TokenText | None) -> dict[str, Any]:
    response, prompt = step["response"], step["prompt"]
    ids = response["token_ids"]
    new_ids = None if prompt is None else prompt["new_ids"]
    tokens = response["tokens"]
    if spelling is not None and ids is not None:
        tokens = spelling.spell(ids)
    return {
        "image": step["images"][-1] if step["images"] else None,
        "image_tokens": step["image_tokens"],
        "prefix_len": None if prompt is None else prompt["prefix_len"],
        "prompt_ids": new_ids,
        "prompt_tokens": None if new_ids is None or spelling is None else spelling.spell(new_ids),
        "content": response["content"],
        "reasoning": response["reasoning"],
        "ids": ids,
        "tokens": tokens,
        "logprobs": _rounded(response["logprobs"]),
        "finish_reason": response["finish_reason"],
        "version": step["policy_version"],
        "version_last": step["policy_version_last"],
        "sampling": step["sampling"],
        "model": step["model"],
        "actions": step["actions"],
    }


def _rounded(logprobs: list[float] | None) -> list[float | None] | None:
    """Seven digits say all that a float32 holds, in half the space. ``None``: it was not finite."""
    if logprobs is None:
        return None
    return [p if p is None else float(f"{p:.7g}") for p in logprobs]
