"""Episodes for people who bring their own agent: one task, one desktop, step by step.

::

    with legato.session(task) as s:
        obs = s.start()
        while not s.done:
            obs, reward, done = s.step(my_agent(obs))
        result = s.score()

What happens is kept as a :class:`~legato.rl.types.Rollout` and, with ``record``, written to a run
directory as ``legato.rollout/v0``, where ``profile``, ``export`` and ``view`` read it like any
other.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from PIL import Image

from legato.desktop.actions import ENDS_EPISODE, AnyAction, action_json, parse_action
from legato.desktop.contract import Desktop, Score, Screenshot, Task
from legato.desktop.extras import check_allowed
from legato.errors import ActionError, EpisodeOver, Failure
from legato.rl.config import DesktopConfig
from legato.rl.manifest import Manifest, RunPath
from legato.rl.record import RunDir
from legato.rl.types import (
    ActionTaken,
    Generation,
    ImagePart,
    Message,
    Prompt,
    Rollout,
    Sampling,
    Status,
    Step,
    Text,
)

HARNESS = "session"
"""What the record names as the harness: the agent sees screenshots and returns actions."""

Agent = Callable[["Observation"], "AnyAction | Mapping[str, Any]"]
"""Anything that turns an observation into an action; a mapping is read as its JSON form."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agent sees: the screen after its last action."""

    frame: Screenshot
    instruction: str
    note: str | None = None
    """Why the last action was rejected; ``None`` if it was performed."""

    @property
    def pil(self) -> Image.Image:
        """The screenshot as an RGB image."""
        return self.frame.pil()

    @property
    def png(self) -> bytes:
        """The screenshot as PNG bytes."""
        return self.frame.png

    @property
    def screenshot(self) -> str:
        """The screenshot as base64-encoded PNG."""
        return base64.b64encode(self.frame.png).decode("ascii")


class Outcome(NamedTuple):
    """What a step returns."""

    observation: Observation
    reward: float
    """0.0: only :meth:`Session.score` rewards."""
    done: bool


class Session:
    """One episode on one desktop. Used by one thread at a time; use :func:`session` to make one.

    Any call may raise :class:`~legato.errors.EnvFailure`; the episode is then lost.
    """

    def __init__(self, task: Task, desktop: Desktop, *, max_steps: int, agent: str) -> None:
        self.task = task
        self.done = False
        """The agent ended the episode, the step limit was reached, or it was scored."""
        self.rollout = Rollout(
            rollout_id=secrets.token_hex(8),
            task_id=task.task_id,
            domain=task.domain,
            group_id=task.task_id,
            attempt=0,
            attempt_try=0,
            policy_model=agent,
            policy_version="",
            status=Status.CANCELLED,
            harness=HARNESS,
        )
        """The episode so far; without a verdict its status is ``cancelled``."""
        self._desktop = desktop
        self._max_steps = max_steps
        self._messages: list[Message] = []
        self._observation: Observation | None = None
        self._shown_at = 0.0
        self._scored = False

    @property
    def observation(self) -> Observation:
        """What the agent saw last. Raises :class:`~legato.errors.EpisodeOver` before the start."""
        if self._observation is None:
            raise EpisodeOver("the episode has not begun: call start() first")
        return self._observation

    def start(self) -> Observation:
        """Reset the desktop to the task and look. Once."""
        if self._observation is not None:
            raise EpisodeOver("the episode has begun already: open another session")
        rollout, timing = self.rollout, self.rollout.timing
        rollout.started_at = time.time()
        with self._lasting():
            at = time.monotonic()
            self._desktop.reset(self.task)
            timing.reset_s = time.monotonic() - at
            rollout.ready_after_reset = self._desktop.wait_after_reset()
            timing.wait_after_reset_s = rollout.ready_after_reset.seconds
            screenshot, timing.obs_s = self._look()
        return self._show(screenshot, None)

    def step(self, action: AnyAction | Mapping[str, Any]) -> Outcome:
        """Perform one action, wait until the screen is ready, and look.

        Raises :class:`~legato.errors.ActionError` for an action that makes no sense, that the
        task does not allow or that the desktop rejects. It counts as a step, nothing else
        happened, and :attr:`observation` then has the reason as its ``note``.
        Raises :class:`~legato.errors.EpisodeOver` before the start and after the end.
        """
        thought_s = self._begin_step()
        taken = ActionTaken(None)
        try:
            chosen = parse_action(action) if isinstance(action, Mapping) else action
            taken.action = chosen
            check_allowed(self.task, chosen)
            with self._lasting():
                result = self._desktop.act(chosen)
                taken.act_s, taken.wait_s = result.act_s, result.ready.seconds
                taken.ready_reason = result.ready.reason
                taken.ready_s = 0.0 if result.ready.reason == "fixed" else result.ready.seconds
                screenshot, taken.obs_s = self._look()
        except ActionError as e:
            asked = dict(action) if isinstance(action, Mapping) else action_json(action)
            self._reject(taken, e, json.dumps(asked, default=str), thought_s)
            raise
        self._note(taken, json.dumps(action_json(chosen)), thought_s)
        self.done = self.done or chosen.action_type in ENDS_EPISODE
        return Outcome(self._show(screenshot, None), 0.0, self.done)

    def score(self) -> Score:
        """Let pending saves land and grade the end state. Ends the episode; once.

        Raises :class:`~legato.errors.GradeFailure` if the verifier broke.
        """
        if self._scored:
            raise EpisodeOver("the episode is scored already: open another session")
        _ = self.observation
        self._scored = self.done = True
        rollout, timing = self.rollout, self.rollout.timing
        with self._lasting():
            timing.wait_before_eval_s = self._desktop.wait_before_eval().seconds
            at = time.monotonic()
            score = self._desktop.evaluate()
            timing.eval_s = time.monotonic() - at
        rollout.status, rollout.score, rollout.reward = Status.OK, score, score.reward
        return score

    def reject(self, error: ActionError) -> None:
        """Count a step for an action that the agent could not even build, as :meth:`step` does."""
        self._reject(ActionTaken(None), error, "", self._begin_step())

    def _begin_step(self) -> float:
        """Seconds since the agent was last shown something."""
        _ = self.observation
        if self.done:
            raise EpisodeOver("the episode has ended: score it, or open another session")
        return time.monotonic() - self._shown_at

    def _reject(self, taken: ActionTaken, error: ActionError, reply: str, thought_s: float) -> None:
        taken.error = str(error)
        self._note(taken, reply, thought_s)
        self._show(self.observation.frame, taken.error)

    def _look(self) -> tuple[Screenshot, float]:
        at = time.monotonic()
        return self._desktop.observe().seal(), time.monotonic() - at

    def _show(self, frame: Screenshot, note: str | None) -> Observation:
        first = [] if self._messages else [Text(self.task.instruction)]
        told = [] if note is None else [Text(note)]
        self._messages.append(Message("user", (*first, *told, ImagePart(frame))))
        self._observation = Observation(frame, self.task.instruction, note)
        self.rollout.final_screenshot = frame
        self._shown_at = time.monotonic()
        return self._observation

    def _note(self, taken: ActionTaken, reply: str, thought_s: float) -> None:
        prompt = Prompt(tuple(self._messages), None)
        generation = Generation(
            text=reply,
            token_ids=None,
            logprobs=None,
            prompt_ids=None,
            image_tokens=None,
            version="",
            finish_reason="stop",
            seconds=thought_s,
        )
        self.rollout.steps.append(Step(prompt, generation, Sampling(), [taken]))
        self._messages.append(Message("assistant", (Text(reply),)))
        timing = self.rollout.timing
        timing.model_s += thought_s
        timing.act_s += taken.act_s
        timing.wait_s += taken.wait_s
        timing.obs_s += taken.obs_s
        self.done = len(self.rollout.steps) >= self._max_steps

    @contextlib.contextmanager
    def _lasting(self) -> Iterator[None]:
        """Note in the rollout that the desktop or the verifier failed, and end the episode."""
        try:
            yield
        except Failure as e:
            self._scored = self.done = True
            self.rollout.status = Status.ERROR
            self.rollout.error_kind, self.rollout.error = e.kind, str(e)
            raise


@contextlib.contextmanager
def session(
    task: Task,
    *,
    desktop: Desktop | DesktopConfig | None = None,
    max_steps: int = 100,
    record: RunPath | RunDir | None = None,
    agent: str = "agent",
) -> Iterator[Session]:
    """Open an episode of ``task``; nothing runs before :meth:`Session.start`.

    ``desktop`` is one that the caller keeps (and closes), or which kind to make; a local one by
    default. After ``max_steps`` steps the episode is done. With ``record`` the episode is added
    to that run directory under the policy name ``agent``; an episode left unscored is recorded as
    ``cancelled``. Raises :class:`~legato.errors.ConfigError` before anything starts.
    """
    with contextlib.ExitStack() as cleanup:
        run = _open(record, cleanup)
        if not isinstance(desktop, Desktop):
            config = desktop or DesktopConfig()
            desktop = config.factory()(config.desktop_options(), 0)
            cleanup.callback(desktop.close)
        episode = Session(task, desktop, max_steps=max_steps, agent=agent)
        began = time.monotonic()
        try:
            yield episode
        finally:
            episode.done = True
            episode.rollout.timing.total_s = time.monotonic() - began
            if run is not None and episode.rollout.started_at:
                _append(run, episode.rollout)


def run_episode(
    task: Task,
    agent: Agent,
    *,
    desktop: Desktop | DesktopConfig | None = None,
    max_steps: int = 100,
    record: RunPath | RunDir | None = None,
    name: str = "agent",
) -> tuple[Rollout, Score]:
    """Let ``agent`` act until it ends the episode or ``max_steps`` is reached, and score it.

    An action that is rejected is told to the agent by the next observation's ``note``, also when
    it could not even be built. Other arguments and errors are those of :func:`session`; ``name``
    is what the record calls the agent.
    """
    with session(task, desktop=desktop, max_steps=max_steps, record=record, agent=name) as episode:
        episode.start()
        while not episode.done:
            try:
                action = agent(episode.observation)
            except ActionError as e:
                episode.reject(e)
                continue
            with contextlib.suppress(ActionError):  # the next observation's note says why
                episode.step(action)
        score = episode.score()
    return episode.rollout, score


_numbering = threading.Lock()


def _open(record: RunPath | RunDir | None, cleanup: contextlib.ExitStack) -> RunDir | None:
    if record is None or isinstance(record, RunDir):
        return record
    manifest = Manifest(settings={"harness": {"name": HARNESS}})
    return cleanup.enter_context(RunDir.create_or_resume(record, manifest))


def _append(run: RunDir, rollout: Rollout) -> None:
    """Add the episode as the next attempt of its task."""
    with _numbering:
        taken = [attempt for group, attempt in run.tries if group == rollout.group_id]
        rollout.attempt = max(taken, default=-1) + 1
        run.append(rollout)
