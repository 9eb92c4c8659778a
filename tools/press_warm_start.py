"""Teach the tiny model to reply with a click on a button, any button: a start for ``buttons``.

    python tools/press_warm_start.py [--seed 0]

prints the directory of the checkpoint, which is kept under ``.cache``.

The lessons come from reference episodes on real desktops, played by a poor demonstrator: the reply
names the button that the instruction asks for, and clicks with some jitter on one drawn at random,
in one lesson of five on the right one. So the model learns how a reply is written and where buttons
are, and hardly which of them to press: its success stays near chance, from where it takes too many
rollouts to get away when no lesson at all is right. TRL's ``SFTTrainer`` does the training.
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

SUITE = "buttons/press"
SCREEN = (160, 128)
DESKTOP = DesktopConfig(backend="local", width=SCREEN[0], height=SCREEN[1])
HARNESS = HarnessConfig("compact", options={"width": SCREEN[0], "height": SCREEN[1]})
EPISODES = 48
JITTER = 6
"""Pixels by which a click misses the middle of its button at most, in each direction."""
RIGHT = 0.2
"""Share of the lessons that click on the button asked for; the others draw one of all four."""
STEPS, BATCH, RATE = 200, 32, 3e-3
REFERENCE = REPO / ".cache" / "reference" / "press"


def cached_press_warm_start(seed: int = 0) -> Path:
    """The checkpoint of this seed, trained on first use (about two minutes on two cores)."""
    base = tiny_vlm.cached_checkpoint(seed=seed)
    key = hashlib.sha256(Path(__file__).read_bytes() + base.name.encode()).hexdigest()[:12]
    out = tiny_vlm.CACHE / f"press-{key}"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".press.", dir=out.parent))
        try:
            _train(base, partial, lessons(seed), seed)
            partial.rename(out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return out


def reference_rows() -> list[dict[str, Any]]:
    """First steps of reference episodes, played on real desktops on first use."""
    if not (REFERENCE / ROWS).exists():
        tasks = suite_tasks(SUITE, "train", EPISODES)
        write_reference(tasks, REFERENCE, desktop=DESKTOP, harness=HARNESS)
    rows = [json.loads(line) for line in (REFERENCE / ROWS).read_text().splitlines()]
    return [row for row in rows if row["step"] == 0]


def lessons(seed: int) -> list[dict[str, Any]]:
    """Prompts of the reference with replies of a poor demonstrator; the same for a seed."""
    rows, rng = reference_rows(), random.Random(seed)
    harness = make_harness(HARNESS.name, tokenizer=None, **HARNESS.options)
    made = []
    for _ in range(STEPS * BATCH):
        shown = rng.choice(rows)
        other = shown if rng.random() < RIGHT else rng.choice(rows)
        click = Click(
            x=other["action"]["x"] + rng.randint(-JITTER, JITTER),
            y=other["action"]["y"] + rng.randint(-JITTER, JITTER),
        )
        verb, _, place = harness.render_reply(click, SCREEN).partition(" ")
        reply = f"{verb} {asked_for(shown)} {place}"
        made.append(
            {
                "prompt": shown["prompt"],
                "completion": [{"role": "assistant", "content": [{"type": "text", "text": reply}]}],
                "images": [str(REFERENCE / image) for image in shown["images"]],
            }
        )
    return made


def asked_for(row: dict[str, Any]) -> str:
    """The button that a row's instruction names: its last word."""
    said: str = row["prompt"][-1]["content"][-1]["text"]
    return said.split()[-1]


def _train(base: Path, out: Path, rows: list[dict[str, Any]], seed: int) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from datasets import Dataset, Image, Sequence
    from trl import SFTConfig, SFTTrainer

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
        )
        trainer = SFTTrainer(model=str(base), args=args, train_dataset=dataset)
        trainer.train()
        trainer.save_model(str(out))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a tiny Qwen3-VL that presses any button.")
    parser.add_argument("--seed", type=int, default=0)
    print(cached_press_warm_start(parser.parse_args().seed))


if __name__ == "__main__":
    main()
