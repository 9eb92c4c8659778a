"""What of a checkpoint must be right before any of it is loaded or trained."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, AutoProcessor, ProcessorMixin

from legato.errors import ConfigError
from legato.rl.images import ImageSpec
from legato.rl.samples import Vision


def load_processor(checkpoint: str, *, trust_remote_code: bool = False) -> ProcessorMixin:
    """The processor of a vision-language checkpoint.

    Raises :class:`~legato.errors.ConfigError` for a text-only model, and for a checkpoint that
    lacks its processor.
    """
    try:
        config: Any = AutoConfig.from_pretrained(checkpoint, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as e:
        raise ConfigError(f"model: no checkpoint at {checkpoint!r}: {e}") from None
    if getattr(config, "vision_config", None) is None:
        raise ConfigError(
            f"model: {checkpoint!r} is a text-only {config.model_type}; desktops are seen through "
            "screenshots: name a vision-language checkpoint such as Qwen/Qwen3-VL-8B-Instruct"
        )
    try:
        processor = AutoProcessor.from_pretrained(
            checkpoint,
            truncation_side="left",
            padding_side="left",
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError, TypeError) as e:
        raise ConfigError(_no_processor(checkpoint, str(e))) from None
    if getattr(processor, "image_processor", None) is None:
        raise ConfigError(_no_processor(checkpoint, "AutoProcessor finds a tokenizer only"))
    return processor


def vision_of(checkpoint: str, processor: Any) -> Vision:
    """How screenshots become tokens. Raises :class:`~legato.errors.ConfigError`."""
    token = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    if token is None or token == processor.tokenizer.unk_token_id:
        raise ConfigError(f"model: the tokenizer of {checkpoint!r} has no <|image_pad|>")
    return Vision(int(token), ImageSpec.load(checkpoint))


def _no_processor(checkpoint: str, why: str) -> str:
    return (
        f"model: {checkpoint!r} has no image processor ({why}): copy preprocessor_config.json and "
        "processor_config.json of the original model into it"
    )
