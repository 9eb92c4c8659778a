"""Make a tiny random-init Qwen vision-language checkpoint on the spot, without a model hub.

    python tools/tiny_vlm.py [OUT] [--family qwen3_vl] [--seed 0] [--generation top_k=20]

prints the directory of the checkpoint, without OUT one that is kept under ``.cache``.
It has everything a real checkpoint has (weights, byte-level BPE tokenizer, image processor, chat
template), loads in vLLM and transformers alike, and is the same to the byte for the same
arguments and library versions. It knows nothing: it is there to exercise the real code paths.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:  # a cache hit must not pay for importing torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

Family = Literal["qwen3_vl", "qwen2_5_vl", "qwen3_5"]
"""``qwen3_5`` does not run on vLLM's CPU build; its tokenizer and template are still of use."""

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "checkpoints"

VOCAB = 768
"""Rows of the embedding, and ids of the tokenizer. Equal on purpose, and a multiple of 64, to
which vLLM pads: a random policy would otherwise sample ids that the tokenizer does not have."""
HIDDEN = 64
HEAD_DIM = 32  # the smallest that vLLM's CPU attention takes
CONTEXT = 16_384
MAX_IMAGE_TOKENS = 64

VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>")
SPECIAL_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>"),
    *VISION_TOKENS,
    "<|video_pad|>",
)
TEXT_TOKENS = (
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
)

CHAT_TEMPLATES: Mapping[Family, str] = {
    "qwen3_vl": "qwen3_vl.jinja",
    "qwen2_5_vl": "qwen2_5_vl.jinja",
    "qwen3_5": "qwen3_5_think.jinja",
}


def build_checkpoint(
    out: Path,
    family: Family = "qwen3_vl",
    seed: int = 0,
    generation: Mapping[str, Any] | None = None,
) -> None:
    """Write the checkpoint into the new directory ``out`` (about 5 s, 3 MB, float32).

    ``generation`` overrides fields of ``generation_config.json``, which is neutral by default
    (temperature 1, top_p 1, top_k 0). A build that is cut short leaves no ``out`` behind.
    Raises ``FileExistsError`` if ``out`` exists.
    """
    with new_checkpoint(out) as partial:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        tokenizer = _tokenizer()
        template = _chat_template(family)
        model = _model(family, tokenizer, seed, dict(generation or {}))
        processor = _processor(family, tokenizer, template)
        model.save_pretrained(partial)
        processor.save_pretrained(partial)
        tokenizer.save_pretrained(partial)


@contextlib.contextmanager
def new_checkpoint(out: Path) -> Iterator[Path]:
    """A directory to fill, which becomes ``out`` at the end, or disappears on an exception.

    Raises ``FileExistsError`` if ``out`` exists.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists; remove it, or name another directory")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield partial
        partial.chmod(0o755)
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def cached_checkpoint(
    family: Family = "qwen3_vl", seed: int = 0, generation: Mapping[str, Any] | None = None
) -> Path:
    """The checkpoint with these arguments, built on first use under ``.cache/checkpoints``."""
    versions = [importlib.metadata.version(d) for d in ("torch", "transformers", "tokenizers")]
    recipe = json.dumps([family, seed, dict(generation or {}), versions], sort_keys=True)
    key = hashlib.sha256(Path(__file__).read_bytes() + recipe.encode()).hexdigest()[:12]
    out = CACHE / f"{family}-{key}"
    if not out.exists():
        try:
            build_checkpoint(out, family, seed, generation)
        except OSError:
            if not out.exists():  # else another process built the same one meanwhile
                raise
    return out


# --- tokenizer ---------------------------------------------------------------------------------


def corpus() -> Iterator[str]:
    """What the tokenizer is trained on: the sentences and replies of a desktop agent."""
    yield from _SENTENCES.strip().splitlines()
    names = "click double_click triple_click right_click middle_click left_click mouse_move move"
    for i, name in enumerate(names.split()):
        x, y = (37 * i) % 1000, (911 - 53 * i) % 1000
        yield f'{{"action_type": "{name}", "x": {x}, "y": {y}}}'
        arguments = f'{{"action": "{name}", "coordinate": [{x}, {y}]}}'
        yield f'{{"name": "computer_use", "arguments": {arguments}}}'
        yield f"{name} {x} {y}"
        yield f"<function=computer_use>\n<parameter=action>\n{name}\n</parameter>\n</function>"
    for number in range(1000):
        yield f" {number}"


_SENTENCES = """
You operate a computer desktop. You see a screenshot and reply with the next action.
You are given a task, the previous actions and the current screen.
Work step by step until it is done.
The screen's resolution is 1000x1000. The screen's resolution is 1280x720 pixels.
# Tools
You may call one or more functions to assist with the user query.
Use a mouse and keyboard to interact with a computer, and take screenshots.
For each function call, return a json object with function name and arguments within XML tags:
{"type": "function", "function": {"name": "computer_use", "description": "", "parameters": {}}}
{"name": "computer_use", "arguments": {"action": "type", "text": "meeting at noon"}}
{"name": "computer_use", "arguments": {"action": "key", "keys": ["ctrl", "s"]}}
{"name": "computer_use", "arguments": {"action": "scroll", "coordinate": [50, 40], "pixels": -3}}
{"name": "computer_use", "arguments": {"action": "left_click_drag", "coordinate": [12, 700]}}
{"name": "computer_use", "arguments": {"action": "wait", "time": 1}}
{"name": "computer_use", "arguments": {"action": "answer", "text": "42"}}
{"name": "computer_use", "arguments": {"action": "terminate", "status": "success"}}
{"name": "computer_use", "arguments": {"action": "terminate", "status": "failure"}}
{"action_type": "drag", "x": 1, "y": 2, "to_x": 3, "to_y": 4}
{"action_type": "scroll", "x": 8, "y": 9, "direction": "down", "amount": 3}
{"action_type": "type", "text": "draft"} {"action_type": "key", "key": "ctrl+shift+Tab"}
{"action_type": "mouse_down", "button": "left"} {"action_type": "mouse_up", "button": "right"}
{"action_type": "wait", "seconds": 0.5} {"action_type": "screenshot"}
{"action_type": "done"} {"action_type": "fail"} {"action_type": "answer", "text": "yes"}
click type key scroll drag move wait screenshot done fail answer left right middle up down
key Return key Escape key ctrl+s key ctrl+a key ctrl+c key ctrl+v key alt+F4 key Tab key BackSpace
Action: click the Save button, then close the window. Action: type the new name into the field.
Thought: the dialog is open, so I should press Enter.
Thought: the file was saved; the task is complete.
Open the file notes.txt in the text editor, replace the second line, and save it.
Move every picture into the folder Pictures and every document into the folder Documents.
Turn on dark mode, choose the language and set the number of items per page in the settings.
Previous actions: none. The last action was rejected: the point lies outside the screen.
Instruction: Please generate the next move from the screenshot and the previous actions.
window menu button checkbox list field text file edit view search help ok cancel apply close
system user assistant tool true false null none success failure error status
"""


def _tokenizer() -> PreTrainedTokenizerBase:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import AddedToken, Qwen2TokenizerFast
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL_TOKENS) - len(TEXT_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus(), trainer)
    learned = json.loads(bpe.to_str())["model"]

    tokenizer = Qwen2TokenizerFast(
        vocab=learned["vocab"],
        merges=[tuple(pair) for pair in learned["merges"]],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in TEXT_TOKENS])
    if len(tokenizer) != VOCAB:
        raise RuntimeError(f"the corpus yields {len(tokenizer)} tokens, {VOCAB} are wanted")
    return tokenizer


def _chat_template(family: Family) -> str:
    trl = importlib.util.find_spec("trl")
    if trl is None or trl.origin is None:
        raise RuntimeError(
            "trl is not installed, and its wheel brings the chat templates: make setup"
        )
    path = Path(trl.origin).parent / "chat_templates" / CHAT_TEMPLATES[family]
    return path.read_text(encoding="utf-8")


# --- model and image processor -----------------------------------------------------------------


def _model(
    family: Family, tokenizer: PreTrainedTokenizerBase, seed: int, generation: dict[str, Any]
) -> PreTrainedModel:
    import torch
    import transformers

    ids = {t: tokenizer.convert_tokens_to_ids(t) for t in SPECIAL_TOKENS}
    text: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": HIDDEN // HEAD_DIM,
        "num_key_value_heads": 1,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
    }
    vision: dict[str, Any] = {
        "depth": 2,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_heads": 2,
        "patch_size": _patch(family),
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": HIDDEN,
    }
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e6}
    # The mrope sections (time, height, width) share the rotary half of a head between them.
    if family == "qwen3_vl":
        rope |= {"mrope_section": [6, 5, 5], "mrope_interleaved": True}
        text |= {"head_dim": HEAD_DIM, "attention_bias": False}
        vision |= {"num_position_embeddings": 256, "deepstack_visual_indexes": [0]}
        config_class: Any = transformers.Qwen3VLConfig
        model_class: Any = transformers.Qwen3VLForConditionalGeneration
    elif family == "qwen2_5_vl":
        rope |= {"mrope_section": [4, 6, 6]}
        vision |= {"window_size": 112, "fullatt_block_indexes": [1]}
        config_class = transformers.Qwen2_5_VLConfig
        model_class = transformers.Qwen2_5_VLForConditionalGeneration
    else:
        rope |= {"mrope_section": [2, 1, 1], "mrope_interleaved": True}
        rope |= {"partial_rotary_factor": 0.25}
        text |= {"head_dim": HEAD_DIM, "layer_types": ["linear_attention", "full_attention"]}
        text |= {"linear_key_head_dim": HEAD_DIM, "linear_value_head_dim": HEAD_DIM}
        text |= {"linear_num_key_heads": 2, "linear_num_value_heads": 2}
        vision |= {"num_position_embeddings": 256}
        config_class = transformers.Qwen3_5Config
        model_class = transformers.Qwen3_5ForConditionalGeneration

    config = config_class(
        text_config=text | {"rope_parameters": rope},
        vision_config=vision,
        tie_word_embeddings=False,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = model_class(config).to(torch.float32)
    model.config.dtype = torch.float32
    neutral = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
    ends = {
        "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
        "pad_token_id": ids["<|endoftext|>"],
    }
    model.generation_config = transformers.GenerationConfig(**(neutral | ends | generation))
    return model


def _processor(family: Family, tokenizer: PreTrainedTokenizerBase, template: str) -> ProcessorMixin:
    import transformers

    side = 2 * _patch(family)  # pixels along one image token
    options: dict[str, Any] = {
        "size": {"shortest_edge": 4 * side**2, "longest_edge": MAX_IMAGE_TOKENS * side**2},
        "patch_size": _patch(family),
        "temporal_patch_size": 2,
        "merge_size": 2,
    }
    video_class: Any
    processor_class: Any
    if family == "qwen2_5_vl":
        video_class = transformers.Qwen2VLVideoProcessor
        processor_class = transformers.Qwen2_5_VLProcessor
    else:
        options |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
        video_class = transformers.Qwen3VLVideoProcessor
        processor_class = transformers.Qwen3VLProcessor
    tokenizer.chat_template = template
    processor: ProcessorMixin = processor_class(
        image_processor=transformers.Qwen2VLImageProcessor(**options),
        video_processor=video_class(**options),
        tokenizer=tokenizer,
        chat_template=template,
    )
    return processor


def _patch(family: Family) -> int:
    return 14 if family == "qwen2_5_vl" else 16


def _assignment(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, json.loads(value)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a tiny random Qwen-VL checkpoint.")
    parser.add_argument("out", type=Path, nargs="?", help="new directory (default: a cached one)")
    parser.add_argument("--family", choices=get_args(Family), default="qwen3_vl")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--generation",
        type=_assignment,
        action="append",
        default=[],
        metavar="FIELD=JSON",
        help="a field of generation_config.json, such as top_k=20; may be repeated",
    )
    args = parser.parse_args()
    out: Path | None = args.out
    if out is None:
        out = cached_checkpoint(args.family, args.seed, dict(args.generation))
    else:
        build_checkpoint(out, args.family, args.seed, dict(args.generation))
    print(out)


if __name__ == "__main__":
    main()
