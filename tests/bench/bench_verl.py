"""The figures of ``make verl-demo``: steps of ``main_ppo``, the last with other screenshots."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO))  # so that this runs as a script

from tools.verl_demo import demo  # noqa: E402


def main() -> None:
    os.chdir(REPO)
    for figure in demo(Path(time.strftime("runs/bench-verl-%Y%m%d-%H%M%S")), sys.argv[1:]):
        print(f"verl: {figure.name}: {figure.value} (bar {figure.bar})")


if __name__ == "__main__":
    main()
