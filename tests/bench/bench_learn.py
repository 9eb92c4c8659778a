"""Does it learn? Held-out success before and after GRPO, and the control that must not rise.

    python tests/bench/bench_learn.py [--seeds 0 1 2] [--updates 240] [--without-control]

Every seed is a warm start and a run of its own on real desktops with a real server; the control
is the same run with the rewards shuffled inside each group. Each run takes about twice as long as
that of the demo. The curves of all runs, good or bad, are drawn into one picture.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO))  # so that this runs as a script

from tools.curve import draw_png  # noqa: E402
from tools.learn import Learned, curve, learn  # noqa: E402

RISE = 0.4


def report(learned: Learned) -> None:
    name = f"learn: seed {learned.seed}{', rewards shuffled' if learned.shuffled else ''}"
    print(f"{name}, held-out success before: {learned.before}")
    print(f"{name}, held-out success after: {learned.after}")
    low, high = rise_interval(learned)
    bar = "does not rise: the lower end is below 0" if learned.shuffled else f">= {RISE}"
    print(f"{name}, rise: {learned.rise:+.3f} [{low:+.3f}, {high:+.3f}] (bar {bar})")
    print(f"{name}, rollouts: {learned.rollouts[-1]}")
    print(f"{name}, minutes: {learned.seconds / 60:.1f} (bar <= 40)")


def rise_interval(learned: Learned) -> tuple[float, float]:
    """95 % of a difference of two independent shares, by Newcombe's score method."""
    (low_a, high_a), (low_b, high_b) = learned.after.interval, learned.before.interval
    a, b = learned.after.share, learned.before.share
    return (
        a - b - math.hypot(a - low_a, high_b - b),
        a - b + math.hypot(high_a - a, b - low_b),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=240, help="two for every 32 rollouts")
    parser.add_argument("--without-control", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out: Path = args.out or REPO / "runs" / time.strftime("bench-learn-%Y%m%d-%H%M%S")
    curves = {}
    for shuffled in (False,) if args.without_control else (False, True):
        for seed in args.seeds:
            kind = f"seed {seed}{' shuffled' if shuffled else ''}"
            learned = learn(
                seed,
                out / kind.replace(" ", "-"),
                shuffled=shuffled,
                overrides=(f"trainer.max_steps={args.updates}",),
            )
            report(learned)
            curves[kind] = curve(learned)
            draw_png(
                out / "curves.png",
                "press the named button: training rollouts",
                curves,
                along="rollouts",
                up="success",
            )
    print(f"learn: curves of all runs: {out / 'curves.png'}")


if __name__ == "__main__":
    main()
