"""What to do on a desktop and how it is judged.

``load_tasks`` reads a tasks file; ``list_tasks`` and ``load_task`` give the seeded tasks that
come with the package.
"""

from legato.tasks.suites import TaskInfo, list_tasks, load_task, seeds, split_of
from legato.tasks.tasks_file import load_tasks, parse_tasks

__all__ = [
    "TaskInfo",
    "list_tasks",
    "load_task",
    "load_tasks",
    "parse_tasks",
    "seeds",
    "split_of",
]
