"""How Qwen models write a tool call: JSON (Qwen2.5-VL, Qwen3-VL) or XML-like (Qwen3.5).

The frames, :func:`json_frame` and :func:`xml_frame`, are what the models' own chat templates put
into the system message when they are given a tool; the models were trained on that very wording,
so it is part of the format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from legato.errors import ActionError
from legato.rl.harness.computer_use import TOOL

_JSON_FRAME = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tool}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""

_XML_FRAME = """\
# Tools

You have access to the following functions:

<tools>
{tool}
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must \
be nested within <tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the \
function call, but NOT after
- If there is no function call available, answer the question like normal with your current \
knowledge and do not tell the user about function calls
</IMPORTANT>"""

# Qwen2.5-VL sometimes writes these in place of a tag; OSWorld's agent knows them too.
_ODD_TAG = re.compile(r"^[ \t]*(?:⚗|📐)\ufe0f?[ \t]*$", re.MULTILINE)
_LISTS = frozenset({"coordinate", "coordinate2", "keys"})
_MARKS = re.compile(r"</?(?:tool_call|think|function|parameter)\b")


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """One way to write calls."""

    read: Callable[[str], Iterator[Mapping[str, Any]]]
    """The arguments of each call of a reply, in order; raises ``ActionError`` on the first that
    cannot be read."""
    write: Callable[[Mapping[str, Any]], str]
    """The inverse, for one call. Raises ``ActionError`` if a text looks like a tag."""


def json_frame(tool: Mapping[str, Any]) -> str:
    return _JSON_FRAME.format(tool=json.dumps(tool, ensure_ascii=False))


def xml_frame(tool: Mapping[str, Any]) -> str:
    return _XML_FRAME.format(tool=json.dumps(tool, ensure_ascii=False))


def _json_calls(reply: str) -> Iterator[Mapping[str, Any]]:
    """A closing tag may be missing at the end, and a call on a line of its own needs no tags."""
    prose, *blocks = _ODD_TAG.sub("<tool_call>", reply).split("<tool_call>")
    yield from _bare_calls(prose)
    for block in blocks:
        body, _, prose = block.partition("</tool_call>")
        if body.strip():
            yield _arguments(_load(body))
        yield from _bare_calls(prose)


def _xml_calls(reply: str) -> Iterator[Mapping[str, Any]]:
    """Values are what stands between their tags; lists are read as JSON.

    ``text`` loses the one line break on either side that the format puts there, nothing else.
    """
    blocks = reply.split("<function=")[1:]
    if not blocks and "<tool_call>" in reply:
        raise ActionError(f"the tool call must hold a <function={TOOL}> block")
    for block in blocks:
        head, closed, _ = block.partition("</function>")
        if not closed:
            raise ActionError("the <function=...> block does not end with </function>")
        name, _, body = head.partition(">")
        _check_name(name.strip())
        yield dict(_parameter(piece) for piece in body.split("<parameter=")[1:])


def _write_json(arguments: Mapping[str, Any]) -> str:
    call = json.dumps({"name": TOOL, "arguments": arguments}, ensure_ascii=False)
    _check_marks(arguments)
    return f"<tool_call>\n{call}\n</tool_call>"


def _write_xml(arguments: Mapping[str, Any]) -> str:
    _check_marks(arguments)
    parameters = "".join(
        f"<parameter={name}>\n{value if isinstance(value, str) else json.dumps(value)}\n"
        "</parameter>\n"
        for name, value in arguments.items()
    )
    return f"<tool_call>\n<function={TOOL}>\n{parameters}</function>\n</tool_call>"


def _bare_calls(prose: str) -> Iterator[Mapping[str, Any]]:
    for line in map(str.strip, prose.split("\n")):
        if line.startswith("{") and line.endswith("}") and '"name"' in line:
            yield _arguments(_load(line))


def _arguments(call: object) -> Mapping[str, Any]:
    if not isinstance(call, dict) or "name" not in call:
        raise ActionError('a tool call is {"name": ..., "arguments": {...}}')
    _check_name(call["name"])
    arguments = call.get("arguments")
    if not isinstance(arguments, dict):
        raise ActionError("the tool call's arguments must be a JSON object")
    return arguments


def _check_name(name: object) -> None:
    if name != TOOL:
        raise ActionError(f"there is no tool of that name; the only one is {TOOL}")


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ActionError(f"the tool call is not valid JSON: {error}") from None


def _parameter(piece: str) -> tuple[str, Any]:
    content, closed, _ = piece.rpartition("</parameter>")
    name, named, value = content.partition(">")
    name = name.strip()
    if not closed or not named:
        raise ActionError("a <parameter=...> does not end with </parameter>")
    if name == "text":
        return name, value.removeprefix("\n").removesuffix("\n")
    value = value.strip()
    if name in _LISTS and value.startswith("["):
        try:
            return name, json.loads(value)
        except (ValueError, RecursionError):
            return name, value  # refused where it is used, by the name of the parameter
    return name, value


def _check_marks(arguments: Mapping[str, Any]) -> None:
    if _MARKS.search(json.dumps(arguments)):
        raise ActionError("a text that looks like a tag of the reply format cannot be written")


JSON_CALLS = CallGrammar(_json_calls, _write_json)
XML_CALLS = CallGrammar(_xml_calls, _write_xml)
