"""Episodes with one's own agent: the walk, what ends it, what is rejected, and the record."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import legato
from legato.desktop.actions import Action, AnyAction, Done
from legato.desktop.contract import Machine, Score
from legato.desktop.fake import fake_tasks, make_desktop, reference_actions
from legato.errors import ActionError, ConfigError, EnvFailure, EpisodeOver, GradeFailure
from legato.rl import DesktopConfig, export_steps, load_request, read_records, summarise
from legato.rl.manifest import Manifest
from legato.rl.record import RunDir, load_screenshot
from legato.rl.types import Status
from legato.tasks.tasks_file import CarriedTask

FAKE = DesktopConfig(backend="fake", width=640, height=480)


def task(kind: str = "form") -> CarriedTask:
    entry = fake_tasks(1, kinds=(kind,))[0]
    return CarriedTask(entry["task_id"], "inline", entry["config"]["instruction"], entry["config"])


def reference(of: CarriedTask) -> list[AnyAction]:
    return list(reference_actions(of.task_id, of.config, (640, 480)))


def failing(fault: Mapping[str, Any]) -> DesktopConfig:
    return DesktopConfig(backend="fake", width=640, height=480, options={"faults": [fault]})


@dataclass(frozen=True)
class ClicksOnly:
    """A task that allows clicks and the end, nothing else."""

    inner: CarriedTask
    allowed_actions = frozenset({"click", "done"})
    task_id = "clicks"
    domain = "inline"

    @property
    def instruction(self) -> str:
        return self.inner.instruction

    @property
    def config(self) -> Mapping[str, Any]:
        return self.inner.config

    def setup(self, machine: Machine) -> None: ...

    def grade(self, machine: Machine) -> Score:
        raise AssertionError("the fake desktop grades by itself")


@pytest.fixture
def open_session() -> Iterator[legato.Session]:
    with legato.session(task(), desktop=FAKE) as s:
        s.start()
        yield s


def test_the_walk_of_an_episode() -> None:
    form = task()
    with legato.session(form, desktop=FAKE) as s:
        obs = s.start()
        assert obs.instruction == form.instruction
        for action in reference(form):
            assert not s.done
            obs, reward, done = s.step(action)
            assert reward == 0.0
            assert done is s.done
        assert s.done
        result = s.score()
    assert result.score == result.reward == 1.0
    assert result.output


def test_a_screenshot_comes_in_three_forms_of_the_same_pixels(
    open_session: legato.Session,
) -> None:
    obs = open_session.observation
    decoded = base64.b64decode(obs.screenshot)
    assert decoded == obs.png
    assert obs.pil.size == (640, 480)
    assert Image.open(io.BytesIO(decoded)).convert("RGB").tobytes() == obs.pil.tobytes()


def test_scoring_ends_the_episode(open_session: legato.Session) -> None:
    assert open_session.score().reward == 0.0
    assert open_session.done
    with pytest.raises(EpisodeOver, match="scored already"):
        open_session.score()
    with pytest.raises(EpisodeOver, match="has ended"):
        open_session.step(Action(action_type="wait", seconds=0))
    with pytest.raises(EpisodeOver, match="begun already"):
        open_session.start()


@pytest.mark.parametrize("last", ["done", "fail", "answer"])
def test_no_step_follows_the_agents_own_end(last: str, open_session: legato.Session) -> None:
    text = {"text": "42"} if last == "answer" else {}
    assert open_session.step({"action_type": last, **text}).done
    with pytest.raises(EpisodeOver):
        open_session.step({"action_type": "screenshot"})
    open_session.score()


def test_nothing_before_the_start() -> None:
    with legato.session(task(), desktop=FAKE) as s:
        for call in (s.score, lambda: s.step(Done()), lambda: s.observation):
            with pytest.raises(EpisodeOver, match="has not begun"):
                call()


@pytest.mark.parametrize(
    "bad",
    [
        {"action_type": "key", "key": "no-such-key"},
        {"action_type": "click", "x": 9000, "y": 1},
        {"action_type": "click"},
        {"action_type": "explode"},
        {},
        {"action_type": "type", "text": b"\xff"},
    ],
)
def test_a_rejected_action_counts_as_a_step_and_the_episode_goes_on(
    bad: dict[str, Any], open_session: legato.Session
) -> None:
    before = open_session.observation
    with pytest.raises(ActionError):
        open_session.step(bad)
    assert len(open_session.rollout.steps) == 1
    assert open_session.observation.note
    assert open_session.observation.frame is before.frame
    assert not open_session.done
    assert open_session.step(Action(action_type="key", key="Tab")).observation.note is None
    assert len(open_session.rollout.steps) == 2


def test_actions_that_the_task_does_not_allow_are_rejected_before_the_desktop_sees_them() -> None:
    form = task()
    with legato.session(ClicksOnly(form), desktop=FAKE) as s:
        before = s.start()
        with pytest.raises(ActionError, match="does not allow 'type'; allowed: click, done"):
            s.step(Action(action_type="type", text="x"))
        assert s.observation.frame is before.frame
        s.step(Action(action_type="click", x=1, y=1))


def test_the_step_limit_ends_the_episode_rejected_steps_included() -> None:
    with legato.session(task(), desktop=FAKE, max_steps=2) as s:
        s.start()
        assert not s.step(Action(action_type="key", key="Tab")).done
        with pytest.raises(ActionError):
            s.step(Action(action_type="key", key="no-such-key"))
        assert s.done
        assert s.score().reward == 0.0


def test_run_episode_tells_the_agent_what_was_wrong() -> None:
    form = task()
    plan = iter(reference(form))
    notes: list[str | None] = []

    def agent(obs: legato.Observation) -> AnyAction:
        notes.append(obs.note)
        if len(notes) == 1:
            return Action(action_type="nonsense")
        if len(notes) == 2:
            return Action(action_type="key", key="no-such-key")
        return next(plan)

    rollout, score = legato.run_episode(form, agent, desktop=FAKE)
    assert score.reward == 1.0
    assert "nonsense" in (notes[1] or "")
    assert "no-such-key" in (notes[2] or "")
    assert set(notes[3:]) == {None}
    assert len(rollout.steps) == 2 + len(reference(form))


def test_an_agent_that_is_always_wrong_comes_to_the_step_limit() -> None:
    def agent(_: legato.Observation) -> AnyAction:
        return Action(action_type="nonsense")

    rollout, score = legato.run_episode(task(), agent, desktop=FAKE, max_steps=5)
    assert len(rollout.steps) == 5
    assert score.reward == 0.0


# --- the record --------------------------------------------------------------------------------


def test_episodes_are_recorded_like_any_rollout(tmp_path: Path) -> None:
    form = task()
    plan = iter(reference(form))
    legato.run_episode(form, lambda _: next(plan), desktop=FAKE, record=tmp_path / "run", name="me")
    legato.run_episode(form, lambda _: Done(), desktop=FAKE, record=tmp_path / "run", name="me")
    won, lost = read_records(tmp_path / "run")
    assert [won["attempt"], lost["attempt"]] == [0, 1]
    assert [won["reward"], lost["reward"]] == [1.0, 0.0]
    assert won["policy"]["model"] == "me"
    assert won["n_steps"] == len(reference(form))
    assert won["score"]
    taken = [step["actions"][0]["action"] for step in won["steps"]]
    assert [Action(**action) for action in taken if action] == reference(form)
    last = load_request(tmp_path / "run", won, won["n_steps"] - 1)
    assert [m["role"] for m in last] == ["user", "assistant"] * (won["n_steps"] - 1) + ["user"]
    assert last[0]["content"][0]["text"] == form.instruction
    assert json.loads(last[1]["content"])["action_type"] == reference(form)[0].action_type
    assert won["final_screenshot"]
    assert load_screenshot(tmp_path / "run", won["final_screenshot"]).width == 640
    summary = summarise(tmp_path / "run")
    assert summary.success_rate == 0.5
    assert export_steps(tmp_path / "run", tmp_path / "rows.jsonl") == won["n_steps"] + 1
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows[0]["advantage"] == pytest.approx(-rows[-1]["advantage"])


def test_one_run_directory_may_be_shared(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        for _ in range(2):
            legato.run_episode(task(), lambda _: Done(), desktop=FAKE, record=run)
    assert [r["attempt"] for r in read_records(tmp_path / "run")] == [0, 1]


def test_an_episode_left_early_is_recorded_without_a_verdict(tmp_path: Path) -> None:
    with legato.session(task(), desktop=FAKE, record=tmp_path / "run") as s:
        s.start()
        s.step(Action(action_type="key", key="Tab"))
    (record,) = read_records(tmp_path / "run")
    assert (record["status"], record["reward"], record["n_steps"]) == ("cancelled", None, 1)


def test_an_episode_that_never_began_leaves_no_record(tmp_path: Path) -> None:
    with legato.session(task(), desktop=FAKE, record=tmp_path / "run"):
        pass
    assert list(read_records(tmp_path / "run")) == []


@pytest.mark.parametrize(
    ("fault", "error", "kind"),
    [
        ({"kind": "crash", "call": "reset", "at": 1}, EnvFailure, "env"),
        ({"kind": "crash", "call": "act", "at": 1}, EnvFailure, "env"),
        ({"kind": "broken_verifier", "at": 1}, GradeFailure, "grade"),
    ],
)
def test_failures_are_recorded_by_kind_and_never_as_a_reward(
    fault: dict[str, Any], error: type[Exception], kind: str, tmp_path: Path
) -> None:
    with pytest.raises(error):
        legato.run_episode(
            task(),
            lambda obs: Action(action_type="key", key="Tab"),
            desktop=failing(fault),
            max_steps=2,
            record=tmp_path / "run",
        )
    (record,) = read_records(tmp_path / "run")
    assert record["status"] == Status.ERROR
    assert record["reward"] is None
    assert record["error"] is not None
    assert record["error"]["kind"] == kind


def test_a_directory_of_another_run_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "letters.txt").write_text("mine")
    with (
        pytest.raises(ConfigError, match="holds no run"),
        legato.session(task(), desktop=FAKE, record=tmp_path / "run"),
    ):
        pytest.fail("the session opened")


def test_a_desktop_of_the_callers_stays_open() -> None:
    desktop = make_desktop(FAKE.desktop_options(), 0)
    for _ in range(2):
        rollout, _ = legato.run_episode(task(), lambda _: Done(), desktop=desktop)
        assert rollout.status is Status.OK
    assert desktop.observe().width == 640
    desktop.close()
