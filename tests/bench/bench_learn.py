"""Does it learn? Held-out success before and after GRPO, and the control that must not rise.

    python tests/bench/bench_learn.py [--seeds 0 1 2] [--control 0] [--task press] [--out DIR]

Every seed is a warm start and a run of its own on real desktops with a real server; the control
is the same run with the rewards shuffled inside each group. The curves of all runs, good or bad,
are drawn into one picture. Each run leaves ``learned.json`` in its folder below ``DIR``; one that
is there already is reported as it is, so that seeds may be run one by one.
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
from tools.learn import TITLES, Learned, curve, learn, read_learned  # noqa: E402

RISE = 0.4


def report(learned: Learned) -> None:
    name = f"learn: {learned.task}, seed {learned.seed}"
    name += ", rewards shuffled" if learned.shuffled else ""
    print(f"{name}, held-out success before: {learned.before} (bar 0.1 to 0.5)")
    print(f"{name}, held-out success after: {learned.after} (bar none)")
    low, high = rise_interval(learned)
    bar = "does not rise: the lower end is below 0" if learned.shuffled else f">= {RISE}"
    if learned.task == "find":
        bar = "none: it is beyond what is asked of this model"
    print(f"{name}, rise: {learned.rise:+.3f} [{low:+.3f}, {high:+.3f}] (bar {bar})")
    print(f"{name}, rollouts: {learned.rollouts[-1]} (bar none)")
    print(f"{name}, minutes, warm start and all: {learned.seconds / 60:.1f} (bar <= 40)")


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
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--task", choices=sorted(TITLES), default="press")
    parser.add_argument("--control", type=int, nargs="*", default=[0], help="seeds of the control")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out: Path = args.out or REPO / "runs" / time.strftime("bench-learn-%Y%m%d-%H%M%S")
    runs = [(seed, False) for seed in args.seeds] + [(seed, True) for seed in args.control]
    curves = {}
    for seed, shuffled in runs:
        kind = f"{args.task} seed {seed}{' shuffled' if shuffled else ''}"
        folder = out / kind.replace(" ", "-")
        learned = read_learned(folder) or learn(
            seed,
            folder,
            task=args.task,
            shuffled=shuffled,
        )
        report(learned)
        curves[kind] = curve(learned)
        draw_png(
            out / "curves.png",
            f"{TITLES[args.task]}: training rollouts",
            curves,
            along="rollouts",
            up="success",
        )
    print(f"learn: curves of all runs: {out / 'curves.png'}")


if __name__ == "__main__":
    main()
