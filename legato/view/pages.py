"""What the viewer in the browser is made of, and how data reaches it.

Plain scripts and one style sheet, without a build step and without anything from elsewhere. Data
comes as scripts, too: a page opened from a ``file:`` address may run the scripts beside it but not
``fetch`` them. Such a script holds one call whose only argument beside its name is a string of
JSON, so that nothing in the data can be code.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from legato.rl.schema import dump_json

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)
"""The content security policy: of the page itself, and of the server where there is one."""

SCRIPTS = (
    "base.js",
    "data.js",
    "charts.js",
    "thumbs.js",
    "overlay.js",
    "filters.js",
    "run.js",
    "run_charts.js",
    "group.js",
    "tokens.js",
    "step.js",
    "rollout.js",
    "compare.js",
    "live.js",
    "main.js",
)
"""In the order in which they must run."""


def app_files() -> dict[str, bytes]:
    """The viewer by file name, ``index.html`` among them."""
    folder = files("legato.view") / "app"
    names = ("style.css", "icon.svg", *SCRIPTS)
    return {
        "index.html": _index_html().encode("ascii"),
        **{f"app/{name}": (folder / name).read_bytes() for name in names},
    }


def data_script(name: str, value: Any) -> bytes:
    """A script that hands ``value`` to the viewer as the data called ``name``.

    The value crosses over as a JSON string inside a JavaScript string, both pure ASCII.
    """
    return (
        b"legato.deliver("
        + _string(name.encode("ascii"))
        + b","
        + _string(dump_json(value))
        + b");\n"
    )


def _string(text: bytes) -> bytes:
    return b"'" + text.replace(b"\\", b"\\\\").replace(b"'", b"\\'") + b"'"


def _index_html() -> str:
    scripts = "\n".join(f'<script defer src="app/{name}"></script>' for name in SCRIPTS)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>legato</title>
<link rel="icon" href="app/icon.svg">
<link rel="stylesheet" href="app/style.css">
{scripts}
</head>
<body>
<noscript>The viewer needs JavaScript.</noscript>
</body>
</html>
"""
