"""Whole runs of verl's ``main_ppo``: real model server, real desktops, a real trainer.

Three starts, each looked at by several tests. ``first``: the laptop recipe, three steps, the
last of them with swapped screenshots. ``resumed``: goes on from its checkpoint, loses a group, a
worker, a desktop host and at last its model server. ``asynchronous``: rollouts go on while weights
change.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from legato.rl.publish import read_shot, read_state, sockets
from legato.rl.record import read_records
from legato.rl.schema import RolloutRecord
from legato.view.gaps import read_gaps
from legato.view.site import write_site
from legato.view.trackers import TAG
from tests.view.walk import walk
from tools.verl_run import MANAGER, SWAPPED, VerlRun

LONG = 600.0
pytestmark = [pytest.mark.vllm, pytest.mark.desktop, pytest.mark.timeout(3 * LONG)]
STEPS = 3
LOOK_S = 0.3
WORKER = r"ray::(RobbedWorker|AgentLoopWorkerTQ)\b"
"""Ray calls it by the class that defines what it is doing."""
ROBBED = f"{MANAGER}=tests.verl.robbed.RobbedManager"
GAP = "legato/mismatch/mean"


@dataclass
class Seen:
    """What came of a run."""

    out: Path
    training: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Metrics of each training step."""
    validation: list[dict[str, Any]] = field(default_factory=list)
    boards: list[dict[str, Any]] = field(default_factory=list)
    shots: list[bytes] = field(default_factory=list)
    code: int = -1
    output: str = ""
    left: dict[int, str] = field(default_factory=dict)

    @functools.cached_property
    def records(self) -> list[RolloutRecord]:
        return list(read_records(self.out / "rollouts"))


def run(
    out: Path,
    model: Path,
    *overrides: str,
    env: dict[str, str] | None = None,
    step: Callable[[VerlRun, int], None] = lambda running, number: None,
) -> Seen:
    """``step`` is called after each training step, with its number."""
    seen = Seen(out)
    options = [f"actor_rollout_ref.model.path={model}", *overrides]
    with VerlRun("verl/laptop", options, out, env=env) as running, watched(seen):
        for number, metrics in running.steps(LONG):
            if "actor/grad_norm" in metrics:
                seen.training[number] = metrics
                step(running, number)
            else:
                seen.validation.append(metrics)
        seen.code = running.wait(LONG)
        seen.output = running.output()
        seen.left = running.left()
    return seen


@contextlib.contextmanager
def watched(seen: Seen) -> Iterator[None]:
    """Look at the run as a live viewer does, all the time."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            look(seen)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join(LONG)


def look(seen: Seen) -> None:
    place = seen.out / "rollouts"
    for name in sockets(place):
        with contextlib.suppress(OSError, ValueError):
            board = read_state(place, name)
            seen.boards.append(board)
            for desktop in board["desktops"]:
                if desktop["screenshot"]:
                    shot = read_shot(place, name, desktop["screenshot"]["sha256"])
                    seen.shots += [shot] if shot else []


def victim(running: VerlRun, title: str) -> int:
    """The one process of the run whose title begins with this pattern."""
    (pid,) = [pid for pid, command in running.alive() if re.match(title, command)]
    return pid


def ends_well(seen: Seen) -> None:
    assert seen.left == {}
    assert re.findall(r"desktops are closed; leases left: (\d+)", seen.output) == ["0"]


# --- the laptop recipe -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, press_checkpoint: Path) -> Seen:
    out = tmp_path_factory.mktemp("verl") / "run"
    return run(
        out,
        press_checkpoint,
        f"trainer.total_training_steps={STEPS}",
        f"trainer.save_freq={STEPS}",
        "trainer.logger=[console,file,tensorboard]",
        "legato.sheet_steps=2",
        SWAPPED,
        env={"TENSORBOARD_DIR": str(out / "events")},
    )


def test_it_trains_and_leaves_nothing(first: Seen) -> None:
    assert first.code == 0, first.output[-3000:]
    assert list(first.training) == [1, 2, 3]
    assert max(metrics["actor/grad_norm"] for metrics in first.training.values()) > 0
    ends_well(first)


def test_the_trainer_sees_what_the_policy_saw(first: Seen) -> None:
    honest = [first.training[step][GAP] for step in (1, 2)]
    assert max(honest) <= 1e-3
    assert first.training[STEPS][GAP] >= 10 * max(honest), "it does not depend on screenshots"


def test_the_metrics_say_what_happened(first: Seen) -> None:
    for metrics in first.training.values():
        told = {name.removeprefix("legato/") for name in metrics if name.startswith("legato/")}
        assert told >= {
            *("reward", "success_rate", "rows/per_rollout"),
            *("rollout/verdicts", "rollout/turns", "rollout/cancelled", "rollout/too_long"),
            *("rollout/empty_groups", "rollout/env_errors", "rollout/refills"),
            *("desktops/utilisation", "time_share/reset", "time_share/ready"),
            *("time_share/model", "time_share/grade"),
            *("mismatch/max", "mismatch/turn_0/mean"),
        }
        assert metrics["legato/rollout/verdicts"] == 8
        assert 0 < metrics["legato/desktops/utilisation"] <= 1
        assert "training/off_policy/trajectory_staleness/mean" in metrics


def test_every_rollout_is_on_disk_with_its_version(first: Seen) -> None:
    verdicts = [r for r in first.records if r["status"] in ("ok", "truncated")]
    versions = Counter(r["policy"]["version"] for r in verdicts)
    assert set(versions.values()) == {8}
    assert len(versions) == STEPS
    for record in verdicts:
        (step,) = record["steps"]
        assert step["policy_version"] == record["policy"]["version"]
        reply = step["response"]
        assert len(reply["token_ids"] or ()) == len(reply["logprobs"] or ()) > 0
    rewards = [
        fmean(r["reward"] or 0.0 for r in verdicts if r["policy"]["version"] == version)
        for version in sorted(versions)
    ]
    assert rewards == pytest.approx([m["legato/reward"] for m in first.training.values()])


def test_validation_is_greedy_and_recorded_apart(first: Seen) -> None:
    records = list(read_records(first.out / "rollouts-val"))
    assert records
    assert {s["sampling"]["temperature"] for r in records for s in r["steps"]} == {0.0}
    assert "val-core/buttons/reward/mean@1" in first.validation[0]


def test_gaps_are_kept_for_the_viewer(first: Seen) -> None:
    gaps = read_gaps(first.out / "rollouts")
    assert set(gaps) == {r["rollout_id"] for r in first.records if r["status"] == "ok"}
    assert all(gap.step == 0 and 0 <= gap.mean <= gap.max for (gap,) in gaps.values())


@pytest.mark.browser
def test_the_run_can_be_looked_at(first: Seen, tmp_path: Path) -> None:
    place = first.out / "rollouts"
    walk(place, write_site([place], tmp_path / "view"), gaps=True)


def test_the_log_says_how_far_it_is(first: Seen) -> None:
    assert re.search(rf"^step \d/{STEPS}  \d/8 verdicts  \d/\d groups", first.output, re.MULTILINE)


def test_the_profile_knows_the_run(first: Seen) -> None:
    command = [sys.executable, "-m", "legato.rl", "profile", str(first.out / "rollouts")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LONG)
    assert "model" in done.stdout


def test_a_contact_sheet_is_beside_the_curves(first: Seen) -> None:
    events = EventAccumulator(str(first.out / "events"), size_guidance={"images": 0})
    events.Reload()
    (sheet,) = events.Images(TAG)
    assert sheet.step == 2
    assert "legato/reward" in events.Tags()["scalars"]


def test_the_desktops_can_be_watched(first: Seen) -> None:
    titles = {board["title"] for board in first.boards}
    assert titles & {f"step 1/{STEPS}", f"step 2/{STEPS}", f"step 3/{STEPS}"}
    slots = {desktop["slot"] for board in first.boards for desktop in board["desktops"]}
    assert slots
    assert all(shot.startswith(b"\x89PNG") for shot in first.shots)
    assert first.shots
    assert sockets(first.out / "rollouts") == []


# --- resumed, then robbed of one process after the other ----------------------------------------


@pytest.fixture(scope="module")
def resumed(first: Seen, press_checkpoint: Path) -> Seen:
    def rob(running: VerlRun, step: int) -> None:
        match step - STEPS:
            case 1:
                os.kill(victim(running, WORKER), signal.SIGKILL)
            case 2:
                os.kill(victim(running, "ray::DesktopHost"), signal.SIGKILL)
            case 3:
                os.kill(victim(running, "VLLM::EngineCore"), signal.SIGKILL)

    return run(
        first.out,
        press_checkpoint,
        "trainer.total_training_steps=50",
        "trainer.resume_mode=auto",
        "trainer.val_before_train=false",
        "algorithm.adv_estimator=legato",
        ROBBED,
        step=rob,
    )


def test_it_goes_on_where_it_was(resumed: Seen) -> None:
    assert min(resumed.training) == STEPS + 1
    versions = sorted({int(r["policy"]["version"]) for r in resumed.records if r["status"] == "ok"})
    assert versions == list(range(versions[0], versions[0] + len(versions)))
    assert len(versions) > STEPS


def test_a_group_without_a_verdict_is_replaced_by_another(resumed: Seen) -> None:
    metrics = resumed.training[STEPS + 1]
    assert metrics["legato/rollout/empty_groups"] == 1
    assert metrics["legato/rollout/verdicts"] == 8


def test_a_killed_worker_is_replaced(resumed: Seen) -> None:
    assert "agent-loop worker 0 died; another one takes over" in resumed.output
    assert STEPS + 2 in resumed.training


def test_a_killed_host_costs_no_step(resumed: Seen) -> None:
    assert "a desktop host is lost" in resumed.output
    assert STEPS + 3 in resumed.training
    assert all(r["reward"] is None for r in resumed.records if r["error"] is not None)


def test_a_dead_model_server_ends_the_run_and_is_named(resumed: Seen) -> None:
    assert resumed.code not in (0, -1)
    assert re.search(r"error: .*(vLLM worker of )?model server \S+ died", resumed.output)
    ends_well(resumed)


# --- rollouts go on while the trainer updates ----------------------------------------------------


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory: pytest.TempPathFactory, press_checkpoint: Path) -> Seen:
    return run(
        tmp_path_factory.mktemp("verl") / "run",
        press_checkpoint,
        "trainer.v1.trainer_mode=colocate_async",
        "trainer.v1.colocate_async.num_warmup_batches=1",
        "trainer.v1.sampler.max_off_policy_threshold=4",
        f"trainer.total_training_steps={STEPS}",
        "trainer.val_before_train=false",
        "legato.max_turns=4",
        "data.max_prompt_length=128",
        "data.max_response_length=192",
        "algorithm.adv_estimator=legato",
    )


def test_it_trains_on_rollouts_of_several_steps(asynchronous: Seen) -> None:
    assert asynchronous.code == 0, asynchronous.output[-3000:]
    assert list(asynchronous.training) == [1, 2, 3]
    assert max(m["legato/rollout/turns"] for m in asynchronous.training.values()) > 1
    ends_well(asynchronous)


def test_each_step_has_the_weights_that_it_was_sampled_with(asynchronous: Seen) -> None:
    mixed = 0
    for record in asynchronous.records:
        versions = [int(step["policy_version"]) for step in record["steps"]]
        assert versions == sorted(versions)
        mixed += len(set(versions)) > 1
    assert mixed, "no rollout lived to see new weights"


def test_a_row_that_gets_too_long_ends_its_rollout(asynchronous: Seen) -> None:
    cut = [r for r in asynchronous.records if r["truncated_by"] == "context"]
    # The run's end takes the desktop of some away before they are graded: no verdict, no reward.
    graded = [r for r in cut if r["status"] != "retried"]
    assert {r["status"] for r in graded} <= {"truncated", "surplus"}
    assert any(r["status"] == "truncated" for r in graded)
    assert all((r["reward"] is None) == (r["status"] == "retried") for r in cut)
    assert max(m["legato/rollout/too_long"] for m in asynchronous.training.values()) > 0
