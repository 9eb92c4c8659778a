"""The whole job once, as a user would type it: ``make collect-demo``.

A tiny vision-language model, made on the spot, is served by a real vLLM and acts on four real
desktops. It has learned to reply with actions, not what they are good for, so it earns next to
nothing; everything else is as in earnest.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))  # so that this runs as a plain script

from tools.vllm_server import VllmServer, run_beside  # noqa: E402
from tools.warm_start import cached_warm_start  # noqa: E402

TASKS = Path("recipes/tasks/demo.json")


def commands(server: VllmServer, run: Path) -> Iterator[list[str]]:
    """The user's commands, in order."""
    policy = ["--policy-url", server.url, "--model", server.model]
    policy += ["--tokenizer", os.path.relpath(server.checkpoint)]
    yield ["probe", *policy]
    yield [
        *("collect", "--tasks", str(TASKS), *policy, "--version", "demo-0", "--out", str(run)),
        *("--desktops", "4", "--group", "4", "--max-inflight", "4", "--harness", "compact"),
        *("--max-steps", "6", "--max-tokens", "32"),
    ]
    yield ["export", str(run), "--out", str(run / "train.jsonl")]
    yield ["export", str(run), "--merged", "--out", str(run / "merged.jsonl")]
    yield ["profile", str(run)]


def main() -> int:
    os.chdir(REPO)
    run = Path(time.strftime("runs/demo-%Y%m%d-%H%M%S"))
    say("Making a tiny Qwen3-VL that replies with actions (a minute or two, once)")
    checkpoint = cached_warm_start()
    say("Starting vLLM on it (up to a minute)")
    with VllmServer(checkpoint) as server:
        for command in commands(server, run):
            say("$ " + shlex.join(["python", "-m", "legato.rl", *command]))
            code = run_beside(server, [sys.executable, "-m", "legato.rl", *command])
            if code:
                print(f"{command[0]} ended with exit code {code}", file=sys.stderr)
                return code
    say("Where to look. The model clicks at random: a reward of 0 is what it deserves.")
    for name, what in {
        "rollouts.jsonl": "one record per attempt",
        "images": "every screenshot the model saw",
        "messages": "every prompt message, stored once",
        "train.jsonl": "one training sample per policy step",
        "merged.jsonl": "the same tokens, steps that share a prefix in one row",
        "summary.json": "the figures above and more",
    }.items():
        print(f"  {run / name}: {what} ({count(run / name)})")
    return 0


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


def count(path: Path) -> str:
    if path.is_dir():
        return f"{sum(1 for _ in path.iterdir())} files"
    return f"{len(path.read_bytes().splitlines())} lines"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
