"""A few training steps of verl on real desktops, without a GPU: ``make verl-demo``.

A model of half a million parameters that presses any button, a real vLLM on the CPU, four real
desktops, and verl's own ``main_ppo`` with ``+actor_rollout_ref.rollout.agent=legato`` (which the
recipe ``laptop`` holds).
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))  # so that this runs as a plain script

from tools.press_warm_start import cached_press_warm_start  # noqa: E402
from tools.verl_run import VerlRun  # noqa: E402

LONGEST_S = 900.0
SHOWN = {
    "reward": "legato/reward",
    "turns": "legato/rollout/turns",
    "verdicts": "legato/rollout/verdicts",
    "cancelled": "legato/rollout/cancelled",
    "gradient": "actor/grad_norm",
    "logprob gap": "legato/mismatch/mean",
    "desktops busy": "legato/desktops/utilisation",
}


def line(step: int, metrics: dict[str, Any]) -> str:
    told = [f"{name} {metrics[key]:.2g}" for name, key in SHOWN.items() if key in metrics]
    return f"step {step}: " + (", ".join(told) or f"{len(metrics)} validation figures")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("overrides", nargs="*", help="of the recipe: legato.desktops=8 ...")
    args = parser.parse_args()
    os.chdir(REPO)
    print("Making a tiny model that presses any button (a few minutes, once)", flush=True)
    model = cached_press_warm_start()
    out = Path(time.strftime("runs/verl-demo-%Y%m%d-%H%M%S"))
    overrides = [f"actor_rollout_ref.model.path={model}", *args.overrides]
    with VerlRun("verl/laptop", overrides, out) as run:
        print(f"Training; all that verl says goes to {out / 'output.log'}", flush=True)
        for step, metrics in run.steps(LONGEST_S):
            print(line(step, metrics), flush=True)
        code = run.wait(LONGEST_S)
        if code:
            print(run.tail(), file=sys.stderr)
            return code
    profile = [sys.executable, "-m", "legato.rl", "profile", str(out / "rollouts")]
    print(f"\n$ {shlex.join(['python', *profile[1:]])}", flush=True)
    return subprocess.run(profile, check=False).returncode


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
