"""A rollout as a strip of pictures: what films and contact sheets are made from.

It comes from a record on disk or from a rollout in a trainer's memory; either way pictures are
loaded one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from legato.desktop.actions import parse_action
from legato.errors import ConfigError
from legato.rl.manifest import RunPath, read_manifest
from legato.rl.record import load_screenshot, read_records
from legato.rl.schema import RolloutRecord
from legato.rl.types import Rollout
from legato.view.detail import screen_of
from legato.view.draw import Shown


@dataclass(frozen=True, slots=True)
class Frame:
    """What the policy saw and did; the last one has no actions."""

    load: Callable[[], Image.Image]
    actions: tuple[Shown, ...]
    step: int | None
    """``None``: the end of the rollout."""


@dataclass(frozen=True, slots=True)
class Strip:
    """One rollout."""

    rollout_id: str
    task_id: str
    group_id: str
    status: str
    reward: float | None
    verdict: str
    """The verdict, or what went wrong, in one line."""
    screen: tuple[int, int] | None
    """What action coordinates refer to; ``None``: the pixels of each picture."""
    frames: tuple[Frame, ...]

    @property
    def title(self) -> str:
        reward = "" if self.reward is None else f"  reward {self.reward:.2f}"
        return f"{self.rollout_id}  {self.status}{reward}"


def read_strips(run_dir: RunPath) -> Iterator[Strip]:
    """Every record of a run as a strip, in the order written.

    Raises :class:`ConfigError` if there is no run.
    """
    folder, screen = Path(run_dir), screen_of(read_manifest(run_dir))
    for record in read_records(run_dir):
        yield _from_record(folder, record, screen)


def find_strip(run_dir: RunPath, rollout: str) -> Strip:
    """One rollout by its id, or by its number in the order written.

    Raises :class:`ConfigError` if there is none.
    """
    known: list[str] = []
    for number, strip in enumerate(read_strips(run_dir)):
        if rollout in (strip.rollout_id, str(number)):
            return strip
        known.append(strip.rollout_id)
    some = ", ".join(known[:5]) + (", …" if len(known) > 5 else "")
    raise ConfigError(f"no rollout {rollout!r} in {run_dir}; it has {some or 'none yet'}")


def strip_of(rollout: Rollout, screen: tuple[int, int] | None) -> Strip:
    """A rollout in memory; ``screen`` is the desktop's (width, height) in pixels."""
    frames = [
        Frame(
            step.prompt.images[-1].pil,
            tuple(Shown(taken.action, taken.error) for taken in step.actions),
            number,
        )
        for number, step in enumerate(rollout.steps)
        if step.prompt.images
    ]
    if rollout.final_screenshot is not None:
        frames.append(Frame(rollout.final_screenshot.pil, (), None))
    verdict = rollout.error or "" if rollout.score is None else rollout.score.output
    return Strip(
        rollout.rollout_id,
        rollout.task_id,
        rollout.group_id,
        rollout.status.value,
        rollout.reward,
        verdict,
        screen,
        tuple(frames),
    )


def _from_record(folder: Path, record: RolloutRecord, screen: tuple[int, int] | None) -> Strip:
    def loader(name: str) -> Callable[[], Image.Image]:
        return lambda: load_screenshot(folder, name).pil()

    frames = [
        Frame(
            loader(record["images"][step["images"][-1]]["sha256"]),
            tuple(
                Shown(None if a["action"] is None else parse_action(a["action"]), a["error"])
                for a in step["actions"]
            ),
            number,
        )
        for number, step in enumerate(record["steps"])
        if step["images"]
    ]
    if record["final_screenshot"] is not None:
        frames.append(Frame(loader(record["final_screenshot"]), (), None))
    error, score = record["error"], record["score"]
    verdict = score["output"] if score is not None else error["message"] if error else ""
    return Strip(
        record["rollout_id"],
        record["task_id"],
        record["group_id"],
        record["status"],
        record["reward"],
        verdict,
        screen,
        tuple(frames),
    )
