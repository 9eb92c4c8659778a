"""Building the pages of a web app: plain HTML, everything at a fixed place, one shared script.

A page gets the state from the server whenever it is loaded and after every operation, and draws
itself anew (``render``). Its title begins with ``UNSAVED`` while something that was typed or
chosen is not in the state, so that grading can see it.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from legato.tasks.web.layout import Box, Theme
from legato.tasks.web.markup import STATE_MARK, UNSAVED, script_value
from legato.tasks.web.server import DO


def escape(text: str) -> str:
    return html.escape(text)


def heading(box: Box, text: str) -> str:
    return f'<h1 style="{box.style}">{escape(text)}</h1>'


def label(box: Box, text: str, target: str = "") -> str:
    bound = f' for="{target}"' if target else ""
    return f'<label{bound} style="{box.style}">{escape(text)}</label>'


def button(box: Box, name: str, text: str, script: str, kind: str = "") -> str:
    """``script`` runs when it is pressed; ``kind`` is a class, such as ``strong``."""
    return (
        f'<button type="button" id="{name}" class="{kind}" style="{box.style}" '
        f'onclick="{escape(script)}">{escape(text)}</button>'
    )


def text_field(box: Box, name: str) -> str:
    return (
        f'<input type="text" id="{name}" maxlength="200" spellcheck="false" autocomplete="off" '
        f'style="{box.style}">'
    )


def check_box(box: Box, name: str) -> str:
    return f'<input type="checkbox" id="{name}" autocomplete="off" style="{box.style}">'


def choice(box: Box, name: str, options: Sequence[str]) -> str:
    inside = "".join(f"<option>{escape(option)}</option>" for option in options)
    return f'<select id="{name}" autocomplete="off" style="{box.style}">{inside}</select>'


def notice(box: Box) -> str:
    """Where ``say`` writes."""
    return f'<div id="status" style="{box.style}"></div>'


def document(title: str, theme: Theme, body: Sequence[str], script: str, secret: str) -> str:
    """The whole page. ``script`` defines ``render()``, ``dirty()`` and what the buttons call."""
    return _PAGE.format(
        title=escape(title),
        name=script_value(title),
        paper=theme.paper,
        ink=theme.ink,
        accent=theme.accent,
        body="\n".join(body),
        secret=script_value(secret),
        state=STATE_MARK,
        script=script,
        do=DO,
        unsaved=script_value(UNSAVED),
    )


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><link rel="icon" href="data:,">
<style>
* {{ box-sizing: border-box; margin: 0; font: 16px "DejaVu Sans", sans-serif; }}
body {{ background: {paper}; color: {ink}; }}
h1, button, label, input, select, #status, .cell {{ position: absolute; }}
h1 {{ font-size: 24px; font-weight: bold; color: {accent}; white-space: nowrap; }}
label, #status, .cell {{ line-height: 32px; white-space: nowrap; overflow: hidden; }}
input[type=text], select {{
  border: 1px solid #777; background: #fff; color: #222; padding: 0 6px;
}}
button {{ border: 1px solid {accent}; background: #fff; color: {accent}; }}
button.now, button.strong {{ background: {accent}; color: #fff; }}
.pane {{ display: none; }} .pane.now {{ display: block; }}
.done {{ text-decoration: line-through; }}
</style></head><body>
{body}
<div id="drawn"></div>
<script>
const secret = {secret}, name = {name};
let state = {state};
let sending = false;
const field = id => document.getElementById(id);
const value = id => field(id).type === "checkbox" ? field(id).checked : field(id).value;
const go = path => {{ location.assign(path); }};
const say = text => {{ field("status").textContent = text; }};
const mark = () => {{ document.title = (dirty() ? {unsaved} : "") + name; }};
function put(id, v) {{
  if (field(id).type === "checkbox") field(id).checked = v; else field(id).value = v;
}}
function make(kind, style, text, extra) {{
  const e = Object.assign(document.createElement(kind), extra || {{}});
  e.style.cssText = style;
  if (text !== null) e.textContent = text;
  field("drawn").append(e);
  return e;
}}
// The second click of a double click: by then another row's button may stand there. Two clicks of
// which the first was waited for are further apart.
let clicked = -Infinity;
document.addEventListener("click", e => {{
  const again = e.detail > 1 && e.timeStamp - clicked < 150;
  clicked = e.timeStamp;
  if (again && e.target.closest("button")) e.stopPropagation();
}}, true);
async function send(request, done) {{
  if (sending) return;
  sending = true;
  try {{
    const answer = await fetch("{do}", {{method: "POST", body: JSON.stringify(request),
      headers: {{"Content-Type": "application/json", "X-Session": secret}}}});
    if (!answer.ok) return say("Could not save");
    state = JSON.parse(await answer.text());
    render();
    mark();
    say(done);
  }} catch (e) {{ say("Could not save"); }} finally {{ sending = false; }}
}}
{script}
render();
</script></body></html>
"""
