"""What verl imports in each of its processes (entry-point group ``verl.plugins``).

verl imports this module while it is itself being imported, calls nothing in it, and keeps quiet
when that fails. So the work is done at import, imports as little as possible, and reports its own
errors.
"""

from __future__ import annotations

import logging
import os

from legato_verl.search_path import use_config_groups

log = logging.getLogger(__name__)

try:
    use_config_groups()
    from legato_verl import position_ids, trl_beside

    position_ids.fix()
    trl_beside.settle()
    if os.environ.get("VERL_PLATFORM", "").lower() == "cpu":
        from legato_verl import cpu

        cpu.enable()
except Exception:
    log.exception("legato cannot be used in this process")
