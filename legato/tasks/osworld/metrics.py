"""OSWorld's plain metrics on text and files, as a judge for :mod:`legato.tasks.verifier`.

Names, arguments and results follow OSWorld's ``desktop_env.evaluators.metrics`` (desktop-env
1.0.2). Stdlib only. What the agent left behind is data: undecodable, huge or missing results earn
0, they never crash the judge.

Evidence: ``{"metrics": [{"func", "result", "expected", "options"}]}``. A result, and an expected
file, is ``{"text": str}``, ``{"file": base64}`` or ``null`` when there is none; an expected rule
is ``{"rule": ...}``.
"""

from __future__ import annotations

import base64
import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

MAX_COMPARED = 100_000
"""Longest text, in characters, and most lines that the quadratic comparisons look at."""


def check_include_exclude(result: str, rules: Mapping[str, Any]) -> float:
    included = all(part in result for part in rules.get("include", []))
    excluded = all(part not in result for part in rules.get("exclude", []))
    return float(included and excluded)


def exact_match(result: str, rules: Mapping[str, Any]) -> float:
    return float(result == rules["expected"])


def match_in_list(result: str, rules: Mapping[str, Any]) -> float:
    return float(result in rules["expected"])


def is_in_list(result: str, rules: Mapping[str, Any]) -> float:
    return float(rules["expected"] in result)


def literal_match(result: str, expected: Any, *, ignore_case: bool = False) -> float:
    left, right = str(result), str(expected)
    return float(left.lower() == right.lower() if ignore_case else left == right)


def fuzzy_match(result: str, rules: Mapping[str, Any]) -> float:
    """Indel similarity, 2 * LCS / (len + len): what ``rapidfuzz.fuzz.ratio`` / 100 computes."""
    expected = str(rules["expected"])
    total = len(result) + len(expected)
    if total == 0:
        return 1.0
    if len(result) > MAX_COMPARED:
        return 0.0
    return 2.0 * _lcs_length(expected, result) / total


def _lcs_length(a: str, b: str) -> int:
    """Length of the longest common subsequence; Hyyro's bit-parallel recurrence."""
    masks: dict[str, int] = {}
    for i, char in enumerate(a):
        masks[char] = masks.get(char, 0) | (1 << i)
    full = (1 << len(a)) - 1
    state = full
    for char in b:
        match = state & masks.get(char, 0)
        state = ((state + match) | (state - match)) & full
    return len(a) - state.bit_count()


def compare_text_file(
    result: bytes, expected: bytes, *, ignore_blanks: bool = False, ignore_case: bool = False
) -> float:
    texts = [_read(result), _read(expected)]
    if ignore_blanks:
        texts = [re.sub(r"\s+", " ", re.sub(r"[\t\n]", " ", text).strip()) for text in texts]
    if ignore_case:
        texts = [text.lower() for text in texts]
    return float(texts[0] == texts[1])


def diff_text_file(result: bytes, expected: bytes) -> float:
    lines, wanted = _read(result).splitlines(), _read(expected).splitlines()
    if len(lines) > MAX_COMPARED or len(lines) > 10 * len(wanted) + 1000:
        return 0.0
    return difflib.SequenceMatcher(a=lines, b=wanted).ratio()


def check_list(result: bytes, rules: Mapping[str, Any]) -> float:
    lines = _read(result).split("\n")
    expect = [re.compile(pattern) for pattern in rules.get("expect", [])]
    unexpect = [re.compile(pattern) for pattern in rules.get("unexpect", [])]
    found = all(any(pattern.search(line) for line in lines) for pattern in expect)
    clean = not any(pattern.search(line) for line in lines for pattern in unexpect)
    return float(found and clean)


METRICS: Mapping[str, Callable[..., float]] = {
    metric.__name__: metric
    for metric in (
        check_include_exclude,
        exact_match,
        match_in_list,
        is_in_list,
        literal_match,
        fuzzy_match,
        compare_text_file,
        diff_text_file,
        check_list,
    )
}


def _read(data: bytes) -> str:
    """Text as ``open(path)`` gives it: UTF-8 with newlines translated."""
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def _value(packed: Mapping[str, Any]) -> Any:
    if "file" in packed:
        return base64.b64decode(packed["file"])
    return packed["text"] if "text" in packed else packed["rule"]


def judge(evidence: Mapping[str, Any]) -> list[dict[str, Any]]:
    checks = []
    for number, item in enumerate(evidence["metrics"]):
        share, detail = 0.0, ""
        if item["result"] is None or item["expected"] is None:
            detail = "there is no such file or output"
        else:
            try:
                share = METRICS[item["func"]](
                    _value(item["result"]), _value(item["expected"]), **item["options"]
                )
            except UnicodeDecodeError:
                detail = "not a UTF-8 text"
        checks.append(
            {
                "name": f"{number}: {item['func']}",
                "kind": "progress",
                "passed": share == 1.0,
                "detail": detail or f"{share:.3f}",
                "share": share,
            }
        )
    return checks
