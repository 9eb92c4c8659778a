"""Run directories as tests write and check them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from legato.rl.manifest import Manifest
from legato.rl.record import (
    RunDir,
    load_request,
    load_screenshot,
    read_records,
)
from legato.rl.schema import StoredRecord
from legato.rl.types import Rollout

BESIDE = Path(__file__).parents[1]

WRITER = """
import sys
from legato.rl.manifest import Manifest
from legato.rl.record import RunDir
from factories import make_rollout

with RunDir.create_or_resume(sys.argv[1], Manifest()) as run:
    attempt = 1 + max((a for _, a in run.finished), default=-1)
    print("ready", flush=True)
    while True:
        run.append(make_rollout(steps=2, attempt=attempt))
        print(attempt, flush=True)
        attempt += 1
"""
"""Appends for ever; to be run in :data:`BESIDE`, with the run directory as its argument."""


def open_run(path: Path, **manifest: Any) -> RunDir:
    return RunDir.create_or_resume(path, Manifest(**manifest))


def written(path: Path, *rollouts: Rollout) -> list[StoredRecord]:
    with open_run(path) as run:
        for rollout in rollouts:
            run.append(rollout)
    return list(read_records(path))


def check_whole(path: Path) -> list[StoredRecord]:
    """Every record readable, referring only to blobs that are there and undamaged."""
    records = list(read_records(path))
    for record in records:
        for step in range(record["n_steps"]):
            load_request(path, record, step, inline_images=True)
        for image in record["images"]:
            load_screenshot(path, image["sha256"])
        if record["final_screenshot"]:
            load_screenshot(path, record["final_screenshot"])
    return records


def partial_files(path: Path) -> list[Path]:
    return [p for p in path.rglob("*") if p.is_file() and ".part" in str(p.relative_to(path))]
