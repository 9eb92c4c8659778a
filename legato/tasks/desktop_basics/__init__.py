"""Five everyday tasks: a form, a list, settings and a sheet in a browser, and a file manager."""

from __future__ import annotations

from collections.abc import Mapping

from legato.tasks.desktop_basics.expense_sheet import ExpenseSheet
from legato.tasks.desktop_basics.file_manager import FileManager
from legato.tasks.desktop_basics.settings_tabs import SettingsTabs
from legato.tasks.desktop_basics.signup_form import SignupForm
from legato.tasks.desktop_basics.todo_list import TodoList
from legato.tasks.seeded import SeededTask

TASKS: Mapping[str, type[SeededTask]] = {
    task.name: task for task in (SignupForm, TodoList, SettingsTabs, ExpenseSheet, FileManager)
}
