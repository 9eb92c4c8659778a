"""What a TRL step costs beside the model: idle desktops, and tokens of the forward pass.

Four local desktops and a group of 8 under a policy that takes 0.3 s for every reply.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a script

from legato.desktop.actions import Click
from legato.rl.config import DesktopConfig, HarnessConfig, RolloutConfig, SamplingConfig
from legato.rl.figures import economy
from legato.rl.harness import make_harness
from legato.rl.images import ImageSpec
from legato.rl.policy import PolicyConfig
from legato.rl.samples import Vision, samples_from
from legato.rl.settings import Settings
from legato.rl.tokens import load_tokenizer
from legato.rl.types import Generation, Prompt, Sampling, Timing
from legato.tasks.suites import suite_tasks
from legato_trl.rollouts import Rollouts
from tools.tiny_vlm import cached_checkpoint

DESKTOPS, GROUP, TURNS, LATENCY = 4, 8, 6, 0.3
SCREEN = (640, 480)
HARNESS = HarnessConfig("compact", options={"width": 320, "height": 256})
PHASES = [f.name for f in fields(Timing) if f.name != "total_s"]


class Slow:
    """Answers after a fixed time: clicks beside the dialog, so that every turn is used."""

    version = "0"

    def __init__(self) -> None:
        speak = make_harness(HARNESS.name, tokenizer=None, **HARNESS.options)
        clicks = (Click(x=x, y=400) for x in range(300, 600, 10))
        self._replies = itertools.cycle([speak.render_reply(click, SCREEN) for click in clicks])

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        await asyncio.sleep(LATENCY)
        text = next(self._replies)
        ids = tuple(text.encode())
        return Generation(
            text=text,
            token_ids=ids,
            logprobs=(-1.0,) * len(ids),
            prompt_ids=prompt.token_ids,
            image_tokens=None,
            version=self.version,
            finish_reason="stop",
            seconds=LATENCY,
        )

    async def aclose(self) -> None:
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=4)
    groups: int = parser.parse_args().groups
    checkpoint = str(cached_checkpoint())
    tokenizer = load_tokenizer(checkpoint)
    settings = Settings(
        PolicyConfig("http://nobody/v1", "slow"),
        SamplingConfig(),
        DesktopConfig(backend="local", width=SCREEN[0], height=SCREEN[1]),
        HARNESS,
        RolloutConfig(desktops=DESKTOPS, group=GROUP, max_steps=TURNS),
    )
    tasks = suite_tasks("buttons/press_in_order", "train", groups + 1)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with Rollouts(settings, tokenizer, Sampling(), run, policy=Slow) as rollouts:
            rollouts.run(tasks[:1])  # desktops have booted, as in every step but the first
            started = time.monotonic()
            result = rollouts.run(tasks[1:])
            wall = time.monotonic() - started
    spent = sum(getattr(r.timing, phase) for r in result.rollouts for phase in PHASES)
    idle = 1 - spent / (DESKTOPS * wall)
    count = len(result.rollouts)
    print(f"trl: {count} rollouts of {TURNS} turns on {DESKTOPS} desktops: {wall:.1f} s")
    print(f"trl: desktops idle between rollouts: {idle:.1%} (bar <= 5 %)")
    waiting = sum(r.timing.model_s for r in result.rollouts) / (DESKTOPS * wall)
    print(f"trl: desktops waiting for the policy: {waiting:.1%}")
    placeholder = tokenizer.special("<|image_pad|>")
    assert placeholder is not None
    vision = Vision(placeholder, ImageSpec.load(checkpoint))
    rows = samples_from(result.rollouts, vision=vision)
    told = dict(economy(rows, placeholder))
    shared, stepwise = (
        told["rows/forward_tokens_per_rollout"],
        told["rows/forward_tokens_per_rollout_stepwise"],
    )
    print(f"trl: rows per rollout: {told['rows/per_rollout']:.2f}")
    print(f"trl: rows per rollout, one a step: {told['rows/per_rollout_stepwise']:.2f}")
    print(f"trl: trained tokens per rollout: {told['rows/trained_tokens_per_rollout']:.0f}")
    print(f"trl: forward tokens per rollout: {shared:.0f}")
    print(f"trl: forward tokens per rollout, one row a step: {stepwise:.0f}")
    print(f"trl: fewer forward tokens at {TURNS} steps: {stepwise / shared:.2f} x (bar >= 3 x)")


if __name__ == "__main__":
    main()
