"""The fake desktop: the contract of a desktop over a drawn screen."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable

from legato.desktop import actions as a
from legato.desktop.contract import (
    ActResult,
    Desktop,
    DesktopOptions,
    Ready,
    ReadyReason,
    Score,
    Screenshot,
    Task,
)
from legato.desktop.fake.drawing import View, compose
from legato.desktop.fake.faults import (
    Call,
    FakeOptions,
    FaultPlan,
    Injected,
    Mortal,
    next_life,
    read_options,
)
from legato.desktop.fake.layout import SMALLEST, bare_view
from legato.desktop.fake.scene import Scene, open_scene
from legato.errors import ConfigError, EnvFailure, GradeFailure

_LARGEST = 8192


class FakeDesktop(Desktop):
    """A small GUI drawn in this process: no machine, no X server, no time passing.

    The screen follows from the task alone: from ``fake`` in its config, else from its
    ``task_id``. Nothing on it moves by itself, so it is ready at once and ``wait`` returns at
    once. ``fast_reset`` makes no difference, as every reset builds the screen from nothing.

    A crashed, killed or closed desktop stays dead; make a new one.
    """

    def __init__(
        self, options: DesktopOptions, fake: FakeOptions, slot: int, life: int = 0
    ) -> None:
        self._options = options
        self._screen = (options.width, options.height)
        self._plan = FaultPlan(fake, slot, life)
        self._fate = Mortal()
        self._scene: Scene | None = None
        self._seen: View | None = None
        # Weak, so that hundreds of desktops do not hold megabytes each for a look that may
        # never come.
        self._last: Callable[[], Screenshot | None] = lambda: None

    def prepare(self) -> None:
        self._begin("prepare", full_wait=True)
        self._scene = None

    def reset(self, task: Task) -> None:
        self._begin("reset", full_wait=True)
        try:
            self._scene = open_scene(task.task_id, task.config, task.instruction, self._screen)
        except ConfigError as e:
            self._scene = None
            raise EnvFailure(f"task {task.task_id}: {e}", transient=False) from e

    def wait_after_reset(self) -> Ready:
        return self._settle(self._begin("wait_after_reset"))

    def observe(self) -> Screenshot:
        """The same object again, PNG and hash included, for as long as the screen is unchanged
        and the caller still holds it; its ``taken_at`` is then that of the first look."""
        injected = self._begin("observe", full_wait=True)
        view = bare_view(*self._screen) if self._scene is None else self._scene.view()
        shot = self._last() if self._seen == view else None
        if shot is None:
            shot = Screenshot(compose(view), time.time())
            self._seen, self._last = view, weakref.ref(shot)
        if "wrong_size" in injected.kinds:
            return Screenshot(shot.rgb[::2, ::2].copy(), shot.taken_at)
        return shot

    def act(self, action: a.AnyAction) -> ActResult:
        injected = self._begin("act")
        started = time.perf_counter()
        if action.action_type in a.ENDS_EPISODE:
            return ActResult(0.0, Ready("none", 0.0))
        if self._scene is None:
            a.check_on_screen(action, *self._screen)
        else:
            self._scene.apply(action)
        act_s = time.perf_counter() - started
        return ActResult(act_s, self._settle(injected))

    def wait_before_eval(self) -> Ready:
        return self._settle(self._begin("wait_before_eval"))

    def evaluate(self) -> Score:
        injected = self._begin("evaluate", full_wait=True)
        if "broken_verifier" in injected.kinds:
            raise GradeFailure("the verifier broke, as configured")
        if self._scene is None:
            raise EnvFailure("nothing to evaluate: reset(task) comes first", transient=False)
        return self._scene.verdict()

    def check_health(self) -> None:
        self._begin("check_health", full_wait=True)

    def kill(self) -> None:
        self._fate.kill("killed")

    def close(self) -> None:
        try:
            if not self._fate.dead:
                self._begin("close", full_wait=True)
        except EnvFailure:
            pass  # killed while it hung in here, which is as good as closed
        self._fate.kill("closed")
        self._scene = self._seen = None

    def _begin(self, call: Call, *, full_wait: bool = False) -> Injected:
        """Let happen what is injected into this call; with ``full_wait``, its latency too."""
        self._fate.check()
        injected = self._plan.next(call)
        if "hang" in injected.kinds:
            self._fate.wait(None)
        if full_wait:
            self._fate.wait(injected.seconds)
        if "crash" in injected.kinds:
            self._fate.kill(f"crashed in {call}, as configured")
            self._fate.check()
        return injected

    def _settle(self, injected: Injected) -> Ready:
        """Wait until the injected latency is over, within the limits asked for."""
        reason: ReadyReason
        limit = self._options.ready_timeout
        if not self._options.ready_signal:
            seconds, reason = max(self._options.fixed_wait, injected.seconds), "fixed"
        elif injected.seconds > limit:
            seconds, reason = limit, "timeout"
        else:
            seconds, reason = injected.seconds, "idle"
        started = time.perf_counter()
        self._fate.wait(seconds)
        return Ready(reason, time.perf_counter() - started)


def make_desktop(options: DesktopOptions, slot: int) -> Desktop:
    """The factory of the entry point ``fake``. Raises ``ConfigError`` on invalid options."""
    for side in (options.width, options.height):
        if not SMALLEST <= side <= _LARGEST:
            raise ConfigError(
                f"the fake desktop draws {SMALLEST} to {_LARGEST} pixels in each direction, "
                f"not {options.width}x{options.height}"
            )
    fake = read_options(options.extra)
    return FakeDesktop(options, fake, slot, next_life(options, slot))
