"""What transformers says about a checkpoint, asked in a process of its own.

Importing torch into the tests' process would slow every fork in it. One JSON request a line on
stdin, one JSON answer a line on stdout.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legato.rl.types import ImagePart, Message


@dataclass(frozen=True, slots=True)
class Oracle:
    process: subprocess.Popen[str]

    def template_ids(
        self, checkpoint: Path, messages: Sequence[Message], **template: Any
    ) -> list[int]:
        """Ids of the checkpoint's own chat template, one placeholder per image."""
        return list(
            self._ask(
                "template",
                checkpoint=str(checkpoint),
                messages=[_message(message) for message in messages],
                template=template,
            )
        )

    def grids(self, checkpoint: Path, sizes: Sequence[tuple[int, int]]) -> list[list[int]]:
        """``image_grid_thw`` of blank images of (width, height) pixels, from the real processor."""
        return list(self._ask("grids", checkpoint=str(checkpoint), sizes=sizes))

    def logprobs(
        self,
        checkpoint: Path,
        ids: Sequence[int],
        images: Sequence[Path],
        *,
        temperature: float,
        banned: Sequence[int],
    ) -> list[float]:
        """Of each id but the first, given those before it; one forward pass in float32.

        ``ids`` hold as many placeholders per image as it takes tokens. The distribution is the
        softmax at ``temperature`` over every id that is not ``banned``.
        """
        return list(
            self._ask(
                "logprobs",
                checkpoint=str(checkpoint),
                ids=list(ids),
                images=[str(path) for path in images],
                temperature=temperature,
                banned=list(banned),
            )
        )

    def _ask(self, what: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"what": what, **arguments}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextmanager
def transformers_oracle() -> Iterator[Oracle]:
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Oracle(process)
        finally:
            process.kill()


def _message(message: Message) -> dict[str, Any]:
    parts = [
        {"type": "image"} if isinstance(part, ImagePart) else {"type": "text", "text": part.text}
        for part in message.parts
    ]
    return {"role": message.role, "content": parts}


def _serve() -> None:
    from functools import cache

    import torch
    from PIL import Image
    from transformers import AutoModelForImageTextToText, AutoProcessor

    load = cache(AutoProcessor.from_pretrained)
    model_of = cache(AutoModelForImageTextToText.from_pretrained)

    def template(checkpoint: str, messages: list[Any], template: dict[str, Any]) -> list[int]:
        processor = load(checkpoint)
        text = processor.apply_chat_template(messages, tokenize=False, **template)
        return list(processor.tokenizer(text)["input_ids"])

    def grids(checkpoint: str, sizes: list[tuple[int, int]]) -> list[list[int]]:
        images = [Image.new("RGB", (width, height)) for width, height in sizes]
        processed = load(checkpoint).image_processor(images=images, return_tensors="pt")
        return [list(map(int, row)) for row in processed["image_grid_thw"]]

    def logprobs(
        checkpoint: str, ids: list[int], images: list[str], temperature: float, banned: list[int]
    ) -> list[float]:
        model = model_of(checkpoint, dtype=torch.float32).eval()
        pixels = load(checkpoint).image_processor(
            images=[Image.open(path) for path in images], return_tensors="pt"
        )
        tokens = torch.tensor([ids])
        with torch.no_grad():
            logits = model(
                input_ids=tokens,
                attention_mask=torch.ones_like(tokens),
                mm_token_type_ids=(tokens == model.config.image_token_id).long(),
                **pixels,
            ).logits[0]
        logits[:, banned] = -torch.inf
        given = (logits / temperature).log_softmax(-1)
        return list(given[:-1].gather(1, tokens[0, 1:, None])[:, 0].tolist())

    answers = {"template": template, "grids": grids, "logprobs": logprobs}
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answers[request.pop("what")](**request)), flush=True)


if __name__ == "__main__":
    _serve()
