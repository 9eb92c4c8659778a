"""Tasks in programs that people use: an editor, a spreadsheet, a shop, pictures, an archive."""

from __future__ import annotations

from collections.abc import Mapping

from legato.tasks.desktop_apps.calc_sheet import CalcSheet
from legato.tasks.desktop_apps.edit_text import EditText
from legato.tasks.desktop_apps.unpack_archive import UnpackArchive
from legato.tasks.desktop_apps.view_pictures import ViewPictures
from legato.tasks.desktop_apps.web_shop import WebShop
from legato.tasks.seeded import SeededTask

TASKS: Mapping[str, type[SeededTask]] = {
    task.name: task for task in (EditText, CalcSheet, WebShop, ViewPictures, UnpackArchive)
}
