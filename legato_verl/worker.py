"""verl's agent-loop worker, running whole groups on the shared driver.

verl starts the ``n`` sessions of a prompt one by one and waits for all of them. Here a group is
one call: it starts more attempts than wanted, closes with the first ``n`` verdicts, cancels the
rest in the engine and on the desktop, and replaces what infrastructure took.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import transfer_queue as tq
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ, apply_greedy_sampling_params

from legato.errors import LegatoError
from legato.rl.driver import GroupResult
from legato_verl import loop as _loop  # noqa: F401 - registers the loop in this process
from legato_verl.outputs import outputs_of
from legato_verl.recorder import Mode
from legato_verl.settings import read_settings
from legato_verl.station import Station

log = logging.getLogger(__name__)

# verl hands out a Ray actor class, which cannot be subclassed; the class it was made of can.
_Base: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class


class LegatoAgentLoopWorker(_Base):
    """An async Ray actor; :class:`~legato_verl.manager.LegatoAgentLoopManager` makes it."""

    def __init__(self, config: Any, llm_client: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, llm_client, *args, **kwargs)
        self._station = Station(
            read_settings(config), self.llm_client, str(self.model_config.local_path)
        )

    async def stay(self) -> None:
        """Never returns: whoever waits for it learns of the worker's end."""
        await asyncio.Event().wait()

    async def look(self) -> dict[str, Any]:
        """What the desktops of this worker are doing; see :meth:`legato.rl.board.Board.look`."""
        return await self._station.board.look()

    async def picture(self, sha256: str) -> bytes | None:
        """A screenshot that :meth:`look` named."""
        return await self._station.board.picture(sha256)

    async def forget(self, uids: list[str], partition_id: str) -> None:
        """Take back rows that a worker that died may have left of these groups."""
        stored = (await tq.async_kv_list(partition_id) or {}).get(partition_id, {})
        left = [key for key in stored if "_" in key and key.rsplit("_", 2)[0] in set(uids)]
        if left:
            await tq.async_kv_clear(keys=left, partition_id=partition_id)

    async def _run_prompt(
        self,
        prompt: dict[str, Any],
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        trace: bool = False,
    ) -> None:
        """Run the prompt's group and put its rows where the trainer finds them."""
        uid = prompt["uid"]
        mode: Mode = "val" if trajectory["validate"] else "train"
        done = False
        try:
            await tq.async_kv_put(key=uid, partition_id=mode, tag={"status": "running"})
            done = await self._group(prompt, sampling_params, mode)
        except LegatoError as e:
            log.error("group of prompt %s: %s", uid, e)
            await self._station.give_up(str(e))
        except Exception as e:
            log.exception("group of prompt %s", uid)
            await self._station.give_up(f"{type(e).__name__}: {e}")
        finally:  # verl would wait forever for a prompt without an end
            await self._end(uid, mode, done)

    async def _end(self, uid: str, mode: Mode, done: bool) -> None:
        tag = {"status": "finished" if done else "failure"}
        try:
            await tq.async_kv_put(key=uid, partition_id=mode, tag=tag)
        except Exception as e:  # whatever it is, the trainer will never learn of this prompt's end
            log.exception("the end of prompt %s", uid)
            await self._station.give_up(f"prompt {uid} could not be ended: {e!r}")
            raise
        await self._station.settled(uid)

    async def _group(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any], mode: Mode
    ) -> bool:
        """Whether there is anything to train on."""
        rollout = self.config.actor_rollout_ref.rollout
        usual = rollout.val_kwargs.n if mode == "val" else rollout.n
        size = int(prompt.pop("__rollout_n__", usual))
        asked = dict(sampling_params)
        if mode == "train" and not prompt.pop("__do_sample__", True):
            apply_greedy_sampling_params(asked)
        prompt.pop("agent_name", None)
        result = await self._station.run_group(
            prompt["task"], int(prompt["global_steps"]), asked, mode=mode, size=size
        )
        rows = await self._put(result, prompt, mode)
        await self._station.group_ended(prompt["uid"], result, rows, mode=mode)
        return rows > 0

    async def _put(self, result: GroupResult, prompt: dict[str, Any], mode: Mode) -> int:
        """Hand over the rows of a group's verdicts; returns how many."""
        least = 1 if mode == "val" else self._station.settings.rollout.min_group
        if len(result.rewards) < least:
            return 0
        outputs = await self._outputs(result, prompt, mode)
        for session, rows in enumerate(outputs):
            await self._agent_loop_postprocess(rows, mode == "val", session_id=session, **prompt)
        return sum(map(len, outputs))

    async def _outputs(
        self, result: GroupResult, prompt: dict[str, Any], mode: Mode
    ) -> list[list[AgentLoopOutput]]:
        """The rows of each rollout with a verdict."""
        return [
            outputs_of(kept, result.advantages[kept.attempt], self._station.vision)
            for kept in result.rollouts
        ]
