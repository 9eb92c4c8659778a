"""The main job in earnest: a real vLLM, real desktops, the real commands; nothing scripted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from legato.desktop.fake import fake_tasks
from legato.rl import load_request, read_records
from legato.rl.schema import SCHEMA, prompt_ids
from legato.rl.tokens import load_tokenizer
from tests.conftest import REPO, Vllm
from tests.rl.harness.transformers_oracle import Oracle, transformers_oracle
from tests.view.walk import walk

pytestmark = [pytest.mark.vllm, pytest.mark.desktop]

TASKS = REPO / "recipes" / "tasks" / "demo.json"
CAP = 2
TEMPERATURE = 0.7
PHASES = {
    "reset_s", "wait_after_reset_s", "model_s", "act_s", "wait_s",
    "obs_s", "wait_before_eval_s", "eval_s", "total_s",
}  # fmt: skip


@dataclass(frozen=True)
class Batch:
    out: Path
    vllm: Vllm

    @property
    def records(self) -> list[dict[str, Any]]:
        return [dict(record) for record in read_records(self.out)]

    def export(self, *flags: str) -> list[dict[str, Any]]:
        path = self.out / "rows.jsonl"
        legato("export", str(self.out), "--out", str(path), *flags)
        return [json.loads(line) for line in path.read_text().splitlines()]


def legato(
    *args: str, timeout: float = 240, check: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "legato.rl", *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def collect_args(vllm: Vllm, out: Path, *more: str) -> list[str]:
    return [
        "collect", "--tasks", str(TASKS), "--out", str(out),
        "--policy-url", vllm.url, "--model", vllm.model, "--tokenizer", str(vllm.checkpoint),
        "--harness", "compact", "--max-tokens", "24", *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def batch(vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> Batch:
    out = tmp_path_factory.mktemp("batch") / "run"
    legato(
        *collect_args(vllm, out, "--version", "step-7", "--desktops", "4", "--group", "2"),
        *("--oversample", "0.5", "--max-steps", "4", "--max-inflight", str(CAP)),
        *("--temperature", str(TEMPERATURE), "--top-p", "1.0", "--seed", "5"),
    )
    return Batch(out, vllm)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with transformers_oracle() as asked:
        yield asked


def test_the_cap_on_requests_holds_at_the_server(vllm: Vllm, tmp_path: Path) -> None:
    """Four desktops that act at once, and a model that may not end a reply: requests overlap."""
    tasks = tmp_path / "tasks.json"
    tasks.write_text(json.dumps(fake_tasks(2, seed=1)))
    end = load_tokenizer(str(vllm.checkpoint)).special("<|im_end|>")
    over = threading.Event()
    seen: list[int] = []

    def watch() -> None:
        while not over.wait(0.02):
            text = httpx.get(f"{vllm.root}/metrics", timeout=60).text
            found = re.findall(
                r"^vllm:num_requests_(?:running|waiting)\{.*\} ([0-9.e+]+)$", text, re.M
            )
            seen.append(int(sum(map(float, found))) if found else -1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        legato(
            *collect_args(vllm, tmp_path / "run", "--tasks", str(tasks), "--backend", "fake"),
            *("--desktops", "4", "--group", "4", "--max-steps", "2", "--max-inflight", str(CAP)),
            *("--max-tokens", "100", "--ban-id", str(end)),
        )
    finally:
        over.set()
        watcher.join()
    records = list(read_records(tmp_path / "run"))
    lengths = [step["model"]["completion_tokens"] for r in records for step in r["steps"]]
    assert lengths == [100] * 2 * 4 * 2
    assert min(seen) >= 0, "the server does not tell how many requests it has"
    assert max(seen) == CAP


def test_every_field_of_the_record(batch: Batch) -> None:
    records = batch.records
    finals = [r for r in records if r["status"] in ("ok", "truncated")]
    tasks = json.loads(TASKS.read_text())
    assert Counter(r["group_id"] for r in finals) == {task["task_id"]: 2 for task in tasks}
    assert len({r["rollout_id"] for r in records}) == len(records)
    for record in records:
        assert record["schema"] == SCHEMA
        assert record["task_id"] == record["group_id"]
        assert isinstance(record["domain"], str)
        assert record["status"] in (
            "ok", "truncated", "cancelled", "skipped", "surplus", "retried", "error",
        )  # fmt: skip
        assert record["policy"]["model"] == batch.vllm.model
        assert record["n_steps"] == len(record["steps"])
        assert set(record["timing"]) == PHASES
    for record in finals:
        check_graded(batch, record)


def check_graded(batch: Batch, record: dict[str, Any]) -> None:
    assert record["policy"]["version"] == "step-7"
    assert record["error"] is None
    assert 0.0 <= record["reward"] <= 1.0
    assert {check["kind"] for check in record["score"]["checks"]} == {"progress", "guard"}
    timing = record["timing"]
    assert all(timing[phase] > 0 for phase in PHASES - {"act_s", "wait_s"})
    assert sum(timing[p] for p in PHASES - {"total_s"}) <= timing["total_s"] * 1.01
    tokenizer = load_tokenizer(str(batch.vllm.checkpoint))
    pad = tokenizer.special("<|image_pad|>")
    before: list[int] = []
    for step, ids in zip(record["steps"], prompt_ids(record), strict=True):  # type: ignore[arg-type]
        reply, model = step["response"], step["model"]
        assert ids is not None
        assert ids[: len(before)] == before, "the prompt must extend the last prompt and reply"
        assert ids.count(pad) == len(step["images"]) == len(step["image_tokens"])
        assert len(reply["token_ids"]) == len(reply["logprobs"]) == model["completion_tokens"] > 0
        assert all(p <= 0.0 for p in reply["logprobs"])
        assert reply["tokens"] is None
        decoded = tokenizer.decode(reply["token_ids"])
        assert reply["content"].strip() in decoded
        assert (reply["reasoning"] or "").strip() in decoded
        assert reply["finish_reason"] in ("stop", "length")
        assert model["prompt_tokens"] == len(ids) + sum(step["image_tokens"]) - len(step["images"])
        assert 0 <= model["cached_tokens"] <= model["prompt_tokens"]
        assert model["seconds"] > 0
        assert model["attempts"] >= 1
        assert step["policy_version"] == "step-7"
        assert step["sampling"]["temperature"] == TEMPERATURE
        assert pad in step["sampling"]["banned_ids"]
        assert step["actions"]
        for action in step["actions"]:
            assert (action["action"] is None) <= (action["error"] is not None)
            assert all(action[k] >= 0 for k in ("act_s", "wait_s", "ready_s", "obs_s"))
        before = ids + reply["token_ids"]
    check_requests(batch, record)


def check_requests(batch: Batch, record: dict[str, Any]) -> None:
    shown: list[str] = []
    for number, step in enumerate(record["steps"]):
        messages = load_request(batch.out, record, number)  # type: ignore[arg-type]
        assert [m["role"] for m in messages[-2:]][-1] == "user"
        parts = [p for m in messages if isinstance(m["content"], list) for p in m["content"]]
        urls = [p["image_url"]["url"] for p in parts if p["type"] == "image_url"]
        assert len(urls) == number + 1, "every screenshot stays in the prompt"
        assert urls[: len(shown)] == shown
        shown = urls
        assert len(step["request"]) == len(messages)
    for url in shown:
        name = url.removeprefix("legato-image://")
        png = (batch.out / "images" / f"{name}.png").read_bytes()
        assert sha256(png).hexdigest() == name


def test_actions_were_really_performed(batch: Batch) -> None:
    actions = [a for r in batch.records for s in r["steps"] for a in s["actions"]]
    performed = [a for a in actions if a["error"] is None]
    assert len(performed) >= len(actions) / 2, Counter(a["error"] for a in actions)
    assert sum(a["act_s"] for a in performed) > 0


def test_the_summary_has_every_figure(batch: Batch) -> None:
    summary = json.loads(legato("profile", str(batch.out), "--json").stdout)
    assert summary == json.loads((batch.out / "summary.json").read_text())
    assert summary["statuses"]["ok"] == 6
    assert summary["verdicts"] == 6
    text = json.dumps(summary)
    for figure in (
        "success_rate", "rollouts_per_hour", "p50", "p95", "p99", "retried", "cache", "logprobs",
        "token_ids",
    ):  # fmt: skip
        assert figure in text, figure
    shown = legato("profile", str(batch.out)).stdout
    for word in ("reset", "model", "eval", "p50 / p95 / p99", "prefix cache", "success rate"):
        assert word in shown


def test_merged_and_per_step_rows_train_on_the_same(batch: Batch) -> None:
    merged, stepwise = batch.export("--merged"), batch.export()
    rollouts = {r["rollout_id"]: r for r in batch.records if r["status"] in ("ok", "truncated")}
    assert len(merged) == len(rollouts), "the prefix holds, so each rollout is one row"
    assert len(stepwise) == sum(r["n_steps"] for r in rollouts.values())
    trained: dict[str, list[Any]] = defaultdict(list)
    for row in stepwise:
        trained[row["rollout_id"]] += zip(
            row["response_token_ids"], row["response_logprobs"], strict=True
        )
        assert row["policy_version"] == "step-7"
    for row in merged:
        assert len(row["images"]) == rollouts[row["rollout_id"]]["n_steps"]
        kept = [
            (token, logprob)
            for token, logprob, mask in zip(
                row["response_token_ids"], row["response_logprobs"], row["loss_mask"], strict=True
            )
            if mask
        ]
        assert kept == trained[row["rollout_id"]]
        for other in stepwise:
            if other["rollout_id"] == row["rollout_id"]:
                assert (other["reward"], other["advantage"]) == (row["reward"], row["advantage"])


def test_inline_images_are_the_stored_ones(batch: Batch) -> None:
    row = batch.export("--inline-images")[0]
    parts = [p for m in row["messages"] if isinstance(m["content"], list) for p in m["content"]]
    urls = [p["image_url"]["url"] for p in parts if p["type"] == "image_url"]
    assert urls
    assert all(url.startswith("data:image/png;base64,") for url in urls)


def test_a_trainers_forward_gives_the_servers_logprobs(batch: Batch, oracle: Oracle) -> None:
    """Token by token over several turns; and only with every screenshot in its own place."""
    pad = load_tokenizer(str(batch.vllm.checkpoint)).special("<|image_pad|>")
    worst, swapped_worst, compared = 0.0, 0.0, 0
    for row in batch.export("--merged"):
        images = [image_path(batch, url) for url in row["images"]]
        ids, given = expand(row, pad)
        banned = row["turns"][0]["sampling"]["banned_ids"]

        def gap(
            paths: list[Path],
            ids: list[int] = ids,
            given: dict[int, float] = given,
            banned: list[int] = banned,
        ) -> float:
            found = oracle.logprobs(
                batch.vllm.checkpoint, ids, paths, temperature=TEMPERATURE, banned=banned
            )
            return max(abs(found[at - 1] - logprob) for at, logprob in given.items())

        worst = max(worst, gap(images))
        compared += len(given)
        first = next((i for i in range(1, len(images)) if images[i] != images[0]), None)
        if first is not None:
            other = [images[first], *images[1:first], images[0], *images[first + 1 :]]
            swapped_worst = max(swapped_worst, gap(other))
    assert compared > 100
    assert worst <= 1e-4
    assert swapped_worst >= 10 * worst
    assert swapped_worst > 1e-4, "the screenshots must matter to this model at all"


def image_path(batch: Batch, url: str) -> Path:
    return batch.out / "images" / f"{url.removeprefix('legato-image://')}.png"


def expand(row: dict[str, Any], pad: int | None) -> tuple[list[int], dict[int, float]]:
    """All ids with each placeholder repeated, and the logprob at each trained position."""
    counts = iter(row["image_tokens"])
    ids: list[int] = []
    given: dict[int, float] = {}
    start = len(row["prompt_token_ids"])
    for at, token in enumerate(row["prompt_token_ids"] + row["response_token_ids"]):
        if at >= start and row["loss_mask"][at - start]:
            given[len(ids)] = row["response_logprobs"][at - start]
        ids += [token] * (next(counts) if token == pad else 1)
    assert next(counts, None) is None
    return ids, given


@pytest.mark.browser
def test_the_batch_can_be_looked_at(batch: Batch) -> None:
    said = legato("view", str(batch.out)).stdout
    walk(batch.out, Path(said.removeprefix("open ").strip()), gaps=False)


def test_killing_the_run_leaves_no_desktop_behind(vllm: Vllm, tmp_path: Path) -> None:
    out = tmp_path / "run"
    marker = {"LEGATO_TEST_KILL": f"{os.getpid()}-{time.monotonic_ns()}"}
    running = subprocess.Popen(
        [sys.executable, "-m", "legato.rl", *collect_args(vllm, out, "--desktops", "2")],
        env={**os.environ, **marker},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    family: set[int] = set()
    until = time.monotonic() + 60
    while time.monotonic() < until and not (out / "run.json").exists():
        time.sleep(0.05)
    while time.monotonic() < until and not any(names(p) == "Xvfb" for p in family):
        family = descendants(running.pid)
        time.sleep(0.05)
    assert any(names(p) == "Xvfb" for p in family), "no desktop came up"
    family = descendants(running.pid)
    running.kill()
    running.wait()
    until = time.monotonic() + 10
    while time.monotonic() < until and any(names(p) for p in family):
        time.sleep(0.05)
    assert [(p, names(p)) for p in family if names(p)] == []


def names(pid: int) -> str | None:
    """The command of a living process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return (
        None
        if stat.rpartition(")")[2].split()[0] == "Z"
        else stat[stat.index("(") + 1 : stat.rindex(")")]
    )


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    todo = [pid]
    while todo:
        try:
            children = Path(f"/proc/{todo[-1]}/task").iterdir()
            below = [
                int(child) for task in children for child in (task / "children").read_text().split()
            ]
        except OSError:
            below = []
        todo.pop()
        found.update(below)
        todo.extend(below)
    return found
