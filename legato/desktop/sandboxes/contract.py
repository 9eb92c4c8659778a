"""What a provider of sandboxes must offer to become a desktop backend: eight calls.

A sandbox is a machine somewhere else that is started and billed by someone else, and that we
reach through its provider's API. A further provider is one file: a :class:`Sandboxes`, the options
it needs, and a factory that gives both to
:class:`~legato.desktop.sandboxes.desktop.SandboxDesktop`. What it must keep to is tested by
:mod:`legato.desktop.sandboxes.conformance`.

The machine must have the packages of :mod:`legato.desktop.image`, and allow user namespaces, in
which the desktop is locked up. Nothing else of it is relied on, a network least of all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from legato.desktop.guest.mux import Stream
from legato.errors import EnvFailure


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One sandbox as its provider knows it."""

    id: str
    labels: Mapping[str, str]
    created_at: float
    """Unix time in seconds; 0 if the provider does not say."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a command said, standard error included, and its exit code."""

    code: int
    text: str


class Busy(EnvFailure):
    """The provider wants fewer requests, or is out of order for a moment: try again later."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds that the provider asks us to wait."""


class QuotaReached(EnvFailure):
    """The account may not have more sandboxes than it has: no repeat will help."""

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=False)


class KeyRefused(EnvFailure):
    """The provider does not take our key (any more)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=False)


class SandboxGone(EnvFailure):
    """There is no such sandbox any more."""


class Sandboxes(ABC):
    """The sandboxes of one account. Called from several threads.

    Every call has a deadline of its own (a minute where none is given) and raises ``EnvFailure``:
    one of the classes above where they fit, and never with the key in its message. No call is
    repeated here: that is for :class:`~legato.desktop.sandboxes.fleet.Fleet`.
    """

    kind: ClassVar[str]
    """The backend's name, such as ``daytona``."""

    @abstractmethod
    def check(self) -> None:
        """Return if the key is taken and the image is there; called once, before anything starts.

        Raises :class:`~legato.errors.ConfigError` saying what to do.
        """

    @abstractmethod
    def create(self, labels: Mapping[str, str], *, life_s: float, timeout: float) -> Sandbox:
        """A running sandbox with these labels, which ends by itself in ``life_s`` s.

        It has no way out into a network, and nobody comes in but with what the provider gave us.
        """

    @abstractmethod
    def keep(self, id: str, life_s: float) -> None:
        """Have it end by itself only ``life_s`` seconds from now."""

    @abstractmethod
    def execute(
        self,
        id: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> Output:
        """Run a command as the sandbox's operator (root, where there is one), and wait for it."""

    @abstractmethod
    def upload(self, id: str, path: str, data: bytes) -> None:
        """Create or replace a file of the operator's; its directory exists."""

    @abstractmethod
    def download(self, id: str, path: str) -> bytes | None:
        """The bytes of a file, ``None`` if there is none."""

    @abstractmethod
    def stream(
        self, id: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> Stream:
        """Start a command and be at its standard streams, bytes as they are.

        It ends when the stream is closed, however that comes about; when it ends, so does the
        stream. A provider that forwards a port derives from
        :class:`~legato.desktop.sandboxes.port.PortSandboxes` and gets this.
        """

    @abstractmethod
    def delete(self, id: str) -> None:
        """End it, and wait until the provider has noted that. None there: nothing to do."""

    @abstractmethod
    def list(self, labels: Mapping[str, str]) -> list[Sandbox]:
        """All that exist with these labels, whoever made them."""

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of connections. Idempotent, never raises."""
