"""Judging an end state in a process of its own, on the host, out of the agent's reach.

A *judge* is one stdlib-only Python file with ``judge(evidence) -> list[dict]``. The evidence is
plain JSON collected from a frozen machine, so the judge needs neither the desktop nor the file
system. It runs confined (:mod:`legato.tasks.confined`) and within a wall-clock deadline.

Each check is ``{"name": str, "kind": "progress" | "guard", "passed": bool, "detail": str}``,
the last optional, and may carry partial credit as ``"share"`` in [0, 1].
Whatever else comes out is a broken verifier, :class:`~legato.errors.GradeFailure`, and never a
verdict of 0. A judge therefore treats what the agent left behind (wrong encodings, giants,
binaries) as failed checks.

Should it break all the same, the question is whose doing it was. The same judge is asked about the
same task as it stood at its start, which it reads in the same way. If it breaks on that as well,
the verifier is broken; if it does not, and breaks on what the agent left again, then that broke
it, and it is the agent's 0.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from legato.desktop.contract import Check
from legato.errors import GradeFailure
from legato.tasks.confined import NETWORKED
from legato.tasks.host_process import Limits, how_it_ended, last_line, start_confined


class _CheckLine(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=200)
    kind: Literal["progress", "guard"]
    passed: bool
    detail: str = Field(default="", max_length=2000)
    share: float | None = Field(default=None, ge=0.0, le=1.0)


class _Verdict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    checks: list[_CheckLine] = Field(min_length=1, max_length=1000)


UNREADABLE = "what was left behind can be read"
"""The guard that fails when the agent's files break the verifier."""


class _Broke(GradeFailure):
    """The judge crashed, passed a limit or said something else than a verdict."""


def run_judge(
    judge: Path,
    evidence: Mapping[str, Any],
    *,
    untouched: Callable[[], Mapping[str, Any]] | None = None,
    limits: Limits | None = None,
) -> list[Check]:
    """Run one judge on JSON-serialisable evidence and return its checks.

    ``untouched`` makes the evidence of the task's start, if it comes to that. Raises
    :class:`~legato.errors.GradeFailure` if the judge crashes, passes a limit or answers with
    anything but a valid verdict, unless it does so on what the agent left alone.
    """
    limits = limits or Limits()
    try:
        return _verdict(judge, evidence, limits)
    except _Broke:
        if untouched is None:
            raise
    start = _verdict(judge, untouched(), limits)
    try:
        return _verdict(judge, evidence, limits)  # a passing fault of ours
    except _Broke as e:
        void = [replace(c, passed=False, share=None) for c in start if c.kind == "progress"]
        return [*void, Check(UNREADABLE, "guard", False, str(e)[:2000])]


def _verdict(judge: Path, evidence: Mapping[str, Any], limits: Limits) -> list[Check]:
    raw = _run(judge, json.dumps(evidence).encode(), limits)
    try:
        verdict = _Verdict.model_validate_json(raw)
    except ValidationError as e:
        problem = e.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"])) or "output"
        raise _Broke(
            f"verifier {judge.name} did not return a valid verdict ({where}: {problem['msg']}); "
            f"it began with {raw[:80]!r}",
            transient=False,
        ) from None
    names = [line.name for line in verdict.checks]
    if len(set(names)) < len(names):
        raise _Broke(f"verifier {judge.name} named a check twice", transient=False)
    return [Check(c.name, c.kind, c.passed, c.detail, c.share) for c in verdict.checks]


def _run(judge: Path, evidence: bytes, limits: Limits) -> bytes:
    """Files instead of pipes: their size is bounded by the child's own file-size limit."""
    try:
        with (
            tempfile.TemporaryFile() as stdin,
            tempfile.TemporaryFile() as stdout,
            tempfile.TemporaryFile() as stderr,
        ):
            stdin.write(evidence)
            stdin.seek(0)
            child = start_confined(
                "judge", judge, limits=limits, stdin=stdin, stdout=stdout, stderr=stderr
            )
            try:
                code = child.wait(limits.wall_s)
            finally:
                child.kill()
                child.wait(5.0)
            if code != 0:
                why = f"{how_it_ended(code)}{last_line(stderr)}"
                if code == NETWORKED:
                    raise GradeFailure(f"verifier {judge.name} {why}")
                raise _Broke(f"verifier {judge.name} {why}")
            stdout.seek(0)
            return stdout.read(limits.output_bytes + 1)
    except subprocess.TimeoutExpired:
        raise _Broke(f"verifier {judge.name} passed its deadline of {limits.wall_s:g} s") from None
    except OSError as e:
        raise GradeFailure(f"could not run the verifier {judge.name}: {e}") from e


# --- evidence ----------------------------------------------------------------------------------


def pack_bytes(data: bytes) -> str:
    """How bytes travel in the evidence; a judge reads them back with ``base64.b64decode``."""
    return base64.b64encode(data).decode("ascii")
