"""What the viewer costs at 2,000 rollouts of 15 steps: writing it, its first page, its memory.

Run it on its own: ``bench_view.py [DIR]`` writes some 500 MB below DIR (default: the system's
temporary directory).
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from legato.desktop.contract import Check, Score
from legato.rl.manifest import Manifest
from legato.rl.record import RunDir, read_records
from legato.rl.schema import dump_json, encode
from legato.rl.types import Rollout
from legato.view.serve import ViewServer
from tests.bench.bench_record import STEPS, frames, rollout
from tests.view.chromium import Browser, chromium

ROLLOUTS = 2000
GROUP = 8
FRAMES = 300
"""Distinct screenshots; rollouts share them, as those of one task share their first ones."""
VISITS = 40
MB = 1e6

WRITE = """
import resource, sys
from pathlib import Path
from legato.view.site import write_site
write_site([sys.argv[1]], Path(sys.argv[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
"""


def make_run(path: Path) -> None:
    """A run directory as the driver writes it, without waiting for the disk 60,000 times."""
    rng = random.Random(0)
    source = frames()
    pool = [next(source) for _ in range(FRAMES)]
    with RunDir.create_or_resume(path, Manifest(group=GROUP, session={"desktops": 16})):
        pass
    with open(path / "rollouts.jsonl", "wb") as log:
        for number in range(ROLLOUTS):
            start = rng.randrange(FRAMES)
            shots = [pool[(start + k) % FRAMES] for k in range(STEPS)]
            encoded = encode(_varied(rollout(number, shots, rng), number, rng))
            for name, data in encoded.messages.items():
                (path / "messages" / f"{name}.json").write_bytes(data)
            for name, shot in encoded.screenshots.items():
                target = path / "images" / f"{name}.png"
                if not target.exists():
                    target.write_bytes(shot.png)
            record = {**encoded.record, "session": 0, "recorded_at": 1.8e9 + number}
            log.write(dump_json(record) + b"\n")


def _varied(made: Rollout, number: int, rng: random.Random) -> Rollout:
    task = f"task-{number // GROUP}"
    timing = replace(made.timing, model_s=30 * rng.random(), wait_s=9.0, total_s=45.0)
    return replace(
        made,
        rollout_id=f"{task}/{number % GROUP}",
        task_id=task,
        group_id=task,
        attempt=number % GROUP,
        timing=timing,
        started_at=1.8e9 + 45.0 * (number // 16),
        desktop_slot=number % 16,
        score=Score(made.reward or 0.0, (Check("saved", "progress", True),), "1/1 changes made"),
    )


def first_page(browser: Browser, url: str) -> float:
    """Seconds from asking for the page until its figures, charts and table are there."""
    browser.open("about:blank")
    browser.wait("location.href === 'about:blank'")
    started = time.monotonic()
    browser.open(url)
    browser.wait("document.querySelectorAll('.rollouts tbody tr').length")
    # Twice: the callback comes before the frame is drawn.
    browser.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return time.monotonic() - started


def held(browser: Browser) -> float:
    """MB of the page's process once the browser gives back what it only keeps for later."""
    browser.send("Memory.simulatePressureNotification", level="critical")
    browser.eval("new Promise((done) => setTimeout(done, 1000))")
    return browser.memory() / MB


def best(measure: Callable[[], float], times: int = 5) -> tuple[float, float]:
    """(median, worst) of some measurements."""
    taken = sorted(measure() for _ in range(times))
    return taken[len(taken) // 2], taken[-1]


def pictures(browser: Browser) -> int:
    return len({url for url in browser.requests() if "/images/" in url})


def look_around(browser: Browser, url: str, run: Path) -> float:
    """Visit some rollouts, every step of the last; seconds until a rollout is shown, on average."""
    taken = 0.0
    for number, record in enumerate(read_records(run)):
        if number == VISITS:
            break
        link = f"#/run/0/rollout/{record['rollout_id'].replace('/', '%2F')}/0"
        started = time.monotonic()
        browser.eval(f"location.hash = {json.dumps(link)}")
        title = json.dumps(record["rollout_id"] + " ")
        browser.wait(f"document.title.startsWith({title}) && document.querySelector('.step')")
        taken += time.monotonic() - started
    for _ in range(STEPS):
        browser.press("ArrowRight")
    return taken / VISITS


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as folder:
        run, out = Path(folder) / "run", Path(folder) / "view"
        make_run(run)
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", WRITE, str(run), str(out)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        print(f"view: writing {ROLLOUTS} rollouts: {time.monotonic() - started:.1f} s")
        print(f"view: memory while writing: {float(done.stdout):.0f} MB")
        size = sum(p.stat().st_size for p in out.rglob("*") if p.suffix != ".png") / MB
        index = (out / "data/0/index.js").stat().st_size / MB
        print(f"view: data beside pictures: {size:.0f} MB, of which the first page {index:.2f} MB")
        with chromium() as browser:
            browser.look(1440, 900)
            url = (out / "index.html").as_uri()
            first_page(browser, url)
            median, worst = best(lambda: first_page(browser, url))
            print(f"view: first page from the folder: {median:.2f} s, worst {worst:.2f} (bar <= 1)")
            print(f"view: pictures loaded by the first page: {pictures(browser)} of {FRAMES}")
            print(f"view: browser memory, first page: {browser.memory() / MB:.0f} MB (bar <= 500)")
            seconds = look_around(browser, url, run)
            print(f"view: opening a rollout: {seconds:.2f} s")
            memory = browser.memory() / MB
            print(f"view: browser memory, {VISITS} rollouts later: {memory:.0f} MB (bar <= 500)")
            started = time.monotonic()
            browser.eval("location.hash = '#/run/0?text=nobody wrote this'")
            browser.wait("document.body.innerText.includes('no rollout matches')")
            browser.wait("!document.querySelector('.count').textContent.includes('searching')")
            print(f"view: searching all replies: {time.monotonic() - started:.1f} s")
            print(
                f"view: browser memory, all replies searched: {held(browser):.0f} MB (bar <= 500)"
            )
        started = time.monotonic()
        with ViewServer([run]) as server, chromium() as browser:
            print(f"view: start of the server: {time.monotonic() - started:.1f} s")
            browser.look(1440, 900)
            first_page(browser, server.url)
            median, worst = best(lambda: first_page(browser, server.url))
            print(f"view: first page from the server: {median:.2f} s, worst {worst:.2f} (bar <= 1)")


if __name__ == "__main__":
    main()
