"""Rows of a ten-step rollout that went through a real vLLM with a screenshot in every turn."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a script

from legato.desktop.fake import fake_tasks
from legato.rl import (
    DesktopConfig,
    HarnessConfig,
    PolicyConfig,
    SamplingConfig,
    collect,
    export_steps,
)
from tools.tiny_vlm import cached_checkpoint
from tools.vllm_server import VllmServer

STEPS = 10


def exported(run: Path, *, merged: bool) -> list[dict[str, Any]]:
    out = run / "rows.jsonl"
    export_steps(run, out, merged=merged)
    return [json.loads(line) for line in out.read_text().splitlines()]


def trained(rows: list[dict[str, Any]]) -> list[tuple[int, float, float]]:
    """(token, logprob, advantage) of everything that is trained on, in order."""
    found = []
    for row in sorted(rows, key=lambda r: (r["attempt"], r.get("step", 0))):
        ids, logprobs = row["response_token_ids"], row["response_logprobs"]
        masks = row.get("loss_mask", [1] * len(ids))
        found += [
            (token, logprob, row["advantage"])
            for token, logprob, mask in zip(ids, logprobs, masks, strict=True)
            if mask
        ]
    return found


def main() -> None:
    with (
        VllmServer(cached_checkpoint("qwen3_vl")) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        run = Path(folder) / "run"
        collect(
            fake_tasks(1, seed=0),
            PolicyConfig(server.url, server.model, tokenizer=str(server.checkpoint)),
            out=run,
            desktops=2,
            group=2,
            max_steps=STEPS,
            # a grammar this model does not speak: no reply ends the episode early
            harness=HarnessConfig("qwen3_vl"),
            sampling=SamplingConfig(max_tokens=16),
            desktop=DesktopConfig(backend="fake"),
        )
        merged, stepwise = exported(run, merged=True), exported(run, merged=False)
    images = {len(row["images"]) for row in merged}
    same = trained(merged) == trained(stepwise)
    print(f"rows: merged, per ten-step rollout: {len(merged) / 2:g} (bar 1)")
    print(f"rows: per step, per ten-step rollout: {len(stepwise) / 2:g} (bar {STEPS})")
    print(f"rows: screenshots in a merged row: {max(images)} (bar {STEPS})")
    print(f"rows: same trained tokens, logprobs and advantages: {same} (bar True)")


if __name__ == "__main__":
    main()
