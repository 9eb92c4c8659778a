"""What importing verl brings along, through the installed entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys

LOOK = """
import json, sys
import verl
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
import verl.utils.import_utils, verl.utils.tensordict_utils
found = [kind.__name__ for kind in Plugins.instance().discover(SearchPathPlugin)]
print(json.dumps({
    "search path": "LegatoConfigs" in found,
    "ours": sorted(name for name in sys.modules if name.startswith("legato_verl")),
    "trl": verl.utils.import_utils.is_trl_available(),
    "fixed": hasattr(verl.utils.tensordict_utils.maybe_fix_3d_position_ids, "legato"),
}))
"""


def imported(**environment: str) -> dict[str, object]:
    env = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"}
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env=env | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_run_on_gpus_loads_nothing_of_the_cpu_support() -> None:
    found = imported()
    assert found["search path"]
    assert found["fixed"]
    assert not found["trl"]  # this environment's TRL lacks what verl would take from it
    ours = found["ours"]
    assert isinstance(ours, list)
    assert "legato_verl.plugin" in ours
    assert not [name for name in ours if name.startswith("legato_verl.cpu")]
    assert not {"legato_verl.worker", "legato_verl.manager"} & set(ours)


def test_a_run_without_a_gpu_asks_for_it() -> None:
    ours = imported(VERL_PLATFORM="cpu")["ours"]
    assert isinstance(ours, list)
    assert "legato_verl.cpu.platform" in ours
