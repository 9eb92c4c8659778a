"""What the record costs: bytes of a 15-step rollout on disk, and milliseconds to append one.

Rollouts keep their whole history, 15 distinct 1280x720 frames of the fake desktop each, a system
prompt of 3 KB, replies of 150 tokens. Run it on its own: ``bench_record.py [DIR]`` writes below
DIR (default: the system's temporary directory), whose disk decides the milliseconds.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legato.desktop.contract import DesktopOptions, Screenshot
from legato.desktop.fake import fake_tasks, make_desktop, reference_actions
from legato.rl.export import export_steps
from legato.rl.manifest import Manifest
from legato.rl.record import RunDir, read_records
from legato.rl.schema import encode
from legato.rl.types import (
    Generation,
    ImagePart,
    Message,
    Prompt,
    Rollout,
    Sampling,
    Status,
    Step,
    Text,
)

STEPS = 15
ROLLOUTS = 12
REPLY_TOKENS = 150
SYSTEM = "You act on a computer through these tools. " * 70
IMAGE_ID = 151655
IMAGE_TOKENS = 880


@dataclass(frozen=True)
class BenchTask:
    task_id: str
    instruction: str
    config: dict[str, Any]
    domain: str = "fake"


def frames() -> Iterator[Screenshot]:
    """Distinct frames of reference episodes, sealed as the driver hands them out."""
    seen: set[str] = set()
    desktop = make_desktop(DesktopOptions(), 0)
    for seed in range(1000):
        for entry in fake_tasks(20, seed=seed):
            config = entry["config"]
            task = BenchTask(entry["task_id"], config["instruction"], config)
            desktop.reset(task)
            for action in reference_actions(task.task_id, config):
                shot = desktop.observe().seal()
                if shot.sha256 not in seen:
                    seen.add(shot.sha256)
                    yield shot
                desktop.act(action)


def rollout(attempt: int, shots: list[Screenshot], rng: random.Random) -> Rollout:
    history: list[Message] = [Message("system", (Text(SYSTEM),))]
    prompt = [rng.randrange(150_000) for _ in range(800)]
    steps: list[Step] = []
    for shot in shots:
        history = [*history, Message("user", (Text("What is the next action?"), ImagePart(shot)))]
        prompt = [
            *prompt,
            151644,
            872,
            198,
            151652,
            IMAGE_ID,
            151653,
            1,
            2,
            3,
            4,
            5,
            6,
            151645,
            198,
        ]
        reply = [rng.randrange(150_000) for _ in range(REPLY_TOKENS)]
        text = " ".join(map(str, reply))
        images = sum(len(m.images) for m in history)
        steps.append(
            Step(
                Prompt(tuple(history), tuple(prompt)),
                Generation(
                    text=text,
                    token_ids=tuple(reply),
                    logprobs=tuple(-rng.random() for _ in reply),
                    prompt_ids=tuple(prompt),
                    image_tokens=(IMAGE_TOKENS,) * images,
                    version="41",
                    finish_reason="stop",
                ),
                Sampling(),
            )
        )
        history = [*history, Message("assistant", (Text(text),))]
        prompt = [*prompt, *reply]
    return Rollout(
        rollout_id=f"g/{attempt}",
        task_id="t",
        domain="fake",
        group_id="g",
        attempt=attempt,
        attempt_try=0,
        policy_model="m",
        policy_version="41",
        status=Status.OK,
        reward=float(attempt % 2),
        steps=steps,
        final_screenshot=shots[-1],
    )


def bytes_on_disk(path: Path) -> tuple[int, int]:
    """(bytes, bytes in whole disk blocks) of everything below a directory."""
    stats = [p.stat() for p in path.rglob("*") if p.is_file()]
    return sum(s.st_size for s in stats), sum(s.st_blocks * 512 for s in stats)


def replies_on_disk(path: Path) -> int:
    """Bytes that are replies: the response of each step, and the same text as a later message."""
    record = next(iter(read_records(path)))
    responses = sum(
        len(json.dumps(step["response"], separators=(",", ":"))) for step in record["steps"]
    )
    messages = (p.read_bytes() for p in (path / "messages").glob("*.json"))
    return responses + sum(len(m) for m in messages if b'"role":"assistant"' in m)


def main() -> None:
    rng = random.Random(0)
    source = frames()
    rollouts = [
        rollout(attempt, [next(source) for _ in range(STEPS)], rng) for attempt in range(ROLLOUTS)
    ]
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as folder:
        one, many = Path(folder) / "one", Path(folder) / "many"
        with RunDir.create_or_resume(one, Manifest()) as run:
            run.append(rollouts[0])
        pngs = sum(len(step.prompt.images[-1].png) for step in rollouts[0].steps)
        total, blocks = bytes_on_disk(one)
        rest = total - replies_on_disk(one)
        bar = 1.1 * pngs + STEPS * 8 * 1024
        print(f"record: 15 distinct screenshots: {pngs / 1024:.1f} KiB")
        print(
            f"record: 15 steps without replies: {rest / 1024:.1f} KiB "
            f"(bar <= {bar / 1024:.1f} KiB = 1.1 x screenshots + 15 x 8 KiB)"
        )
        print(f"record: 15 steps with replies: {total / 1024:.1f} KiB")
        print(f"record: 15 steps with replies in disk blocks: {blocks / 1024:.1f} KiB")

        encoding: list[float] = []
        appending: list[float] = []
        cpu: list[float] = []
        with RunDir.create_or_resume(many, Manifest()) as run:
            for each in rollouts:
                started = time.perf_counter()
                encode(each)
                encoding.append(time.perf_counter() - started)
                started, used = time.perf_counter(), time.thread_time()
                run.append(each)
                appending.append(time.perf_counter() - started)
                cpu.append(time.thread_time() - used)
        p50 = statistics.median
        print(f"record: append of one rollout p50: {p50(appending) * 1e3:.1f} ms")
        print(f"record: CPU of one append p50: {p50(cpu) * 1e3:.1f} ms")
        print(f"record: CPU of one append per step p50: {p50(cpu) / STEPS * 1e3:.2f} ms")
        print(f"record: making the record of one rollout p50: {p50(encoding) * 1e3:.1f} ms")
        for merged in (False, True):
            started = time.perf_counter()
            export_steps(many, Path(folder) / "train.jsonl", merged=merged)
            each_ms = (time.perf_counter() - started) / ROLLOUTS * 1e3
            kind = "merged" if merged else "per step"
            print(f"record: export {kind}, one rollout: {each_ms:.1f} ms")


if __name__ == "__main__":
    main()
