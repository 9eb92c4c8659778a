"""The failure model, in one place.

Every failure is attributed once, to whoever can act on it:

==========  =======================  ====================================================
kind        raised as                what the driver does with it
==========  =======================  ====================================================
``policy``  :class:`PolicyFailure`   the model server: retry the call, then end the attempt
``env``     :class:`EnvFailure`      desktop or task set-up: retry on another desktop, then
                                     end the attempt and refill its group
``grade``   :class:`GradeFailure`    the verifier itself broke: no reward exists
==========  =======================  ====================================================

None of these is ever turned into a reward of 0: an attempt that ends with one of them carries
no reward and takes no part in its group's mean and standard deviation.

:class:`ActionError` is different in kind. It is the *agent's* mistake (an unknown key, a click
outside the screen), is told back to the policy as an observation, costs a step, and never ends
an episode. :class:`ConfigError` is the *user's*: it is raised before anything starts and says
what to change.

:class:`EpisodeOver` is the *caller's*: it drives an episode that has ended or not begun.

:class:`StorageError` and :class:`SampleError` speak of what is kept rather than of an attempt: the
run directory cannot be written, or a recorded step does not add up to a training row.
"""

from __future__ import annotations

from typing import ClassVar, Literal

FailureKind = Literal["policy", "env", "grade"]


class LegatoError(Exception):
    """Base of every error that legato raises on purpose."""


class ConfigError(LegatoError):
    """The request cannot be served as written; raised before anything is started."""


class ActionError(LegatoError):
    """The agent asked for something the desktop cannot or may not do."""


class EpisodeOver(LegatoError):  # noqa: N818 - the name says what is the case
    """A step or a score was asked of an episode that has ended, or has not begun."""


class Failure(LegatoError):  # noqa: N818 - the field says "failure", and so does the record
    """Infrastructure failed; the attempt has no verdict.

    ``transient`` tells the caller whether the same call may succeed when simply repeated.
    """

    kind: ClassVar[FailureKind]

    def __init__(self, message: str, *, transient: bool = True) -> None:
        super().__init__(message)
        self.transient = transient


class PolicyFailure(Failure):
    """The model server is down, slow, refused the request or answered with something unusable."""

    kind = "policy"


class ContextLimit(PolicyFailure):
    """The prompt no longer fits the model's context: the rollout ends ``truncated``, graded."""

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=False)


class EnvFailure(Failure):
    """A desktop died, hung past its deadline, or a task could not be set up on it."""

    kind = "env"


class FileTooLarge(EnvFailure):
    """A file on the machine is larger than the caller's limit.

    Told apart because it may well be the agent's doing: a verifier takes it for a failed check.
    """


class SandboxError(EnvFailure):
    """The desktop would not have been isolated as promised, so it was not handed out."""


class GradeFailure(Failure):
    """The verifier broke. Distinct from a verdict of 0, which is a result."""

    kind = "grade"


class StorageError(LegatoError):
    """A run directory cannot be read or written; the records already in it stay readable."""


class DiskFullError(StorageError):
    """No space is left (or the quota is used up). Nothing torn remains; the run can be resumed."""


class SampleError(LegatoError):
    """A training row would not be exactly what was sampled."""
