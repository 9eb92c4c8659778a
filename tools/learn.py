"""A tiny model learns to press the button it is asked for, on real desktops: ``make demo``.

    python tools/learn.py [--seed 0] [--task press] [--shuffled] [--out runs/learn-...]

A checkpoint of half a million parameters starts from a warm start that presses any button. GRPO
then trains it by the recipe ``buttons``: a real vLLM server samples, real desktops are clicked, a
verifier out of the agent's reach says what was pressed, and after every step the server gets the
new weights. Variants that training never sees are graded before and after. Nothing in the loop
knows the answer. ``--shuffled`` is the control: the same run with the rewards shuffled inside each
group, from which nothing can be learned. ``--task find`` asks for more: the instruction is always
the same, and only the screenshot tells in which half of the screen the button is.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))  # so that this runs as a plain script

from tools.curve import draw_png, smooth, terminal  # noqa: E402
from tools.press_warm_start import cached_press_warm_start  # noqa: E402
from tools.vllm_server import VllmServer  # noqa: E402

if TYPE_CHECKING:
    from legato_trl import Recipe

RESULT = "learned.json"
TITLES = {"press": "press the named button", "find": "find the button on the screen"}
WINDOW = 8
"""Logged steps that the drawn curve averages over."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of successes among held-out episodes."""

    share: float
    episodes: int

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, by Wilson's score."""
        z, n, p = 1.959964, self.episodes, self.share
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return middle - half, middle + half

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.share:.3f} [{low:.3f}, {high:.3f}] of {self.episodes}"


@dataclass(frozen=True, slots=True)
class Learned:
    """What came of a run."""

    task: str
    seed: int
    shuffled: bool
    before: Rate
    after: Rate
    rollouts: list[int]
    """Verdicts so far, at each logged step."""
    rewards: list[float]
    """Mean reward of the training rollouts of each."""
    seconds: float
    """From the start of the warm start, or of its look-up, to the end of the last evaluation."""

    @property
    def rise(self) -> float:
        return self.after.share - self.before.share


def learn(
    seed: int,
    out: Path,
    *,
    task: str = "press",
    shuffled: bool = False,
    overrides: tuple[str, ...] = (),
) -> Learned:
    """Train one seed on a task of the suite ``buttons``.

    ``out`` gets the model, rollouts, ``learned.json`` and ``curve.png``.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    started = time.monotonic()
    say(f"Warm start of seed {seed}: it presses any button (three minutes, once)")
    checkpoint = cached_press_warm_start(seed, task)
    say("Starting vLLM on it (up to a minute)")
    with VllmServer(checkpoint) as server:
        import torch

        from legato_trl import load_recipe

        torch.set_num_threads(1)  # the other core is for vLLM and the desktops
        recipe = load_recipe(
            "buttons",
            [
                f"model={checkpoint}",
                f"trainer.suite=buttons/{task}",
                f"trainer.output_dir={out}",
                f"trainer.vllm_server_base_url={server.root}",
                f"+trainer.seed={seed}",
                "+trainer.disable_tqdm=true",
                *overrides,
            ],
        )
        before, after, logs = _train(recipe, shuffled)
    counts = [round(entry["rollout/verdicts"]) for entry in logs]
    learned = Learned(
        task,
        seed,
        shuffled,
        before,
        after,
        list(itertools.accumulate(counts)),
        [entry["reward"] for entry in logs],
        time.monotonic() - started,
    )
    (out / RESULT).write_text(json.dumps(asdict(learned), indent=1) + "\n")
    name = f"seed {seed}{', rewards shuffled' if shuffled else ''}"
    draw_png(
        out / "curve.png",
        f"{TITLES[task]}, {name}",
        {
            "training rollouts": curve(learned),
            "held out": [(0, learned.before.share), (learned.rollouts[-1], learned.after.share)],
        },
        along="rollouts",
        up="success",
    )
    return learned


def read_learned(out: Path) -> Learned | None:
    """What a run left in its folder; ``None`` if it never came to its end."""
    if not (out / RESULT).exists():
        return None
    told = json.loads((out / RESULT).read_text())
    rates = {name: Rate(**told[name]) for name in ("before", "after")}
    return Learned(**{**told, **rates})


def curve(learned: Learned) -> list[tuple[float, float]]:
    return list(zip(learned.rollouts, smooth(learned.rewards, WINDOW), strict=True))


def _train(recipe: Recipe, shuffled: bool) -> tuple[Rate, Rate, list[dict[str, float]]]:
    """Held-out success before and after, and what the trainer logged of its steps."""
    from transformers import PrinterCallback
    from transformers.utils.logging import disable_progress_bar

    from legato_trl import LegatoGRPOTrainer
    from tools.shuffled import Shuffled

    disable_progress_bar()
    make: type[LegatoGRPOTrainer] = Shuffled if shuffled else LegatoGRPOTrainer
    trainer = make(recipe.model, recipe.trainer, callbacks=[progress()])
    trainer.remove_callback(PrinterCallback)
    try:
        before = _held_out(trainer)
        say(f"Before: {before} held-out episodes. Training.")
        trainer.train()
        after = _held_out(trainer)
        trainer.save_model()
    finally:
        trainer.close()
    return before, after, [entry for entry in trainer.state.log_history if "loss" in entry]


def _held_out(trainer: Any) -> Rate:
    trainer.evaluate()
    entry = next(e for e in reversed(trainer.state.log_history) if "eval_success_rate" in e)
    return Rate(entry["eval_success_rate"], round(entry["eval_rollout/verdicts"]))


def progress() -> Any:
    from transformers import TrainerCallback

    class Progress(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "rollout/seconds" in logs and "loss" in logs:
                print(
                    f"update {state.global_step:4d} of {state.max_steps}  "
                    f"reward {logs['reward']:.2f}  rollouts {logs['rollout/seconds']:.1f} s  "
                    f"updates {logs['update/seconds']:.1f} s  "
                    f"logprob gap {logs['mismatch/max']:.0e}",
                    flush=True,
                )

    return Progress()


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--task", choices=sorted(TITLES), default="press")
    parser.add_argument("--shuffled", action="store_true", help="the control")
    parser.add_argument("--out", type=Path)
    parser.add_argument("overrides", nargs="*", help="of the recipe: trainer.max_steps=40 ...")
    args = parser.parse_args()
    out = args.out or REPO / "runs" / time.strftime("learn-%Y%m%d-%H%M%S")
    overrides = tuple(args.overrides)
    learned = learn(args.seed, out, task=args.task, shuffled=args.shuffled, overrides=overrides)
    say("Mean reward of the training rollouts, over the number of rollouts")
    print("\n".join(terminal(curve(learned))))
    say(f"Held-out success before: {learned.before}")
    print(f"Held-out success after:  {learned.after}")
    print(f"{learned.rollouts[-1]} rollouts, {learned.seconds:.0f} s in all; {out / 'curve.png'}")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
