"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

RunDirectory = Annotated[Path, typer.Argument(help="A run directory made by collect.")]
PolicyUrl = Annotated[
    str | None, typer.Option("--policy-url", help="The server's OpenAI-style base, …/v1.")
]
Model = Annotated[str | None, typer.Option("--model", help="Model name as the server knows it.")]
Tokenizer = Annotated[
    str | None,
    typer.Option("--tokenizer", help="Folder with tokenizer.json or hub id. [default: the model]"),
]
Api = Annotated[
    str | None,
    typer.Option("--api", help="auto, tokens (token ids in and out) or chat. [default: auto]"),
]
Version = Annotated[str | None, typer.Option("--version", help="Policy version to record.")]
StepTimeout = Annotated[
    float | None, typer.Option("--step-timeout", help="Seconds per model call. [default: 60]")
]
Retries = Annotated[
    int | None, typer.Option("--retries", help="Repeats of a failed model call. [default: 1]")
]
Temperature = Annotated[float | None, typer.Option("--temperature", help="[default: 1.0]")]
TopP = Annotated[float | None, typer.Option("--top-p", help="[default: 1.0]")]
TopK = Annotated[int | None, typer.Option("--top-k", help="0: whole vocabulary. [default: 0]")]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", help="Tokens per reply. [default: 512]")
]
BanId = Annotated[
    list[int] | None, typer.Option("--ban-id", help="Token id never to sample; repeatable.")
]
BanToken = Annotated[
    list[str] | None,
    typer.Option(
        "--ban-token",
        help="Special token never to sample; repeatable, '' for none. [default: vision pads]",
    ),
]
Harness = Annotated[
    str | None,
    typer.Option("--harness", help="qwen3_5, qwen3_vl, qwen2_5_vl, compact. [default: qwen3_5]"),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="A YAML file of settings, over the groups.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Config overrides: desktop=fake harness=compact rollout.group=8 …"),
]


def sampling_flags(
    temperature: float | None,
    top_p: float | None,
    top_k: int | None,
    max_tokens: int | None,
    ban_id: list[int] | None,
    ban_token: list[str] | None,
) -> dict[str, Any]:
    """What was given of the distribution, by its place in the settings."""
    return {
        "sampling.temperature": temperature,
        "sampling.top_p": top_p,
        "sampling.top_k": top_k,
        "sampling.max_tokens": max_tokens,
        "sampling.banned_ids": ban_id or None,
        "sampling.banned_tokens": [t for t in ban_token if t] if ban_token else None,
    }
