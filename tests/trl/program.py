"""A training run on the stage, as a program: ``accelerate launch -m tests.trl.program IN OUT``.

IN holds the checkpoint and the config's fields as JSON; OUT gets what each process trained on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from legato_trl import LegatoGRPOConfig, LegatoGRPOTrainer
from legato_trl.ranks import gather
from legato_trl.rows import Share
from tests.trl import stage


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    stage.set_up()
    trainer = LegatoGRPOTrainer(given["checkpoint"], LegatoGRPOConfig(**given["config"]))
    mine: list[list[dict[str, Any]]] = []
    make = trainer._tensoriser.tensors

    def tensors(share: Share) -> Any:
        mine.append(
            [
                {
                    "rollout_id": row.rollout_id,
                    "first_step": row.first_step,
                    "reward": row.reward,
                    "advantage": row.advantage,
                    "ids": list(row.response_ids),
                    "trained": any(row.loss_mask),
                }
                for row in share.rows
            ]
        )
        return make(share)

    trainer._tensoriser.tensors = tensors  # type: ignore[method-assign]
    try:
        trainer.train()
        everyones = gather([mine])
        if trainer.accelerator.is_main_process:
            logs = [entry for entry in trainer.state.log_history if "loss" in entry]
            Path(sys.argv[2]).write_text(json.dumps({"processes": everyones, "logs": logs}))
    finally:
        trainer.close()


if __name__ == "__main__":
    main()
