"""Tasks in OSWorld's format that the guest of the tests can do, each with its actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from legato.desktop.actions import AnyAction, Click, Key, Type
from legato.desktop.contract import Task
from legato.tasks import parse_tasks

NOTES = "/home/user/Documents/notes.txt"
OPEN_NOTES: list[dict[str, Any]] = [
    {"type": "launch", "parameters": {"command": ["mousepad", NOTES]}},
    {
        "type": "execute_with_verification",
        "parameters": {
            "command": ["true"],
            "verification": {"window_exists": "Mousepad"},
            "max_wait_time": 60,
            "check_interval": 0.2,
        },
    },
    {"type": "activate_window", "parameters": {"window_name": "Mousepad"}},
]


@dataclass(frozen=True)
class Example:
    name: str
    config: dict[str, Any]
    right: Sequence[AnyAction]
    wrong: Sequence[AnyAction]
    domain: str = "vs_code"

    @property
    def task(self) -> Task:
        entry = {"task_id": self.name, "domain": self.domain, "config": self.config}
        return parse_tasks([entry], backend="osworld")[0]


def _rule(expected: str) -> dict[str, Any]:
    return {"type": "rule", "rules": {"expected": expected}}


def _append(line: str) -> list[AnyAction]:
    return [Click(x=640, y=360), Key(key="ctrl+End"), Type(text=line), Key(key="ctrl+s")]


APPEND = Example(
    "append-a-line",
    {
        "instruction": "Append the line 'Total: <42> it\\'s' to notes.txt and save it.",
        "config": OPEN_NOTES,
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": ["tail", "-n1", NOTES]},
            "expected": _rule("Total: <42> it's\n"),
        },
    },
    _append("Total: <42> it's\n"),
    _append("Total: >42> it's\n"),
)

TWO_METRICS = Example(
    "two-metrics",
    {
        "instruction": "Replace the contents of notes.txt by 'done' and save it.",
        "config": OPEN_NOTES,
        "evaluator": {
            "postconfig": [{"type": "sleep", "parameters": {"seconds": 0.1}}],
            "func": ["exact_match", "check_include_exclude"],
            "conj": "and",
            "result": [
                {"type": "vm_command_line", "command": f"wc -l < {NOTES}", "shell": True},
                {"type": "vm_command_line", "command": ["cat", NOTES]},
            ],
            "expected": [
                _rule("1\n"),
                {"type": "rule", "rules": {"include": ["done"], "exclude": ["hello"]}},
            ],
        },
    },
    [Click(x=640, y=360), Key(key="ctrl+a"), Type(text="done\n"), Key(key="ctrl+s")],
    _append("done\n"),
)

NO_CONFIG = Example(
    "no-config",
    {
        "instruction": "Nothing is open: the file notes.txt must stay as it is. Report failure.",
        "evaluator": {"func": "infeasible"},
    },
    (),
    (),
)

SAVE_AS = Example(
    "save-as",
    {
        "instruction": "Save notes.txt under the name copy.txt in the same folder.",
        "config": OPEN_NOTES,
        "evaluator": {
            "func": "compare_text_file",
            "result": {
                "type": "vm_file",
                "path": "/home/user/Documents/copy.txt",
                "dest": "copy.txt",
            },
            "expected": {"type": "vm_file", "path": NOTES, "dest": "gold.txt"},
        },
    },
    [
        Click(x=640, y=360),
        Key(key="ctrl+shift+s"),
        Key(key="ctrl+a"),
        Type(text="copy.txt\n"),
    ],
    _append("copy\n"),
    domain="os",
)

EXAMPLES = (APPEND, TWO_METRICS, SAVE_AS)
