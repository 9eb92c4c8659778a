"""What a batch is doing right now: every desktop's work, and the tally so far."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from legato.desktop.actions import action_json, describe
from legato.rl.driver import GroupResult
from legato.rl.observer import Phase, Silent
from legato.rl.types import VERDICTS, Rollout, Status

REPLY_CHARS = 400
"""How much of the last reply a snapshot carries."""
NAMED_S = 5.0
"""How long a screenshot can be had after the last snapshot that names it: a desktop may go on to
the next one before a viewer has asked for the first."""


@dataclass(frozen=True, slots=True)
class Doing:
    """One leased desktop."""

    rollout: Rollout
    phase: Phase
    since: float
    """Unix time at which the phase began."""


class Board(Silent):
    """An observer that remembers. Costs a few microseconds per event; pictures stay uncopied.

    Written on the event loop; other threads may read it, a moment late.
    """

    def __init__(self) -> None:
        self.desktops: dict[int, Doing] = {}
        """By slot; only desktops that are leased."""
        self.title = ""
        """Which batch of a longer run this is, in words of whoever drives it."""
        self.batches = 0
        self.groups = 0
        """Of the current batch, as are all the figures below."""
        self.groups_done = 0
        self.wanted = 0
        """Verdicts."""
        self.verdicts = 0
        """Those of an earlier, resumed run included."""
        self.fresh = 0
        """Verdicts of this process."""
        self.reward_sum = 0.0
        self.steps = 0
        self.lost: Counter[str] = Counter()
        """Tries lost to infrastructure, by kind."""
        self.statuses: Counter[str] = Counter()
        self._began = time.monotonic()
        self._named: dict[str, tuple[float, bytes]] = {}
        """When a screenshot was named, and its PNG, by hash. Empty unless somebody looks."""

    def batch_started(self, groups: int, verdicts: int, done: int) -> None:
        self.batches += 1
        self.groups, self.groups_done = groups, 0
        self.wanted, self.verdicts, self.fresh = verdicts, done, 0
        self.reward_sum, self.steps = 0.0, 0
        self.lost.clear()
        self.statuses.clear()
        self._began = time.monotonic()

    def phase_began(self, rollout: Rollout, phase: Phase) -> None:
        if rollout.desktop_slot is None:
            return
        if phase == "ended":
            self.desktops.pop(rollout.desktop_slot, None)
        else:
            self.desktops[rollout.desktop_slot] = Doing(rollout, phase, time.time())

    def rollout_ended(self, rollout: Rollout) -> None:
        self.statuses[rollout.status] += 1
        self.steps += len(rollout.steps)
        if rollout.status in VERDICTS and rollout.reward is not None:
            self.verdicts += 1
            self.fresh += 1
            self.reward_sum += rollout.reward
        if rollout.status in (Status.ERROR, Status.RETRIED) and rollout.error_kind is not None:
            self.lost[rollout.error_kind] += 1

    def group_ended(self, result: GroupResult) -> None:
        self.groups_done += 1

    @property
    def elapsed_s(self) -> float:
        """Seconds since the batch started."""
        return time.monotonic() - self._began

    @property
    def mean_reward(self) -> float | None:
        """Over the verdicts of this process."""
        return self.reward_sum / self.fresh if self.fresh else None

    @property
    def per_hour(self) -> float | None:
        """Verdicts per hour."""
        return 3600 * self.fresh / self.elapsed_s if self.fresh else None

    @property
    def eta_s(self) -> float | None:
        """Seconds to go at the rate so far; ``None`` until there is one."""
        if not self.fresh:
            return None
        return max(0, self.wanted - self.verdicts) * self.elapsed_s / self.fresh

    async def look(self) -> dict[str, Any]:
        """:meth:`state`; :meth:`picture` has the screenshots that it names."""
        self._name_shots()
        return self.state()

    async def picture(self, sha256: str) -> bytes | None:
        """The PNG of that hash, if :meth:`look` named it within :data:`NAMED_S`."""
        _, png = self._named.get(sha256, (0.0, None))
        return png

    def state(self) -> dict[str, Any]:
        """The board as JSON, its screenshots by hash."""
        return {
            "title": self.title,
            "batch": self.batches,
            "groups": self.groups,
            "groups_done": self.groups_done,
            "wanted": self.wanted,
            "verdicts": self.verdicts,
            "mean_reward": self.mean_reward,
            "per_hour": self.per_hour,
            "eta_s": self.eta_s,
            "elapsed_s": self.elapsed_s,
            "steps": self.steps,
            "lost": dict(self.lost),
            "desktops": [_desktop(slot, doing) for slot, doing in sorted(self.desktops.items())],
        }

    def _name_shots(self) -> None:
        now = time.monotonic()
        named = {name: kept for name, kept in self._named.items() if now - kept[0] < NAMED_S}
        for doing in self.desktops.values():
            shot = doing.rollout.final_screenshot
            if shot is not None:
                named[shot.sha256] = (now, shot.png)
        self._named = named


def _desktop(slot: int, doing: Doing) -> dict[str, Any]:
    rollout = doing.rollout
    shot = rollout.final_screenshot
    last = rollout.steps[-1] if rollout.steps else None
    return {
        "slot": slot,
        "rollout_id": rollout.rollout_id,
        "task_id": rollout.task_id,
        "phase": doing.phase,
        "since": doing.since,
        "steps": len(rollout.steps),
        "screenshot": (
            None
            if shot is None
            else {"sha256": shot.sha256, "width": shot.width, "height": shot.height}
        ),
        "reply": "" if last is None else last.generation.text[:REPLY_CHARS],
        "last": _last(rollout),
        "actions": [
            action_json(taken.action)
            for taken in (last.actions if last and doing.phase == "act" else ())
            if taken.action is not None
        ],
    }


def _last(rollout: Rollout) -> str:
    """The last action in words, or why it was none."""
    if not rollout.steps or not rollout.steps[-1].actions:
        return ""
    taken = list(rollout.steps[-1].actions)[-1]
    if taken.error is not None:
        return f"! {taken.error}"
    return "" if taken.action is None else describe(taken.action)
