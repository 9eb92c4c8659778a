"""What the ready signal and standby are worth on real local desktops.

The same six-action episode under the ready signal and under fixed waits, same verdict, in one
run; then the wait for the next clean desktop within a running batch under a policy that thinks.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence

from legato.desktop.actions import AnyAction, Click, Key, Type
from legato.desktop.contract import DesktopOptions, Task
from legato.desktop.local import make_desktop
from legato.rl.driver import Driver, GroupOptions
from legato.rl.harness import make_harness
from legato.rl.pool import Pool
from legato.rl.rollout import Limits
from legato.rl.types import Generation, Prompt, Rollout, Sampling, Status
from legato.tasks import parse_tasks

FIXED_S = 3.0
ROUNDS = 5
NOTE = "/home/user/note.txt"
ACTIONS: Sequence[AnyAction] = (
    Click(x=640, y=360),
    Key(key="ctrl+End"),
    Type(text="last\n"),
    Key(key="ctrl+Home"),
    Type(text="first\n"),
    Key(key="ctrl+s"),
)


def note_task() -> Task:
    """Add a first and a last line to a note; judged by the saved file."""
    config = {
        "instruction": "Add the line 'first' at the top and 'last' at the end, then save.",
        "config": [
            {
                "type": "execute",
                "parameters": {"command": f"printf 'one\\n' > {NOTE}", "shell": True},
            },
            {"type": "open", "parameters": {"path": NOTE}},
        ],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": f"cat {NOTE}", "shell": True},
            "expected": {"type": "rule", "rules": {"expected": "first\none\nlast\n"}},
        },
    }
    return parse_tasks([{"task_id": "note", "config": config}], backend="local")[0]


def episode_seconds(options: DesktopOptions, rounds: int) -> tuple[list[float], set[float]]:
    """Seconds from the first look to the verdict, and the verdicts, of ``rounds`` episodes."""
    desktop = make_desktop(options, 0)
    took: list[float] = []
    rewards: set[float] = set()
    try:
        for _ in range(rounds):
            desktop.reset(note_task())
            started = time.monotonic()
            desktop.wait_after_reset()
            desktop.observe().seal()
            for action in ACTIONS:
                desktop.act(action)
                desktop.observe().seal()
            desktop.wait_before_eval()
            rewards.add(desktop.evaluate().reward)
            took.append(time.monotonic() - started)
    finally:
        desktop.close()
    return took, rewards


class Thinking:
    """A policy that takes half a second and then plays the episode."""

    version = "0"

    def __init__(self) -> None:
        self._harness = make_harness("qwen3_5", tokenizer=None)
        self._replies = [self._harness.render_reply(a, (1280, 720)) for a in ACTIONS]

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        await asyncio.sleep(0.5)
        turn = sum(message.role == "assistant" for message in prompt.messages)
        return Generation(
            text=self._replies[turn],
            token_ids=None,
            logprobs=None,
            prompt_ids=None,
            image_tokens=None,
            version=self.version,
            finish_reason="stop",
        )

    async def aclose(self) -> None:
        return


async def leases(desktops: int, groups: int) -> tuple[list[float], float, float]:
    """Waits for a clean desktop after the first round, rollouts per hour, share of reward 1."""
    ended: list[Rollout] = []

    async def keep(rollout: Rollout) -> None:
        ended.append(rollout)

    async with Pool(make_desktop, DesktopOptions(), size=desktops) as pool:
        driver = Driver(
            pool,
            Thinking(),
            make_harness("qwen3_5", tokenizer=None),
            policy_model="stub",
            sampling=Sampling(),
            limits=Limits(max_steps=len(ACTIONS)),
            groups=GroupOptions(size=4),
            on_rollout=keep,
        )
        started = time.monotonic()
        await asyncio.gather(
            *(driver.run_group(note_task(), f"g{n}", priority=n) for n in range(groups))
        )
        hours = (time.monotonic() - started) / 3600
    verdicts = [r for r in ended if r.status is Status.OK]
    right = sum(r.reward == 1.0 for r in verdicts) / len(verdicts)
    return sorted(pool.lease_waits[desktops:]), len(verdicts) / hours, right


def main() -> None:
    ours, rewards = episode_seconds(DesktopOptions(), ROUNDS)
    fixed, fixed_rewards = episode_seconds(
        DesktopOptions(ready_signal=False, fixed_wait=FIXED_S), 1
    )
    assert rewards == fixed_rewards == {1.0}, (rewards, fixed_rewards)
    ratio = statistics.median(fixed) / statistics.median(ours)
    print(f"local: six-action episode, ready signal p50: {statistics.median(ours):.2f} s")
    print(f"local: six-action episode, fixed {FIXED_S:g} s waits: {fixed[0]:.2f} s")
    print(f"local: fixed waits against the ready signal, same verdicts: {ratio:.1f}x (bar >= 5x)")
    waits, per_hour, right = asyncio.run(leases(desktops=2, groups=8))
    p50, p90 = statistics.median(waits), waits[int(0.9 * len(waits))]
    print(f"local: next lease in a running batch p50: {p50 * 1e3:.1f} ms (bar <= 50 ms)")
    print(f"local: next lease in a running batch p90: {p90 * 1e3:.1f} ms (bar <= 500 ms)")
    print(f"local: rollouts per hour of that batch, 2 desktops: {per_hour:.0f}")
    print(f"local: share of its verdicts that are 1: {right:.2f}")


if __name__ == "__main__":
    main()
