"""What tests of tasks share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tasks.disk_machine import DiskMachine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[DiskMachine]:
    """A machine without a desktop; what a task gave it to own is closed."""
    machine = DiskMachine(tmp_path)
    yield machine
    for resource in reversed(machine.owned):
        resource.close()
