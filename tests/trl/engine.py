"""A vLLM engine in this process, compared with transformers: ``-m tests.trl.engine CKPT OUT``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

from legato.rl.harness import make_harness
from legato.rl.policy.request import BAN
from legato.rl.tokens import load_tokenizer
from legato.rl.types import Generation, Prompt, Sampling
from legato_trl.colocate import ColocatedPolicy, vllm_engine
from tests.rl.factories import frame

SIDE, TEMPERATURE = 128, 0.8


def main() -> None:
    checkpoint = sys.argv[1]
    tokenizer = load_tokenizer(checkpoint)
    placeholder = tokenizer.special("<|image_pad|>")
    assert placeholder is not None
    banned = (placeholder, 40, 41)
    prompts = [two_screens(tokenizer, seed) for seed in range(4)]
    sampling = Sampling(temperature=TEMPERATURE, max_tokens=8, banned_ids=banned)
    said = sample(checkpoint, tokenizer, placeholder, prompts, sampling)
    right = [gap(checkpoint, p, g, banned) for p, g in zip(prompts, said, strict=True)]
    swapped = [gap(checkpoint, p, g, banned, swap=True) for p, g in zip(prompts, said, strict=True)]
    answer = {
        "placeholder": placeholder,
        "compared": sum(len(g.token_ids or ()) for g in said),
        "gap": max(right),
        "swapped_gap": max(swapped),
        "banned_sampled": any(t in banned for g in said for t in g.token_ids or ()),
    }
    Path(sys.argv[2]).write_text(json.dumps(answer))
    # vLLM's threads would keep the process from ending for a while.
    os._exit(0)


def two_screens(tokenizer: Any, seed: int) -> Prompt:
    harness = make_harness("compact", tokenizer=tokenizer, width=SIDE, height=SIDE)
    conversation = harness.start("press A", (SIDE, SIDE))
    conversation.observe(frame(10 * seed, SIDE, SIDE))
    reply = tuple(tokenizer.encode("wait 1"))
    conversation.reply(Generation("wait 1", reply, None, None, None, "0", "stop"))
    conversation.observe(frame(10 * seed + 1, SIDE, SIDE))
    return conversation.prompt()


def sample(
    checkpoint: str, tokenizer: Any, placeholder: int, prompts: list[Prompt], sampling: Sampling
) -> list[Generation]:
    from vllm import LLM

    llm = LLM(
        model=checkpoint,
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=8,
        enforce_eager=True,
        block_size=32,
        logprobs_mode="processed_logprobs",
        limit_mm_per_prompt={"image": 4, "video": 0},
    )
    policy = ColocatedPolicy(vllm_engine(llm), tokenizer, placeholder)
    result: list[Any] = []

    async def ask() -> Any:
        return await asyncio.gather(*(policy.generate(p, sampling) for p in prompts))

    thread = threading.Thread(target=lambda: result.append(asyncio.run(ask())))
    thread.start()
    while thread.is_alive():
        policy.round()
        thread.join(0.01)
    said: list[Generation] = result[0]
    return said


def gap(
    checkpoint: str, prompt: Prompt, said: Generation, banned: tuple[int, ...], swap: bool = False
) -> float:
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(checkpoint)
    images = [image.pil() for image in prompt.images]
    features = processor.image_processor(
        images=images[::-1] if swap else images, return_tensors="pt"
    )
    counts = iter(said.image_tokens or ())
    pad = banned[0]
    assert prompt.token_ids is not None
    assert said.token_ids is not None
    assert said.logprobs is not None
    wide = [t for i in prompt.token_ids for t in [i] * (next(counts) if i == pad else 1)]
    ids = torch.tensor([[*wide, *said.token_ids]])
    with torch.no_grad():
        logits = model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            mm_token_type_ids=(ids == pad).long(),
            **features,
        ).logits[0, len(wide) - 1 : -1]
    logits[:, list(banned)] += BAN
    logprobs = (logits / TEMPERATURE).log_softmax(-1)
    found = logprobs.gather(-1, ids[0, len(wide) :, None])[:, 0]
    return float((found - torch.tensor(said.logprobs)).abs().max())


if __name__ == "__main__":
    main()
