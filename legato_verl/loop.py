"""The agent loop ``legato``: attempts at tasks on desktops, as verl's loops."""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register

from legato.errors import ConfigError
from legato_verl.loop_names import LOOP, MANAGER


@register(LOOP)
class LegatoAgentLoop(AgentLoopBase):
    """What verl knows the loop by.

    Attempts come in groups, whose stragglers are cancelled and whose losses are refilled, so it is
    the worker that runs them (:mod:`legato_verl.worker`), all of a prompt together. verl's own
    worker would start them one by one, and is refused.
    """

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        raise ConfigError(
            "the agent loop legato runs under its own manager: set "
            f"actor_rollout_ref.rollout.agent.agent_loop_manager_class={MANAGER} (which "
            "+actor_rollout_ref.rollout.agent=legato does)"
        )
