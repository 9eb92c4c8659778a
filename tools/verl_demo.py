"""A few training steps of verl on real desktops, without a GPU: ``make verl-demo``.

A model of half a million parameters that presses any button, a real vLLM on the CPU, four real
desktops, and verl's own ``main_ppo`` with ``+actor_rollout_ref.rollout.agent=legato`` (which the
recipe ``laptop`` holds). In the last step two groups exchange their screenshots on the way to the
trainer (:mod:`tools.verl_swapped`): were they not in its forward, nothing would change.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))  # so that this runs as a plain script

from tools.press_warm_start import cached_press_warm_start  # noqa: E402
from tools.verl_run import SWAPPED, VerlRun  # noqa: E402

STEPS = 3
LONGEST_S = 900.0
GAP = "legato/mismatch/mean"
SHOWN = {
    "reward": "legato/reward",
    "turns": "legato/rollout/turns",
    "verdicts": "legato/rollout/verdicts",
    "cancelled": "legato/rollout/cancelled",
    "gradient": "actor/grad_norm",
    "logprob gap": GAP,
    "desktops busy": "legato/desktops/utilisation",
}


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: str
    bar: str
    held: bool

    def __str__(self) -> str:
        return f"{'ok ' if self.held else 'NOT'}  {self.name}: {self.value} (bar {self.bar})"


def line(step: int, metrics: dict[str, Any]) -> str:
    told = [f"{name} {metrics[key]:.2g}" for name, key in SHOWN.items() if key in metrics]
    return f"step {step}: " + (", ".join(told) or f"{len(metrics)} validation figures")


def figures(run: VerlRun, steps: list[dict[str, Any]], seconds: float) -> Iterator[Figure]:
    """``steps`` are the metrics of the training steps, the last with swapped screenshots."""
    honest, swapped = steps[:-1], steps[-1]
    yield Figure("training steps", str(len(honest)), ">= 2", len(honest) >= 2)
    gap = fmean(metrics[GAP] for metrics in honest)
    yield Figure("trainer - server, nats", f"{gap:.1e}", "<= 1e-3", gap <= 1e-3)
    times = swapped[GAP] / gap
    yield Figure("the same, screenshots swapped", f"{times:.0f}x", ">= 10x", times >= 10)
    gradient = max(metrics["actor/grad_norm"] for metrics in honest)
    yield Figure("largest gradient", f"{gradient:.2g}", "> 0", gradient > 0)
    leased = re.findall(r"desktops are closed; leases left: (\d+)", run.output())
    yield Figure(
        "desktops leased at the end", ", ".join(leased) or "not told", "0", leased == ["0"]
    )
    left = run.left()
    yield Figure("processes left", str(len(left)), "0", not left)
    yield Figure("from start to end", f"{seconds / 60:.1f} min", "<= 8 min", seconds <= 480)


def demo(out: Path, overrides: list[str]) -> list[Figure]:
    """Run it into ``out``. Raises ``RuntimeError`` with the end of its output if it fails."""
    print("Making a tiny model that presses any button (a few minutes, once)", flush=True)
    model = cached_press_warm_start()
    chosen = [
        f"actor_rollout_ref.model.path={model}",
        f"trainer.total_training_steps={STEPS}",
        SWAPPED,
        *overrides,
    ]
    trained: list[dict[str, Any]] = []
    started = time.monotonic()
    with VerlRun("verl/laptop", chosen, out) as run:
        print(f"Training; all that verl says goes to {out / 'output.log'}", flush=True)
        print(f"To watch it: python -m legato.rl view --live {out / 'rollouts'}", flush=True)
        for step, metrics in run.steps(LONGEST_S):
            print(line(step, metrics), flush=True)
            if "actor/grad_norm" in metrics:
                trained.append(metrics)
        code = run.wait(LONGEST_S)
    if code or len(trained) < 2:
        raise RuntimeError(f"the run ended with exit code {code}:\n{run.tail()}")
    return list(figures(run, trained, time.monotonic() - started))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("overrides", nargs="*", help="of the recipe: legato.desktops=8 ...")
    args = parser.parse_args()
    os.chdir(REPO)
    out = Path(time.strftime("runs/verl-demo-%Y%m%d-%H%M%S"))
    try:
        found = demo(out, args.overrides)
    except RuntimeError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    print("", *found, sep="\n", flush=True)
    profile = [sys.executable, "-m", "legato.rl", "profile", str(out / "rollouts")]
    print(f"\n$ {shlex.join(['python', *profile[1:]])}", flush=True)
    code = subprocess.run(profile, check=False, timeout=LONGEST_S).returncode
    return code or int(not all(figure.held for figure in found))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
