"""Teach the tiny Qwen3-VL checkpoint to answer the ``compact`` harness with actions.

    python tools/warm_start.py [OUT] [--seed 0]

prints the directory of the checkpoint, without OUT one that is kept under ``.cache``.

The random weights of :mod:`tools.tiny_vlm` reply with noise, so no action is ever performed. A
short supervised run changes that: the checkpoint made here replies with well-formed actions,
CHOSEN AT RANDOM (:mod:`tools.lessons`). Nothing about any task is taught: what it learns to say
depends neither on the instruction nor on the screen, and success on tasks stays what blind
clicking earns. It is a start for reinforcement learning, and lets a demo and a test see real
actions. On the same machine the same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))  # so that this runs as a plain script

from legato.desktop.contract import Screenshot  # noqa: E402
from legato.rl.harness import make_harness  # noqa: E402
from legato.rl.tokens import load_tokenizer  # noqa: E402
from tools import lessons, tiny_vlm  # noqa: E402

if TYPE_CHECKING:  # a cache hit must not pay for importing torch
    import torch

HARNESS = "compact"
TURNS = 6
"""Turns of the longest conversations."""
STEPS = 500
BATCH = 8
"""Conversations a step."""
MUON_RATE, ADAMW_RATE = 0.03, 4e-3
"""Peak learning rates: of the layers' matrices, and of all else (embeddings, norms, output)."""


def cached_warm_start(seed: int = 0) -> Path:
    """The checkpoint of this seed, trained on first use under ``.cache/checkpoints``.

    It is trained anew when the code that trains it changes, or the way that the harness and the
    tokenizer render a conversation. The wording of tasks does not matter to what it learns.
    """
    base = tiny_vlm.cached_checkpoint(seed=seed)
    key = hashlib.sha256(base.name.encode())
    for source in (__file__, lessons.__file__):
        key.update(Path(source).read_bytes())
    sample = Curriculum(base, ["Press Save."], seed).lesson(turns=15)
    key.update(json.dumps(sample.ids).encode())
    out = tiny_vlm.CACHE / f"{base.name.partition('-')[0]}-warm-{key.hexdigest()[:12]}"
    if not out.exists():
        try:
            build_warm_start(out, seed)
        except OSError:
            if not out.exists():  # else another process trained the same one meanwhile
                raise
    return out


def build_warm_start(out: Path, seed: int = 0) -> None:
    """Write the trained checkpoint into the new directory ``out`` (about a minute on one core).

    A run that is cut short leaves no ``out`` behind. Raises ``FileExistsError`` if ``out`` exists.
    """
    base = tiny_vlm.cached_checkpoint(seed=seed)
    with tiny_vlm.new_checkpoint(out) as partial:
        shutil.copytree(base, partial, dirs_exist_ok=True)
        instructions = lessons.instructions(random.Random(seed))
        _train(partial, Curriculum(base, instructions, seed))


class Curriculum:
    """An endless row of lessons, the same one for the same arguments."""

    def __init__(self, checkpoint: Path, instructions: Sequence[str], seed: int) -> None:
        self._tokenizer = load_tokenizer(str(checkpoint))
        self._harness = make_harness(HARNESS, tokenizer=self._tokenizer)
        self._random = random.Random(seed)
        self._instructions = instructions
        self.screens = lessons.screens(self._harness, self._random)

    def lesson(self, turns: int) -> lessons.Lesson:
        instruction = self._random.choice(self._instructions)
        return lessons.make_lesson(
            self._harness, self._tokenizer, instruction, self.screens, turns, self._random
        )


def _train(checkpoint: Path, curriculum: Curriculum) -> None:
    """Train the checkpoint's language model in place. Progress goes to stderr."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from transformers import Qwen2VLImageProcessor, Qwen3VLForConditionalGeneration
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    # One thread adds up in one order, and does not wait for another on a busy machine.
    torch.set_num_threads(1)
    processor = Qwen2VLImageProcessor.from_pretrained(checkpoint)
    model: Any = Qwen3VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32)
    batches = _Batches(curriculum, _look(model, processor, curriculum.screens), model.config)
    # The vision tower is left as it is: every screen was looked at once and is remembered.
    model.model.get_image_features = batches.remember
    language = model.model.language_model
    matrices = [weight for weight in language.layers.parameters() if weight.ndim == 2]
    others = [
        *(weight for weight in language.layers.parameters() if weight.ndim != 2),
        *language.norm.parameters(),
        *language.embed_tokens.parameters(),
        *model.lm_head.parameters(),
    ]
    # Muon needs half the steps that AdamW alone needs.
    optimizers: dict[torch.optim.Optimizer, float] = {
        torch.optim.Muon(matrices, weight_decay=0.0): MUON_RATE,
        torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0): ADAMW_RATE,
    }
    for step in range(STEPS):
        # The grammar is learned in short conversations, at a fraction of the cost of long ones.
        inputs, targets = batches.next(turns=min(TURNS, 1 + step * (TURNS + 1) // STEPS))
        learned = targets >= 0
        # Scores of the whole vocabulary are needed only where a reply is learned.
        hidden = model.model(**inputs).last_hidden_state[learned]
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden), targets[learned])
        model.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_([*matrices, *others], 1.0)
        for optimizer, peak in optimizers.items():
            rate = peak * min(1.0, (step + 1) / 20) * (1 - step / STEPS)
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
        if step % 100 == 99:
            said = f"warm start: step {step + 1} of {STEPS}, loss {loss.item():.3f}"
            print(said, file=sys.stderr, flush=True)
    model.save_pretrained(checkpoint)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the vision tower makes of one screen."""

    grid: torch.Tensor
    """Patches (time, rows, columns), shape (1, 3)."""
    tokens: torch.Tensor
    """Shape (tokens, width of the language model)."""
    deepstack: Sequence[torch.Tensor]
    """The same for every layer of the language model that is shown the image again."""


def _look(model: Any, processor: Any, screens: Sequence[Screenshot]) -> dict[str, _Seen]:
    """Every screen as the model sees it, by its hash."""
    import torch

    seen = {}
    with torch.no_grad():
        for screen in screens:
            image = processor(images=[screen.pil()], return_tensors="pt")
            grid = image["image_grid_thw"]
            out = model.model.get_image_features(image["pixel_values"], grid, return_dict=True)
            seen[screen.sha256] = _Seen(grid, out.pooler_output[0], out.deepstack_features)
    return seen


class _Batches:
    """Lessons as the model's inputs, ids padded on the right."""

    def __init__(self, curriculum: Curriculum, seen: Mapping[str, _Seen], config: Any) -> None:
        self._curriculum = curriculum
        self._by_name = seen
        self._names = list(seen)
        self._placeholder: int = config.image_token_id
        self._padding: int = config.text_config.pad_token_id

    def remember(self, numbers: torch.Tensor, *_: Any, **__: Any) -> Any:
        """Stands in for the model's look at ``pixel_values``, which are numbers of screens."""
        import torch
        from transformers.models.qwen3_vl.modeling_qwen3_vl import (
            BaseModelOutputWithDeepstackFeatures,
        )

        seen = [self._by_name[self._names[number]] for number in numbers.tolist()]
        layers = zip(*(s.deepstack for s in seen), strict=True)
        return BaseModelOutputWithDeepstackFeatures(
            pooler_output=[s.tokens for s in seen],
            deepstack_features=[torch.cat(layer) for layer in layers],
        )

    def next(self, turns: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Inputs, and for every place the id to be said next: (BATCH, length), -1 if any."""
        import torch

        taken = [self._curriculum.lesson(turns) for _ in range(BATCH)]
        rows = [self._widen(lesson) for lesson in taken]
        length = max(len(ids) for ids, _ in rows)
        ids = torch.full((BATCH, length), self._padding)
        mask = torch.zeros_like(ids)
        targets = torch.full_like(ids, -1)
        for row, (said, learned) in enumerate(rows):
            ids[row, : len(said)] = torch.tensor(said)
            mask[row, : len(said)] = 1
            for place in learned:
                targets[row, place - 1] = said[place]
        images = [image for lesson in taken for image in lesson.images]
        inputs = {
            "input_ids": ids,
            "attention_mask": mask,
            "pixel_values": torch.tensor([self._names.index(image) for image in images]),
            "image_grid_thw": torch.cat([self._by_name[image].grid for image in images]),
            "mm_token_type_ids": (ids == self._placeholder).int(),
        }
        return inputs, targets

    def _widen(self, lesson: lessons.Lesson) -> tuple[list[int], list[int]]:
        """Ids with as many placeholders as every image takes, and the places to be learned."""
        to_learn = {place for begin, end in lesson.replies for place in range(begin, end)}
        images = iter(lesson.images)
        ids: list[int] = []
        places: list[int] = []
        for place, token in enumerate(lesson.ids):
            if place in to_learn:
                places.append(len(ids))
            wide = token == self._placeholder
            ids += [token] * (len(self._by_name[next(images)].tokens) if wide else 1)
        return ids, places


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a tiny Qwen3-VL that acts at random.")
    parser.add_argument("out", type=Path, nargs="?", help="new directory (default: a cached one)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    out: Path | None = args.out
    if out is None:
        out = cached_warm_start(args.seed)
    else:
        build_warm_start(out, args.seed)
    print(out)


if __name__ == "__main__":
    main()
