"""Teach the tiny model to reply with a click on a button, any button: a start for ``buttons``.

    python tools/press_warm_start.py [--seed 0] [--task press]

prints the directory of the checkpoint, which is kept under ``.cache``.

The lessons come from reference episodes on real desktops, played by a demonstrator who draws lots:
the reply names the button that the instruction asks for, then one drawn at random (for ``find``: a
half of the screen), and clicks on that one with some jitter. So the model learns how a reply is
written, to read the instruction and where buttons may be, but nothing about which of them to press:
it is right as often as chance is.
TRL's ``SFTTrainer`` does the training.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections import deque
from pathlib import Path
from statistics import fmean
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))  # so that this runs as a plain script

from legato.desktop.actions import Click  # noqa: E402
from legato.rl.config import DesktopConfig, HarnessConfig  # noqa: E402
from legato.rl.harness import make_harness  # noqa: E402
from legato.rl.reference import ROWS, write_reference  # noqa: E402
from legato.tasks.suites import suite_tasks  # noqa: E402
from tools import tiny_vlm  # noqa: E402

SCREEN = (160, 128)
DESKTOP = DesktopConfig(backend="local", width=SCREEN[0], height=SCREEN[1])
HARNESS = HarnessConfig("compact", options={"width": SCREEN[0], "height": SCREEN[1]})
EPISODES = 48
JITTER = 3
"""Pixels by which a click misses the middle of its button at most, in each direction."""
BATCH, RATE = 32, 1.5e-3
WARMUP, SHORTEST, DECAY, LONGEST = 20, 200, 100, 900
"""Steps: the rate rises, stays until the model copies what is asked for, and falls to 0."""
COPIED, EVERY, OVER = 0.95, 10, 3
"""Share of replies that must name what the instruction names, in the batches of every tenth step,
over three of them. When a model comes to it is a matter of luck, and one that does not has nothing
to tell the buttons apart by."""
REFERENCES = REPO / ".cache" / "reference"


def cached_press_warm_start(seed: int = 0, task: str = "press") -> Path:
    """The checkpoint of this seed for a task of the suite ``buttons``.

    It is trained on first use, in about three minutes on two cores.
    """
    base = tiny_vlm.cached_checkpoint(seed=seed)
    key = hashlib.sha256(Path(__file__).read_bytes() + base.name.encode()).hexdigest()[:12]
    out = tiny_vlm.CACHE / f"{task}-{key}"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{task}.", dir=out.parent))
        try:
            _train(base, partial, lessons(task, seed), seed)
            partial.rename(out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return out


def reference_rows(task: str) -> list[dict[str, Any]]:
    """First steps of reference episodes, played on real desktops on first use."""
    folder = REFERENCES / task
    if not (folder / ROWS).exists():
        tasks = suite_tasks(f"buttons/{task}", "train", EPISODES)
        write_reference(tasks, folder, desktop=DESKTOP, harness=HARNESS)
    rows = [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]
    return [row for row in rows if row["step"] == 0]


def lessons(task: str, seed: int) -> list[dict[str, Any]]:
    """Prompts of the reference with replies that press any button; the same for a seed."""
    rows, rng = reference_rows(task), random.Random(seed)
    harness = make_harness(HARNESS.name, tokenizer=None, **HARNESS.options)
    by_answer: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_answer.setdefault(answer_of(task, row), []).append(row)
    made = []
    for _ in range(LONGEST * BATCH):
        shown = rng.choice(rows)
        answer = rng.choice(sorted(by_answer))
        drawn = rng.choice(by_answer[answer])
        click = Click(
            x=drawn["action"]["x"] + rng.randint(-JITTER, JITTER),
            y=drawn["action"]["y"] + rng.randint(-JITTER, JITTER),
        )
        verb, _, place = harness.render_reply(click, SCREEN).partition(" ")
        reply = f"{verb} {asked_for(shown)} {answer} {place}"
        made.append(
            {
                "prompt": shown["prompt"],
                "completion": [{"role": "assistant", "content": [{"type": "text", "text": reply}]}],
                "images": [str(REFERENCES / task / image) for image in shown["images"]],
            }
        )
    return made


def asked_for(row: dict[str, Any]) -> str:
    """The button that a row's instruction names: its last word."""
    said: str = row["prompt"][-1]["content"][-1]["text"]
    return said.split()[-1]


def answer_of(task: str, row: dict[str, Any]) -> str:
    """What a row's reply should have said: a button, or a half of the screen."""
    if task == "find":
        return "left" if row["action"]["x"] < SCREEN[0] // 2 else "right"
    return asked_for(row)


def _train(base: Path, out: Path, rows: list[dict[str, Any]], seed: int) -> None:
    """Raises ``RuntimeError`` if the model never copies what is asked for."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from datasets import Dataset, Image, Sequence
    from datasets import disable_progress_bars as disable_bars_of_datasets
    from transformers.utils import logging
    from trl import SFTConfig

    disable_bars_of_datasets()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    dataset = Dataset.from_list(rows).cast_column("images", Sequence(Image()))
    with tempfile.TemporaryDirectory() as scratch:
        args = SFTConfig(
            output_dir=scratch,
            max_steps=LONGEST,
            per_device_train_batch_size=BATCH,
            learning_rate=RATE,
            weight_decay=0.0,
            max_length=None,
            seed=seed,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            logging_steps=50,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_num_workers=1,
        )
        trainer = _copying_trainer()(model=str(base), args=args, train_dataset=dataset)
        told = logging.get_verbosity()
        logging.set_verbosity_error()  # that it takes over the tokenizer's special ids is no news
        trainer.train()
        logging.set_verbosity(told)
        if trainer.falls_from is None:
            raise RuntimeError(
                f"after {LONGEST} steps the model of seed {seed} does not name what is asked for: "
                "take another seed"
            )
        trainer.save_model(str(out))


def _copying_trainer() -> Any:
    """``SFTTrainer`` that goes on until replies name what is asked for, and then comes to rest."""
    import torch
    from trl import SFTTrainer

    class Trainer(SFTTrainer):  # type: ignore[misc]
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            verb = self.processing_class.tokenizer.encode("click ", add_special_tokens=False)
            self._place = len(verb) + 1
            """Of the name, among the tokens of the reply, from 1."""
            self._copied: deque[float] = deque([0.0] * OVER, maxlen=OVER)
            self.falls_from: int | None = None
            """Step from which the rate falls."""

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            step = self.state.global_step
            if step % EVERY == 0:
                self._copied.append(self._names(model, inputs))
            if self.falls_from is None and step >= SHORTEST and fmean(self._copied) >= COPIED:
                self.falls_from = step
            if self.falls_from is not None and step >= self.falls_from + DECAY - 1:
                self.control.should_training_stop = True
            return super().compute_loss(model, inputs, *args, **kwargs)

        @torch.no_grad()
        def _names(self, model: Any, inputs: Any) -> float:
            """Share of the batch's replies whose name the model would say itself."""
            seen = {name: value for name, value in inputs.items() if name != "labels"}
            labels = inputs["labels"][:, 1:]
            said = labels != -100
            name = said & (said.cumsum(1) == self._place)
            right: torch.Tensor = model(**seen).logits[:, :-1][name].argmax(-1) == labels[name]
            return right.float().mean().item()

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._share)
            return self.lr_scheduler

        def _share(self, step: int) -> float:
            if self.falls_from is not None:
                return max(0.0, 1 - (step - self.falls_from) / DECAY)
            return min(1.0, (step + 1) / WARMUP)

        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            if "loss" in logs:
                print(
                    f"warm start: step {self.state.global_step}, loss {logs['loss']:.3f}, "
                    f"names what is asked for in {fmean(self._copied):.0%}",
                    file=sys.stderr,
                    flush=True,
                )

    return Trainer


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a tiny Qwen3-VL that presses any button.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--task", choices=("press", "find"), default="press")
    args = parser.parse_args()
    print(cached_press_warm_start(args.seed, args.task))


if __name__ == "__main__":
    main()
