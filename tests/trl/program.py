"""A training run on the stage, as a program: ``accelerate launch -m tests.trl.program IN OUT``.

IN holds the checkpoint and the config's fields as JSON; OUT gets what each process trained on,
and the error with which each ended a second run, whose desktops never start.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from legato.errors import EnvFailure
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
    finally:
        trainer.close()
    told = {
        "processes": gather([mine]),
        "logs": [entry for entry in trainer.state.log_history if "loss" in entry],
        "errors": gather([run_without_desktops(given)]),
    }
    if trainer.accelerator.is_main_process:
        Path(sys.argv[2]).write_text(json.dumps(told))


def run_without_desktops(given: dict[str, Any]) -> str:
    dead = {"kind": "crash", "call": "prepare", "p": 1.0}
    fields = given["config"]
    desktop = {**fields["desktop"], "options": {"faults": [dead]}}
    out = f"{fields['output_dir']}-dead"
    config = LegatoGRPOConfig(**{**fields, "desktop": desktop, "output_dir": out})
    trainer = LegatoGRPOTrainer(given["checkpoint"], config)
    try:
        trainer.train()
    except EnvFailure as e:
        return str(e)
    finally:
        trainer.close()
    return "it trained"


if __name__ == "__main__":
    main()
