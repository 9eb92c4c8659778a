"""What a desktop backend owes the driver, and the few values that pass between them.

The walk of one episode, all calls blocking and made from one thread at a time::

    reset(task) -> wait_after_reset() -> observe() -> [act(action) -> observe()]* ->
    wait_before_eval() -> evaluate() -> (reset for the next task | close())

A backend never retries, never counts and never sleeps on a guess; deadlines, retries and health
are the pool's. The one exception to "one thread at a time" is :meth:`Desktop.kill`.
"""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from PIL import Image

from legato.desktop.actions import Answer, AnyAction, Done, Fail
from legato.desktop.png import encode_png

ReadyReason = Literal["idle", "animated", "fixed", "timeout", "none"]
"""Why waiting ended.

``idle``: pixels, processes and page requests are quiet; ``animated``: only what never stops
still goes on (a spinner, a canvas, a process or request without end); ``fixed``: a fixed wait was
asked for; ``timeout``: the screen never settled within the limit; ``none``: nothing had to be
waited for.
"""


EndedBy = Done | Fail | Answer
"""The actions with which an agent ends its episode; some tasks are graded by them."""


@dataclass(frozen=True, slots=True)
class Ready:
    """How a wait for the screen ended."""

    reason: ReadyReason
    seconds: float
    """Wall-clock seconds from the start of the wait until it was over."""


@dataclass(frozen=True, slots=True)
class ActResult:
    """What :meth:`Desktop.act` did: input first, then the wait until the screen is ready."""

    act_s: float
    """Seconds spent performing the input events."""
    ready: Ready


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a verdict: a ``progress`` check earns, a failed ``guard`` voids."""

    name: str
    kind: Literal["progress", "guard"]
    passed: bool
    detail: str = ""
    share: float | None = None
    """Partial credit in [0, 1] of a ``progress`` check; ``None``: all or nothing."""


@dataclass(frozen=True, slots=True)
class Score:
    """A verdict on the end state. Only this is a reward."""

    reward: float
    """In [0, 1]."""
    checks: tuple[Check, ...] = ()
    output: str = ""
    """One line for people, such as ``2/3 changes made``."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.reward <= 1.0:
            raise ValueError(f"reward must lie in [0, 1], got {self.reward!r}")

    @property
    def score(self) -> float:
        """The reward, under the name that people who grade episodes use."""
        return self.reward


class Screenshot:
    """One frame of a desktop: 8-bit RGB, shape (height, width, 3), owned by this object.

    PNG bytes and their hash cost milliseconds, so they are made on first use; :meth:`seal` makes
    them on the caller's thread and lets the raw pixels go (a long rollout holds many frames).
    """

    __slots__ = ("__weakref__", "_png", "_rgb", "_sha256", "height", "taken_at", "width")

    def __init__(self, rgb: np.ndarray, taken_at: float) -> None:
        if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3:
            raise ValueError(f"expected uint8 (H, W, 3), got {rgb.dtype} {rgb.shape}")
        self.height, self.width = int(rgb.shape[0]), int(rgb.shape[1])
        self.taken_at = taken_at
        """Unix time in seconds."""
        self._rgb: np.ndarray | None = rgb
        self._png: bytes | None = None
        self._sha256: str | None = None

    @classmethod
    def from_png(cls, png: bytes, taken_at: float = 0.0) -> Screenshot:
        """Wrap stored PNG bytes; the hash is that of these very bytes."""
        self = cls.__new__(cls)
        with Image.open(io.BytesIO(png)) as image:
            self.width, self.height = image.size
        self.taken_at = taken_at
        self._rgb, self._png, self._sha256 = None, png, None
        return self

    @property
    def rgb(self) -> np.ndarray:
        """The pixels; decoded anew on every access once sealed."""
        if self._rgb is not None:
            return self._rgb
        assert self._png is not None
        with Image.open(io.BytesIO(self._png)) as image:
            return np.asarray(image.convert("RGB"))

    def pil(self) -> Image.Image:
        return Image.fromarray(self.rgb)

    @property
    def png(self) -> bytes:
        """Lossless PNG."""
        if self._png is None:
            assert self._rgb is not None
            self._png = encode_png(self._rgb)
        return self._png

    @property
    def sha256(self) -> str:
        """Hex SHA-256 of :attr:`png`: the name under which the frame is stored."""
        if self._sha256 is None:
            self._sha256 = hashlib.sha256(self.png).hexdigest()
        return self._sha256

    def seal(self) -> Screenshot:
        """Encode and hash now, then drop the raw pixels. Returns ``self``."""
        _ = self.sha256
        self._rgb = None
        return self


@dataclass(frozen=True, slots=True)
class Completed:
    """A finished command on the machine. ``stdout``/``stderr`` are cut at 1 MiB each."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Window:
    """A managed top-level window; geometry in screenshot pixels."""

    id: int
    title: str
    wm_class: str
    pid: int
    x: int
    y: int
    width: int
    height: int


class Machine(Protocol):
    """The operator's way into a desktop: what tasks use to set up and to grade.

    Nothing here is reachable by the agent, which only has :meth:`Desktop.act`. Every call has a
    deadline in seconds and raises :class:`~legato.errors.EnvFailure` when it passes or when the
    machine is gone. Paths are absolute guest paths.
    """

    screen: tuple[int, int]
    """(width, height) in pixels."""
    home: str
    """The agent's home inside the guest, such as ``/home/user``."""
    scratch: Path
    """A host directory of this episode that the guest cannot see; emptied by the next reset."""
    ended_by: EndedBy | None
    """How the agent ended the episode; ``None`` while it runs, or when a limit ended it."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 60.0,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Completed:
        """Run a command as the agent's user and wait for it."""
        ...

    def launch(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        wait_window: bool = True,
        timeout: float = 30.0,
    ) -> int:
        """Start a program; with ``wait_window``, return once its first window is mapped.

        Returns the guest pid. A browser is started with its devtools on a pipe held by the guest
        program, so that pending page requests count in the ready signal.
        """
        ...

    def launched(self, pid: int) -> tuple[int | None, str]:
        """Exit status (``None`` while it runs) and the end of the output of a launched program.

        The output comes over a pipe that only the program and its children hold.
        """
        ...

    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file of the agent's user, with its parent directories."""
        ...

    def read_file(self, path: str, *, limit: int = 64 * 2**20) -> bytes | None:
        """The bytes of a regular file, ``None`` if there is none.

        Symbolic links are not followed out of the guest's home; a file over ``limit`` bytes
        raises :class:`~legato.errors.FileTooLarge`.
        """
        ...

    def list_files(self, path: str) -> list[str]:
        """Relative paths of all regular files, links and empty directories below ``path``.

        Directories end in ``/``. Links are listed, never followed.
        """
        ...

    def windows(self) -> list[Window]: ...

    def activate_window(self, window_id: int) -> None: ...

    def close_window(self, window_id: int) -> bool:
        """Ask a window to close; whether it soon did, or asked back by another window.

        Nothing closes on a frozen machine.
        """
        ...

    def place_window(self, window_id: int, x: int, y: int, width: int, height: int) -> None:
        """Move and resize a window; the place of its inside, its frame apart, in pixels.

        A program may insist on another size.
        """
        ...

    def input(self, action: AnyAction) -> None:
        """Perform one GUI action without waiting (set-up scripts and reference episodes)."""
        ...

    def expose(self, port: int, socket_path: Path) -> None:
        """Let the guest's loopback ``port`` reach a server on a host unix socket.

        The server stays outside the agent's namespaces; the guest program relays bytes.
        """
        ...

    def freeze(self) -> None:
        """Stop every process of the agent until the next reset, so that grading sees one state.

        On return the servers behind :meth:`expose` have answered what was asked of them before.
        """
        ...

    def own(self, resource: Any) -> None:
        """Tie something with a ``close()`` method (a host-side app server) to this episode.

        It is closed, in reverse order, by the next reset and by :meth:`Desktop.close`.
        """
        ...


class Task(Protocol):
    """What a desktop must know of a task. :mod:`legato.tasks` has the implementations."""

    @property
    def task_id(self) -> str: ...

    @property
    def domain(self) -> str: ...

    @property
    def instruction(self) -> str: ...

    @property
    def config(self) -> Mapping[str, Any]:
        """The task as read, JSON-serialisable."""
        ...

    def setup(self, machine: Machine) -> None:
        """Bring a clean machine to the task's start; raises ``EnvFailure`` if that fails."""
        ...

    def grade(self, machine: Machine) -> Score:
        """Judge the end state; raises ``GradeFailure`` if the verifier itself broke."""
        ...


class Desktop(ABC):
    """One desktop. Any method may raise :class:`~legato.errors.EnvFailure`."""

    @abstractmethod
    def reset(self, task: Task) -> None:
        """Bring the desktop to a clean state and run the task's own set-up."""

    @abstractmethod
    def wait_after_reset(self) -> Ready:
        """Wait until the task's first screen is ready."""

    @abstractmethod
    def observe(self) -> Screenshot:
        """Take a screenshot; no waiting."""

    @abstractmethod
    def act(self, action: AnyAction) -> ActResult:
        """Perform one action, then wait until the screen is ready.

        Raises :class:`~legato.errors.ActionError` if the desktop rejects it (an unknown key, a
        point outside the screen); the desktop is then unchanged and still good. ``done``,
        ``fail`` and ``answer`` touch nothing: they are noted for grading and return at once.
        """

    @abstractmethod
    def wait_before_eval(self) -> Ready:
        """Let pending saves land before grading."""

    @abstractmethod
    def evaluate(self) -> Score:
        """Grade the end state of the current task.

        Raises :class:`~legato.errors.GradeFailure` if the verifier broke.
        """

    @abstractmethod
    def close(self) -> None:
        """Free everything this desktop holds. Idempotent; never raises."""


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class DesktopOptions:
    """What every backend understands; a backend's own options extend this."""

    width: int = 1280
    height: int = 720
    ready_signal: bool = True
    """Wait for the ready signal; ``False`` waits ``fixed_wait`` seconds after every action."""
    fixed_wait: float = 3.0
    """Seconds; used only with ``ready_signal=False``."""
    fast_reset: bool = True
    """``False`` rebuilds the desktop from nothing for every rollout."""
    ready_timeout: float = 15.0
    """Seconds after which a wait ends with the reason ``timeout``."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Options of the backend itself, checked by it."""


class DesktopFactory(Protocol):
    """What the entry-point group ``legato.desktops`` names: ``factory(options, slot) -> Desktop``.

    ``slot`` is a small integer unique among the live desktops of one pool. The call itself must
    be quick: booting belongs to ``prepare`` or the first ``reset``.
    """

    def __call__(self, options: DesktopOptions, slot: int) -> Desktop: ...
