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
from pathlib import Path
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
STEPS, BATCH, RATE = 400, 32, 3e-3
"""After half of these steps it is a matter of luck whether the model copies what the instruction
names, and one that does not has nothing to tell the buttons apart by."""
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
    for _ in range(STEPS * BATCH):
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
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from datasets import Dataset, Image, Sequence
    from datasets import disable_progress_bars as disable_bars_of_datasets
    from transformers import PrinterCallback
    from transformers.utils import logging
    from trl import SFTConfig, SFTTrainer

    disable_bars_of_datasets()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    dataset = Dataset.from_list(rows).cast_column("images", Sequence(Image()))
    with tempfile.TemporaryDirectory() as scratch:
        args = SFTConfig(
            output_dir=scratch,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            learning_rate=RATE,
            lr_scheduler_type="linear",
            warmup_steps=20,
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
        trainer = SFTTrainer(
            model=str(base), args=args, train_dataset=dataset, callbacks=[_progress()]
        )
        trainer.remove_callback(PrinterCallback)
        told = logging.get_verbosity()
        logging.set_verbosity_error()  # that it takes over the tokenizer's special ids is no news
        trainer.train()
        logging.set_verbosity(told)
        trainer.save_model(str(out))


def _progress() -> Any:
    from transformers import TrainerCallback

    class Progress(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs:
                at, of, loss = state.global_step, state.max_steps, float(logs["loss"])
                print(f"warm start: step {at} of {of}, loss {loss:.3f}", file=sys.stderr)

    return Progress()


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a tiny Qwen3-VL that presses any button.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--task", choices=("press", "find"), default="press")
    args = parser.parse_args()
    print(cached_press_warm_start(args.seed, args.task))


if __name__ == "__main__":
    main()
