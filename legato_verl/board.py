"""The board of a run under verl: the recorder's tally, and the desktops of every worker.

A desktop's screenshots stay with the worker that drives it; only when somebody looks are the
workers asked.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ray.exceptions import RayError

from legato.rl.board import Board

ASK_S = 2.0
"""A worker that has not answered by then is shown without its desktops."""


class ClusterBoard(Board):
    """Implements :class:`~legato.rl.publish.Shown` over workers, actors with a ``look`` and a
    ``picture`` method."""

    def __init__(self) -> None:
        super().__init__()
        self._workers: dict[str, Any] = {}

    def enrol(self, name: str, worker: Any) -> None:
        """Ask this worker, too, until it is gone."""
        self._workers[name] = worker

    def more_groups(self, title: str, groups: int, verdicts: int) -> None:
        """A batch, or, while the last one is not through (asynchronous modes), more of it."""
        self.title = title
        if self.groups_done < self.groups:
            self.groups += groups
            self.wanted += verdicts
        else:
            self.batch_started(groups, verdicts, 0)

    async def look(self) -> dict[str, Any]:
        state = self.state()
        answers = await asyncio.gather(*(self._ask(name, "look") for name in list(self._workers)))
        desktops = [desktop for answer in answers if answer for desktop in answer["desktops"]]
        state["desktops"] = sorted(desktops, key=lambda desktop: desktop["slot"])
        return state

    async def picture(self, sha256: str) -> bytes | None:
        asked = (self._ask(name, "picture", sha256) for name in list(self._workers))
        return next((png for png in await asyncio.gather(*asked) if png is not None), None)

    async def _ask(self, name: str, method: str, *args: Any) -> Any:
        try:
            async with asyncio.timeout(ASK_S):
                return await getattr(self._workers[name], method).remote(*args)
        except RayError:
            self._workers.pop(name, None)
        except (TimeoutError, KeyError):
            pass
        return None
