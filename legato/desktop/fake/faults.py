"""Faults on demand: latency, hangs, crashes, wrong sizes and broken verifiers, by seed.

Whether a fault strikes is a function of the seed, the desktop's slot and life, the number of the
rollout, the name of the call and its number within the rollout: never of the clock or of the
order in which threads run. A *life* is one desktop object: the first desktop that a pool makes
for a slot is life 0, the one that replaces it after a crash is life 1.
"""

from __future__ import annotations

import random
import threading
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass as validated

from legato.desktop.contract import DesktopOptions
from legato.errors import ConfigError, EnvFailure

Call = Literal[
    "prepare",
    "reset",
    "wait_after_reset",
    "observe",
    "act",
    "wait_before_eval",
    "evaluate",
    "check_health",
    "close",
]
CALLS: tuple[str, ...] = get_args(Call)

FaultKind = Literal["hang", "crash", "slow", "wrong_size", "broken_verifier"]

Seconds = Annotated[float, Field(ge=0.0, le=3600.0, allow_inf_nan=False)]

_STRICT = ConfigDict(extra="forbid")


@validated(frozen=True, kw_only=True, config=_STRICT)
class Fault:
    """One thing that goes wrong.

    ``hang``
        the call blocks until ``kill()``, then raises ``EnvFailure``
    ``crash``
        the desktop dies: this call and every later one raises ``EnvFailure``
    ``slow``
        the call takes ``seconds`` longer
    ``wrong_size``
        ``observe`` returns a screenshot of half the size
    ``broken_verifier``
        ``evaluate`` raises ``GradeFailure``
    """

    kind: FaultKind
    call: Call | Literal["any"] | None = None
    """The call it strikes; ``any`` is each of them but ``close``. Needed for the first three
    kinds, fixed by the others."""
    p: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Probability by call."""
    at: Annotated[int, Field(ge=1)] | None = None
    """Strikes exactly the ``at``-th such call of a life, counted from 1; instead of ``p``."""
    seconds: Seconds = 0.0
    """Of ``slow``."""
    slots: tuple[int, ...] | None = None
    """Only these slots; all by default."""
    lives: Annotated[int, Field(ge=1)] | None = None
    """Only the first so many desktops of a slot; all by default."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Fault:
        fixed = {"wrong_size": "observe", "broken_verifier": "evaluate"}.get(self.kind)
        if fixed is not None and self.call not in (None, fixed):
            raise ValueError(f"{self.kind} strikes {fixed} only")
        if fixed is None and self.call is None:
            raise ValueError(f"{self.kind} needs a call: one of {', '.join(CALLS)}, any")
        if self.kind == "crash" and self.call == "close":
            raise ValueError("close never raises, so it cannot crash")
        if (self.at is None) == (self.p == 0.0):
            raise ValueError("give either p above 0 or at")
        if (self.kind == "slow") != (self.seconds > 0.0):
            raise ValueError("seconds belongs to slow, and slow needs it")
        return self

    def strikes(self, call: str) -> bool:
        if self.kind == "wrong_size":
            return call == "observe"
        if self.kind == "broken_verifier":
            return call == "evaluate"
        return call == self.call or (self.call == "any" and call != "close")


@validated(frozen=True, kw_only=True, config=_STRICT)
class FakeOptions:
    """What stands in ``DesktopOptions.extra`` for the fake desktop."""

    seed: int = 0
    """Of the faults and latencies. What the screen shows depends on the task alone."""
    latency: dict[Call, Seconds | tuple[Seconds, Seconds]] = Field(default_factory=dict)
    """Seconds that a call takes, by its name: a number, or a range drawn from uniformly."""
    faults: tuple[Fault, ...] = ()

    @model_validator(mode="after")
    def _ranges(self) -> FakeOptions:
        for call, span in self.latency.items():
            if isinstance(span, tuple) and span[0] > span[1]:
                raise ValueError(f"latency of {call}: {span[0]} is above {span[1]}")
        return self


_OPTIONS: TypeAdapter[FakeOptions] = TypeAdapter(FakeOptions)


def read_options(extra: Mapping[str, Any]) -> FakeOptions:
    """Validate ``DesktopOptions.extra``. Raises ``ConfigError`` naming the key at fault."""
    try:
        return _OPTIONS.validate_python(dict(extra))
    except ValidationError as e:
        problems = (
            ".".join(map(str, item["loc"])) + ": " + item["msg"]
            for item in e.errors(include_url=False)
        )
        raise ConfigError(f"invalid options of the fake desktop: {'; '.join(problems)}") from None


@dataclass(frozen=True, slots=True)
class Injected:
    """What is to happen to one call."""

    seconds: float = 0.0
    kinds: frozenset[str] = frozenset()


_NOTHING = Injected()


class FaultPlan:
    """The faults of one desktop. Not thread-safe: calls come from one thread at a time."""

    def __init__(self, options: FakeOptions, slot: int, life: int = 0) -> None:
        self._options = options
        self._where = f"{options.seed}/{slot}/{life}"
        self._faults = tuple(
            fault
            for fault in options.faults
            if (fault.slots is None or slot in fault.slots)
            and (fault.lives is None or life < fault.lives)
        )
        self._rollout = -1
        self._in_life: Counter[int] = Counter()
        self._in_rollout: Counter[str] = Counter()

    def next(self, call: Call) -> Injected:
        """Count a call and decide about it; ``reset`` begins a new rollout."""
        if call == "reset":
            self._rollout += 1
            self._in_rollout.clear()
        if not self._faults and call not in self._options.latency:
            return _NOTHING
        self._in_rollout[call] += 1
        rng = random.Random(f"{self._where}/{self._rollout}/{call}/{self._in_rollout[call]}")
        seconds = _draw(rng, self._options.latency.get(call, 0.0))
        kinds = set()
        for number, fault in enumerate(self._faults):
            luck = rng.random()
            if not fault.strikes(call):
                continue
            self._in_life[number] += 1
            if luck < fault.p or self._in_life[number] == fault.at:
                kinds.add(fault.kind)
                seconds += fault.seconds
        return Injected(seconds, frozenset(kinds))


def _draw(rng: random.Random, span: float | tuple[float, float]) -> float:
    return rng.uniform(*span) if isinstance(span, tuple) else span


class Mortal:
    """Something that waits on purpose and can be killed meanwhile, from any thread."""

    def __init__(self) -> None:
        self._dead = threading.Event()
        self._why = ""

    def kill(self, why: str) -> None:
        if not self._dead.is_set():
            self._why = why
            self._dead.set()

    @property
    def dead(self) -> bool:
        return self._dead.is_set()

    def check(self) -> None:
        """Raise ``EnvFailure`` once dead."""
        if self._dead.is_set():
            raise EnvFailure(f"the fake desktop is gone: {self._why}")

    def wait(self, seconds: float | None) -> None:
        """Wait so long (``None``: for good); raises ``EnvFailure`` as soon as it is killed."""
        if seconds is None or seconds > 0.0:
            self._dead.wait(seconds)
        self.check()


_lives: dict[tuple[int, int], int] = {}
_lives_lock = threading.Lock()


def next_life(options: DesktopOptions, slot: int) -> int:
    """How many desktops these very options have had in this slot before.

    Counted by the identity of ``options``, which one pool hands to all its desktops, so that a
    second run in the same process begins at 0 again.
    """
    key = (id(options), slot)
    with _lives_lock:
        life = _lives.get(key)
        if life is None:
            life = 0
            weakref.finalize(options, _forget, key)
        _lives[key] = life + 1
        return life


def _forget(key: tuple[int, int]) -> None:
    with _lives_lock:
        _lives.pop(key, None)
