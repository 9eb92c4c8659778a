"""How tests get to the pages of the viewer."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from tests.view.chromium import Browser

SHOWN = "document.title.endsWith('· legato') && !!document.querySelector('main > *')"


def open_page(browser: Browser, url: str, fragment: str = "/") -> None:
    browser.open("about:blank")
    browser.open(f"{url}#{fragment}")
    browser.wait(f"location.hash === {json.dumps('#' + fragment)} && {SHOWN}")


def rollout_link(record: Any, step: int | None = None, run: int = 0) -> str:
    end = "" if step is None else f"/{step}"
    return f"/run/{run}/rollout/{quote(record['rollout_id'], safe='')}{end}"
