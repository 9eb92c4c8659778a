"""Three everyday tasks, each with unboundedly many seeded variants."""

from __future__ import annotations

from collections.abc import Mapping

from legato.tasks.seeded import SeededTask

TASKS: Mapping[str, type[SeededTask]] = {}
