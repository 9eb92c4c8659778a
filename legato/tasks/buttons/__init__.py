"""Dialogs with a few labelled buttons: as plain as a desktop task gets, and quick to reset.

For screens of 160x128 pixels and up, which suit models of a few hundred thousand parameters.
"""

from __future__ import annotations

from collections.abc import Mapping

from legato.tasks.buttons.press import Find, Press, PressInOrder
from legato.tasks.seeded import SeededTask

TASKS: Mapping[str, type[SeededTask]] = {task.name: task for task in (Press, PressInOrder, Find)}
