"""The gate itself: every check on every variant, spread over desktops."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from legato.desktop.actions import AnyAction, Done, Fail
from legato.desktop.contract import Desktop, DesktopOptions, Machine, Score
from legato.desktop.extras import CanKill
from legato.errors import ConfigError, EnvFailure, LegatoError
from legato.tasks.draw import Draw
from legato.tasks.qa import agents
from legato.tasks.qa.attacks import ATTACKS, Attack, Spoils, read_secret
from legato.tasks.qa.report import Finding, Report
from legato.tasks.qa.stage import Stage
from legato.tasks.reference import shipped_actions
from legato.tasks.seeded import SeededTask
from legato.tasks.web.app_server import read_log
from legato.tasks.web.task import WebTask

SCORINGS = 3
RANDOM_AGENTS = 3
AGENTS = (
    ("every action once", agents.every_action),
    ("the blind farmer", agents.blind_farmer),
    ("saving alone", agents.saver),
    ("deleting all", agents.destroyer),
)
TRIES = 2
"""A check that a desktop failed under is made again on a new one."""
STOP_S = 30.0
"""How long an interrupted gate waits for its desktops to close, in seconds."""

MakeDesktop = Callable[[DesktopOptions, int], Desktop]
Progress = Callable[[Finding], None]
Check = Callable[["Variant"], str | None]
"""Says what is wrong with a variant, or ``None``."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What is checked on a variant."""

    short: bool = False
    """Of the agents and of the attackers one each, in turn by seed."""
    only: tuple[str, ...] = ()
    """Leave out checks whose names hold none of these, but for the reference episode: others build
    on it."""

    def checks(self, task: SeededTask) -> list[tuple[str, Check]]:
        """Names and functions, in the order in which they are made."""
        idlers = [(f"{name} earns nothing", _earns_nothing(agent)) for name, agent in AGENTS]
        idlers += [
            (f"random agent {number + 1} earns nothing", _random(number))
            for number in range(RANDOM_AGENTS)
        ]
        attacks = [
            (f"attack: {attack.name}", _attacked(attack))
            for attack in ATTACKS
            if attack.applies(task)
        ]
        if self.short:
            idlers, attacks = ([some[task.seed % len(some)]] for some in (idlers, attacks))
        every = [
            ("the reference episode earns 1", _reference),
            ("scoring again gives the same", _scored_again),
            ("the initial state earns nothing", _initial),
            ("quitting at once earns nothing", _quitting),
            ("saying FAIL earns nothing", _failing),
            ("cheap credit alone earns nothing", _cheap),
            *idlers,
            *attacks,
            # Last: the longer ago the first reset was, the surer a clock has moved on.
            ("every reset shows the same screen", _same_screen),
        ]
        first, rest = every[:1], every[1:]
        return first + [c for c in rest if not self.only or any(o in c[0] for o in self.only)]


@dataclass(slots=True)
class Variant:
    """One variant under check, and what earlier checks left for later ones."""

    stage: Stage
    spoils: Spoils = field(default_factory=Spoils)
    again: list[Score] = field(default_factory=list)
    idle: dict[str, float] = field(default_factory=dict)


def run_gate(
    tasks: Sequence[SeededTask],
    make_desktop: MakeDesktop,
    *,
    gate: Gate | None = None,
    desktops: int = 2,
    options: DesktopOptions | None = None,
    progress: Progress = lambda finding: None,
) -> Report:
    """Check every task on ``desktops`` desktops at once; findings are in the tasks' order.

    A check that could not be made is a finding, too. Raises
    :class:`~legato.errors.ConfigError` if there is nothing to check or no desktop can be made.
    An interrupt closes the desktops and goes on; ``progress`` has had what was found by then.
    """
    if not tasks:
        raise ConfigError("no task to check")
    gate = gate or Gate()
    options = options or DesktopOptions()
    jobs: queue.SimpleQueue[tuple[int, SeededTask]] = queue.SimpleQueue()
    for job in enumerate(tasks):
        jobs.put(job)
    found: dict[int, list[Finding]] = {}
    broken: list[BaseException] = []
    guard = threading.Lock()
    stopped = threading.Event()
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()
    """Waited for, and not the threads: after an interrupt Python 3.11 takes a thread that is being
    joined for ended."""

    def note(number: int, finding: Finding) -> None:
        with guard:
            if not stopped.is_set():  # what fails for want of its desktop was not found out
                found.setdefault(number, []).append(finding)
                progress(finding)

    def work(desk: _Desk) -> None:
        try:
            while not broken and not stopped.is_set():
                try:
                    number, task = jobs.get_nowait()
                except queue.Empty:
                    return
                for finding in _examine(task, gate, desk):
                    note(number, finding)
        except BaseException as e:
            broken.append(e)
        finally:
            desk.close()
            ended.put(None)

    desks = [
        _Desk(make_desktop, options, slot, stopped) for slot in range(min(desktops, len(tasks)))
    ]
    workers = [
        threading.Thread(target=work, args=(desk,), name=f"qa-{slot}", daemon=True)
        for slot, desk in enumerate(desks)
    ]
    for worker in workers:
        worker.start()
    left = len(workers)
    try:
        while left:
            ended.get()
            left -= 1
    except KeyboardInterrupt:
        stopped.set()
        for desk in desks:
            desk.kill()
        until = time.monotonic() + STOP_S
        with contextlib.suppress(queue.Empty):
            for _ in range(left):
                ended.get(timeout=max(0.0, until - time.monotonic()))
        raise
    if broken:
        raise broken[0]
    findings = tuple(f for number in sorted(found) for f in found[number])
    return Report(findings, count_checks(tasks, gate))


def count_checks(tasks: Sequence[SeededTask], gate: Gate) -> int:
    return sum(len(gate.checks(task)) for task in tasks)


class _Desk:
    """A worker's desktop, made again after a failure, but not once the gate was stopped."""

    def __init__(
        self, make: MakeDesktop, options: DesktopOptions, slot: int, stopped: threading.Event
    ) -> None:
        self._make, self._options, self._slot = make, options, slot
        self._stopped = stopped
        self._desktop: Desktop | None = None

    def desktop(self) -> Desktop:
        if self._desktop is None:
            self._desktop = self._make(self._options, self._slot)
        if self._stopped.is_set():
            raise EnvFailure("the gate was stopped")
        return self._desktop

    def kill(self) -> None:
        """Have the worker's call fail soon. From any thread."""
        desktop: object = self._desktop
        if isinstance(desktop, CanKill):
            desktop.kill()

    def close(self) -> None:
        desktop, self._desktop = self._desktop, None
        if desktop is not None:
            desktop.close()


def _examine(task: SeededTask, gate: Gate, desk: _Desk) -> Iterator[Finding]:
    variant = Variant(Stage(desk.desktop(), task))
    for name, check in gate.checks(task):
        began = time.monotonic()
        wrong, failed, retried = _made(check, variant, desk)
        seconds = time.monotonic() - began
        passed = wrong is None
        yield Finding(task.name, task.seed, name, passed, wrong or "", seconds, failed, retried)


def _made(check: Check, variant: Variant, desk: _Desk) -> tuple[str | None, bool, str]:
    """What a check finds wrong, whether that is only that it could not be made, and why it was
    made again."""
    wrong = ""
    for left in reversed(range(TRIES)):
        retried = wrong
        try:
            return check(variant), False, retried
        except Exception as e:  # a mistake of the task's own included: it is told
            wrong = f"{type(e).__name__}: {e}"
            desk.close()
            variant.stage.desktop = desk.desktop()
            if not left or not isinstance(e, LegatoError):
                break
    return wrong, True, retried


# --- the checks ----------------------------------------------------------------------------------


def _reference(variant: Variant) -> str | None:
    stage = variant.stage
    variant.again = []
    machine = stage.start()
    stage.show_first_screen()
    actions = shipped_actions(stage.task)
    score = stage.verdict(stage.task.reference_actions(machine) if actions is None else actions)
    variant.again.append(score)
    for _ in range(SCORINGS - 1):
        variant.again.append(stage.desktop.evaluate())
    if isinstance(stage.task, WebTask):
        events, _ = read_log(machine.scratch / "app")
        requests = [event["request"] for event in events if event["event"] == "do"]
        variant.spoils = Spoils(requests, read_secret(machine))
    return None if score.reward == 1.0 else f"it earned {score.reward:g}: {score.output}"


def _scored_again(variant: Variant) -> str | None:
    if len(variant.again) < SCORINGS:
        return "there was no end state to score again"
    rewards = [score.reward for score in variant.again]
    if len(set(rewards)) > 1:
        return f"it gave {', '.join(f'{r:g}' for r in rewards)}"
    first, *others = (score.checks for score in variant.again)
    unlike = {check.name for checks in others for check in set(first) ^ set(checks)}
    return f"it found other checks: {', '.join(sorted(unlike))}" if unlike else None


def _initial(variant: Variant) -> str | None:
    """Grades once untouched, then as if the agent had said it was done, then that it cannot be."""
    stage = variant.stage
    stage.start()
    variant.idle = {"initial": stage.verdict().reward}
    for word, action in (("done", Done()), ("fail", Fail())):
        stage.play([action])
        variant.idle[word] = stage.desktop.evaluate().reward
    return _nothing(variant.idle["initial"])


def _quitting(variant: Variant) -> str | None:
    return _nothing(variant.idle.get("done"))


def _failing(variant: Variant) -> str | None:
    return _nothing(variant.idle.get("fail"))


def _same_screen(variant: Variant) -> str | None:
    seen = variant.stage.first_screens
    for _ in range(max(1, 2 - len(seen))):
        variant.stage.start()
        variant.stage.show_first_screen()
    number = len(set(seen))
    return None if number == 1 else f"{number} different first screenshots"


def _cheap(variant: Variant) -> str | None:
    stage = variant.stage
    machine = stage.start()
    return _earned(stage.verdict(stage.task.cheap_actions(machine)))


def _earns_nothing(
    agent: Callable[[Machine], Iterator[AnyAction]],
) -> Callable[[Variant], str | None]:
    def check(variant: Variant) -> str | None:
        machine = variant.stage.start()
        return _earned(variant.stage.verdict(agent(machine)))

    return check


def _random(number: int) -> Callable[[Variant], str | None]:
    def check(variant: Variant) -> str | None:
        stage = variant.stage
        draw = Draw(f"qa random {stage.task.name} {number}", stage.task.seed)
        machine = stage.start()
        return _earned(stage.verdict(agents.random_actions(machine, draw)))

    return check


def _attacked(attack: Attack) -> Callable[[Variant], str | None]:
    def check(variant: Variant) -> str | None:
        stage = variant.stage
        machine = stage.start()
        if attack.solved:
            stage.play(a for a in stage.task.reference_actions(machine) if a != Done())
        return _earned(stage.verdict(attack.perform(machine, stage.task, variant.spoils)))

    return check


def _earned(score: Score) -> str | None:
    return None if score.reward == 0.0 else f"it earned {score.reward:g}: {score.output}"


def _nothing(reward: float | None) -> str | None:
    if reward is None:
        return "it was not graded"
    return None if reward == 0.0 else f"it earned {reward:g}"
