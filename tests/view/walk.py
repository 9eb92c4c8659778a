"""Through the viewer of a recorded run as somebody would go who looks for one rollout."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from legato.rl.record import read_records
from legato.rl.schema import RolloutRecord
from legato.rl.types import VERDICTS
from legato.view.gaps import read_gaps
from tests.view.chromium import Browser, chromium
from tests.view.pages import open_page

GAP = re.compile(r"trainer − server\s+mean \d\.\de[-+]\d+, largest \d\.\de[-+]\d+ nats")
TOKEN = re.compile(r"id (\d+) · logprob (-?\d+\.\d+) · p ")
_WIDTHS = """Promise.all([...document.querySelectorAll('main canvas')].map((canvas) =>
  new Promise((resolve) => {
    const image = new Image();
    image.onload = () => resolve(image.naturalWidth);
    image.onerror = () => resolve(0);
    image.src = canvas.dataset.src;
  })))"""


def walk(run: Path, index: Path, *, gaps: bool) -> None:
    """From the page of ``run``, whose viewer is at ``index``, to the last step of a rollout.

    What is on each page is checked against the record. ``gaps``: a trainer noted how far its
    logprobs were from the server's.
    """
    noted = read_gaps(run)
    records = list(read_records(run))
    record = max(
        (r for r in records if r["status"] in VERDICTS and (r["rollout_id"] in noted or not gaps)),
        key=lambda r: r["n_steps"],
    )
    with chromium() as browser:
        browser.look(1280, 800)
        open_page(browser, index.as_uri())
        listed = (
            "[...document.querySelectorAll('.rollouts tbody tr')].map((r) => r.cells[0].innerText)"
        )
        assert browser.eval(listed) == [r["rollout_id"] for r in records]
        assert ("logprob gap by turn" in browser.text()) == gaps
        _follow(browser, "group", record)
        browser.wait(f"document.title.startsWith({json.dumps(record['group_id'] + ' ·')})")
        _pictures_are_there(browser)
        _follow(browser, "rollout", record)
        browser.wait(f"document.title.startsWith({json.dumps(record['rollout_id'] + ' ·')})")
        browser.press("End")
        last = record["n_steps"]
        browser.wait(f"document.querySelector('.step h2').innerText === 'Step {last} of {last}'")
        _pictures_are_there(browser)
        _tokens_are_shown(browser, record)
        assert bool(GAP.search(browser.text())) == gaps
        assert browser.complaints() == []


def _follow(browser: Browser, kind: str, record: RolloutRecord) -> None:
    """Click the first link of the page that leads there."""
    name = record["group_id"] if kind == "group" else record["rollout_id"]
    browser.eval(
        f"[...document.querySelectorAll('main a')].find((a) => decodeURIComponent("
        f"a.getAttribute('href')).startsWith({json.dumps(f'#/run/0/{kind}/{name}')})).click()"
    )


def _pictures_are_there(browser: Browser) -> None:
    browser.wait("document.querySelector('main canvas[data-painted]')")
    widths = browser.eval(_WIDTHS)
    assert widths
    assert min(widths) > 0
    assert "picture missing" not in browser.text()


def _tokens_are_shown(browser: Browser, record: RolloutRecord) -> None:
    reply = record["steps"][-1]["response"]
    tokens = "[...document.querySelectorAll('.step-text .tokens .token')]"
    told = [TOKEN.match(t) for t in browser.eval(f"{tokens}.map((t) => t.title)")]
    assert [int(token[1]) for token in told if token] == reply["token_ids"]
    assert [float(token[2]) for token in told if token] == pytest.approx(
        reply["logprobs"], abs=1e-4
    )
    spelled = "".join(browser.eval(f"{tokens}.map((t) => t.textContent)"))
    assert reply["content"].strip() in spelled.replace("⏎", "")
