"""Training rows as the outputs of verl's agent loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

from legato.desktop.contract import Screenshot
from legato.errors import SampleError
from legato.rl.figures import PHASES
from legato.rl.row import Expanded, Row
from legato.rl.samples import Vision, samples_from, screenshots
from legato.rl.summary import SUCCESS
from legato.rl.types import Rollout, Status


def outputs_of(rollout: Rollout, advantage: float, vision: Vision) -> list[AgentLoopOutput]:
    """One output per row of a rollout with a verdict; none if it never took a step.

    The reward is the verdict on all of them. ``extra_fields`` hold, the same names in each: what
    verl reads (``reward_extra_info``, ``min_global_steps``, ``max_global_steps``), ``advantage``
    (the driver's), and ``turns``, ``[step, start, stop]`` of each reply in the response. Raises
    :class:`~legato.errors.SampleError`.
    """
    shown = screenshots([rollout])
    return [
        _output(rollout, row, advantage, vision, shown)
        for row in samples_from([rollout], vision=vision)
    ]


def told(rollout: Rollout) -> dict[str, float | str]:
    """What verl averages over a validation run if it is a number, and dumps with a generation."""
    timing = rollout.timing
    return {
        "success": float((rollout.reward or 0.0) >= SUCCESS),
        "turns": float(len(rollout.steps)),
        "status": str(rollout.status),
        "truncated": float(rollout.status is Status.TRUNCATED),
        "seconds": timing.total_s,
        **{
            f"{share}_s": sum(getattr(timing, phase) for phase in phases)
            for share, phases in PHASES.items()
        },
    }


def _output(
    rollout: Rollout,
    row: Row,
    advantage: float,
    vision: Vision,
    shown: Mapping[str, Screenshot],
) -> AgentLoopOutput:
    wide = row.expanded(vision.image_token_id)
    if wide.logprobs is None:
        raise SampleError(f"rollout {row.rollout_id} has no logprobs to train with")
    return AgentLoopOutput(
        prompt_ids=wide.prompt_ids,
        response_ids=wide.response_ids,
        response_mask=wide.loss_mask,
        response_logprobs=wide.logprobs,
        multi_modal_data={"images": [shown[image.sha256].pil() for image in row.images]},
        reward_score=row.reward,
        num_turns=len(rollout.steps),
        metrics=AgentLoopMetrics(
            generate_sequences=rollout.timing.model_s,
            tool_calls=rollout.timing.act_s + rollout.timing.wait_s,
            compute_score=rollout.timing.eval_s,
        ),
        mm_processor_kwargs={},
        extra_fields=extra_fields(rollout, row, wide, advantage),
    )


def extra_fields(rollout: Rollout, row: Row, wide: Expanded, advantage: float) -> dict[str, Any]:
    return {
        "reward_extra_info": told(rollout),
        "min_global_steps": int(row.policy_version_min),
        "max_global_steps": int(row.policy_version_max),
        "global_steps": int(row.policy_version_max),
        "rollout_id": row.rollout_id,
        "status": str(rollout.status),
        "advantage": advantage,
        "turns": [list(turn) for turn in wide.turns],
    }
