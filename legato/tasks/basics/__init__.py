"""Three everyday tasks, each with unboundedly many seeded variants."""

from __future__ import annotations

from collections.abc import Mapping

from legato.tasks.basics.edit_text import EditText
from legato.tasks.basics.tidy_files import TidyFiles
from legato.tasks.basics.web_settings import WebSettings
from legato.tasks.seeded import SeededTask

TASKS: Mapping[str, type[SeededTask]] = {
    task.name: task for task in (EditText, TidyFiles, WebSettings)
}
