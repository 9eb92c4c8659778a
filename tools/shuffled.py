"""The control of the learning proof: verdicts change hands inside each group."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from legato.rl.driver import GroupResult
from legato.rl.row import Row
from legato_trl import LegatoGRPOTrainer


class Shuffled(LegatoGRPOTrainer):
    """Trains on advantages of shuffled verdicts; what is recorded and logged are the real ones."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._random = random.Random(self.args.seed)

    def _rows(self, group: GroupResult) -> list[Row]:
        rows = super()._rows(group)
        ids = list(dict.fromkeys(row.rollout_id for row in rows))
        worth = {row.rollout_id: (row.reward, row.advantage) for row in rows}
        others = self._random.sample(ids, len(ids))
        given = dict(zip(ids, (worth[other] for other in others), strict=True))
        return [
            replace(row, reward=given[row.rollout_id][0], advantage=given[row.rollout_id][1])
            for row in rows
        ]
