"""What a frame of the fake desktop costs: drawing and PNG encoding apart, at 1280 x 720.

Frames are those of reference episodes, so each differs from the one before by one action.
CPU milliseconds of this thread, medians; one line per figure. Run it on its own.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from legato.desktop.contract import DesktopOptions, Screenshot
from legato.desktop.fake import FakeDesktop, fake_tasks, make_desktop, reference_actions

EPISODES = 60


@dataclass(frozen=True)
class BenchTask:
    task_id: str
    instruction: str
    config: dict[str, Any]
    domain: str = "fake"


def timed(call: Callable[[], Any], into: list[float]) -> Any:
    started = time.thread_time()
    result = call()
    into.append((time.thread_time() - started) * 1e3)
    return result


def main() -> None:
    resets: list[float] = []
    acts: list[float] = []
    draws: list[float] = []
    again: list[float] = []
    encodes: list[float] = []
    pillow: list[float] = []
    sizes: list[int] = []
    pillow_sizes: list[int] = []
    desktop = make_desktop(DesktopOptions(), 0)
    assert isinstance(desktop, FakeDesktop)
    for entry in fake_tasks(EPISODES, seed=1):
        config = entry["config"]
        task = BenchTask(entry["task_id"], config["instruction"], config)
        timed(lambda task=task: desktop.reset(task), resets)
        for action in reference_actions(task.task_id, config):
            shot: Screenshot = timed(desktop.observe, draws)
            timed(lambda shot=shot: shot.png, encodes)
            sizes.append(len(shot.png))
            out = io.BytesIO()
            image = shot.pil()
            timed(lambda image=image, out=out: image.save(out, "PNG", compress_level=1), pillow)
            pillow_sizes.append(len(out.getvalue()))
            timed(desktop.observe, again)
            timed(lambda action=action: desktop.act(action), acts)
        assert desktop.evaluate().reward == 1.0
    desktop.close()

    p50 = statistics.median
    print(f"fake: reset p50: {p50(resets):.3f} ms")
    print(f"fake: input of one action p50: {p50(acts):.3f} ms")
    print(f"fake: drawing one changed 1280x720 frame p50: {p50(draws):.3f} ms")
    print(f"fake: looking again at an unchanged screen p50: {p50(again):.3f} ms")
    print(f"fake: PNG-encoding one 1280x720 frame p50: {p50(encodes):.3f} ms")
    print(f"fake: PNG size of one 1280x720 frame p50: {p50(sizes) / 1024:.1f} KiB")
    print(f"fake: Pillow's PNG encoder at level 1 on the same frames p50: {p50(pillow):.3f} ms")
    print(f"fake: PNG size by Pillow's encoder p50: {p50(pillow_sizes) / 1024:.1f} KiB")


if __name__ == "__main__":
    main()
