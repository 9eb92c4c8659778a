"""What the server, the pages and the judges must agree on. Stdlib only."""

from __future__ import annotations

import json
from typing import Any

UNSAVED = "• "
"""How a page's title begins while something on it is not saved."""
BROWSER = " - Chromium"
"""How the title of a window ends that is not the app's own: one with tabs."""
STATE_MARK = "__STATE__"
"""Where the server puts the current state whenever it serves a page."""


def script_value(value: Any) -> str:
    """A value as it may stand in a page's script: it cannot end the script."""
    return json.dumps(value).replace("<", "\\u003c")
