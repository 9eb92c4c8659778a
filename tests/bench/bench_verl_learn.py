"""Does it learn under verl, too? Training reward at the end, against the control.

    python tests/bench/bench_verl_learn.py [--seeds 0] [--steps 60] [--without-control]

The warm start, the task and the number of rollouts are those of ``tools/learn.py``, but the trainer
is verl's ``main_ppo`` by the recipe ``buttons``. The control is the same run with the advantages
shuffled inside each group, from which nothing can be learned.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO))  # so that this runs as a script

from tools.curve import draw_png, smooth  # noqa: E402
from tools.press_warm_start import cached_press_warm_start  # noqa: E402
from tools.verl_run import SHUFFLED, VerlRun  # noqa: E402

ABOVE = 0.15
LONGEST_S = 3600.0
WINDOW = 8
"""Steps over which the drawn curve, and its end, are averaged."""
HELD_OUT = "val-core/buttons/reward/mean@1"


@dataclass(frozen=True, slots=True)
class Learned:
    rewards: list[float]
    """Of the training rollouts, by step."""
    rollouts: list[int]
    """Verdicts so far, at each step."""
    held_out: list[float]
    """Greedy success on variants that training never sees: before, and after."""
    seconds: float

    @property
    def end(self) -> float:
        return fmean(self.rewards[-WINDOW:])

    @property
    def curve(self) -> list[tuple[float, float]]:
        return list(zip(self.rollouts, smooth(self.rewards, WINDOW), strict=True))


def learn(seed: int, out: Path, *, steps: int, shuffled: bool, more: tuple[str, ...]) -> Learned:
    """Train one seed. Raises ``RuntimeError`` with the end of its output if the run fails."""
    overrides = [
        f"actor_rollout_ref.model.path={cached_press_warm_start(seed)}",
        f"data.seed={seed}",
        f"legato.seed={seed}",
        f"trainer.total_training_steps={steps}",
        f"trainer.test_freq={steps}",
        "algorithm.adv_estimator=legato",
        *([SHUFFLED] if shuffled else []),
        *more,
    ]
    rewards: list[float] = []
    verdicts: list[int] = []
    held_out: list[float] = []
    started = time.monotonic()
    with VerlRun("verl/buttons", overrides, out) as run:
        for step, metrics in run.steps(LONGEST_S):
            if "legato/reward" in metrics:
                rewards.append(metrics["legato/reward"])
                verdicts.append(int(metrics["legato/rollout/verdicts"]))
                print(f"step {step:4d}  reward {rewards[-1]:.2f}", file=sys.stderr, flush=True)
            if HELD_OUT in metrics:
                held_out.append(metrics[HELD_OUT])
        if run.wait(120):
            raise RuntimeError(f"the run failed; its output ends with\n{run.tail()}")
    sums = [sum(verdicts[: i + 1]) for i in range(len(verdicts))]
    return Learned(rewards, sums, held_out, time.monotonic() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=60, help="32 rollouts and two updates each")
    parser.add_argument("--without-control", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("overrides", nargs="*", help="of the recipe: data.train_batch_size=2 ...")
    args = parser.parse_args()
    out: Path = args.out or REPO / "runs" / time.strftime("bench-verl-learn-%Y%m%d-%H%M%S")
    curves = {}
    for seed in args.seeds:
        ends = {}
        for shuffled in (False,) if args.without_control else (False, True):
            kind = f"seed {seed}{', shuffled' if shuffled else ''}"
            learned = learn(
                seed,
                out / kind.replace(", ", "-").replace(" ", "-"),
                steps=args.steps,
                shuffled=shuffled,
                more=tuple(args.overrides),
            )
            curves[kind], ends[shuffled] = learned.curve, learned.end
            print(f"verl learn: {kind}, training reward at the end: {learned.end:.3f} (bar none)")
            for when, share in zip(("before", "after"), learned.held_out, strict=False):
                print(f"verl learn: {kind}, held-out success {when}: {share:.3f} (bar none)")
            print(f"verl learn: {kind}, rollouts: {learned.rollouts[-1]} (bar none)")
            print(f"verl learn: {kind}, minutes: {learned.seconds / 60:.1f} (bar <= 60)")
            draw_png(
                out / "curves.png",
                "press the named button under verl: training rollouts",
                curves,
                along="rollouts",
                up="success",
            )
        if len(ends) == 2:
            above = ends[False] - ends[True]
            print(f"verl learn: seed {seed}, above the control: {above:+.3f} (bar >= {ABOVE})")


if __name__ == "__main__":
    main()
