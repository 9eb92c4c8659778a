"""Faults of the model server: counted, refilled, never a reward."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.rl.collect.command import records, run
from tests.rl.servers import Drop, Hang, ModelServer, Raw, Status

FAULTS = {
    "500": Status(500),
    "429": Status(429, headers=(("Retry-After", "0"),)),
    "garbage": Raw(b"<html>"),
    "hang": Hang(),
    "drop": Drop(),
    "nan": lambda answer: answer["choices"][0]["logprobs"]["content"][0].update(
        logprob=float("nan")
    ),
    "too few ids": lambda answer: answer["choices"][0].update(token_ids=[1]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_bad_answer_costs_a_retry(
    fault: str, server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    server.faults.append(FAULTS[fault])
    # Only where a call is to time out is there a bound that a busy machine might meet, too.
    bound = "8" if fault == "hang" else "120"
    done = run(server.url, tasks, tmp_path / "out", "--step-timeout", bound)
    assert done.returncode == 0, done.stderr
    found = records(tmp_path / "out")
    assert Counter(r["status"] for r in found) == {"ok": 6}
    assert sum(step["model"]["attempts"] - 1 for r in found for step in r["steps"]) == 1


@pytest.mark.parametrize("fault", ["500", "hang", "nan"])
def test_a_server_that_stays_bad_ends_the_run_without_rewards(
    fault: str, server: ModelServer, tasks: Path, tmp_path: Path
) -> None:
    server.always = FAULTS[fault]
    bound = "3" if fault == "hang" else "120"
    done = run(server.url, tasks, tmp_path / "out", "--step-timeout", bound, "--retries", "0")
    assert done.returncode == 1
    assert "lost to the model server" in done.stderr
    assert "Traceback" not in done.stderr
    found = records(tmp_path / "out")
    assert found
    assert {r["status"] for r in found} <= {"error", "cancelled", "skipped"}
    assert all(r["reward"] is None for r in found)
    assert all(r["error"]["kind"] == "policy" for r in found if r["status"] == "error")


def test_a_refused_field_is_dropped_and_noted_once(tasks: Path, tmp_path: Path) -> None:
    with ModelServer(reply="wait", refuse=frozenset({"return_token_ids"})) as server:
        done = run(server.url, tasks, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("return_token_ids") == 1
    for record in records(tmp_path / "out"):
        for step in record["steps"]:
            assert step["response"]["token_ids"] is None
            assert step["response"]["logprobs"]
