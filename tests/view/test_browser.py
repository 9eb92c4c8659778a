"""The viewer as people use it: in a real Chromium, from a folder and from the server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from legato.rl.manifest import Manifest
from legato.rl.record import RunDir, read_records
from legato.rl.summary import summarise
from legato.view.gaps import Gap, note_gaps
from legato.view.images import Images
from legato.view.serve import ViewServer
from legato.view.site import write_site
from tests.rl.factories import make_group, make_rollout
from tests.view.chromium import Browser
from tests.view.pages import open_page, rollout_link

pytestmark = pytest.mark.browser

SIZES = [(1440, 900), (800, 900)]


@pytest.fixture(scope="module")
def site(fake_run: Path, other_run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with both runs, as a ``file:`` address."""
    out = tmp_path_factory.mktemp("site") / "view"
    return write_site([fake_run, other_run], out).as_uri()


@pytest.fixture(scope="module", params=["folder", "server"])
def address(
    request: pytest.FixtureRequest, site: str, fake_run: Path, other_run: Path
) -> Iterator[str]:
    """The same viewer by both ways."""
    if request.param == "folder":
        yield site
        return
    with ViewServer([fake_run, other_run]) as server:
        yield server.url


def pages(fake_run: Path) -> list[str]:
    record = next(r for r in read_records(fake_run) if r["n_steps"] > 1)
    group = quote(record["group_id"], safe="")
    return ["/", "/run/0", f"/run/0/group/{group}", rollout_link(record, 1), "/compare/0/1"]


def test_every_page_opens_without_complaint(address: str, browser: Browser, fake_run: Path) -> None:
    for page in pages(fake_run):
        open_page(browser, address, page)
        assert browser.eval("document.querySelector('main').innerText.length") > 50
        assert browser.eval("document.querySelector('main > .error')") is None
    assert browser.complaints() == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_every_page_fits_the_window_and_can_be_read(
    size: tuple[int, int], dark: bool, site: str, browser: Browser, fake_run: Path, tmp_path: Path
) -> None:
    browser.look(*size, dark=dark)
    for number, page in enumerate(pages(fake_run)):
        open_page(browser, site, page)
        assert browser.eval("document.documentElement.scrollWidth") <= size[0]
        assert browser.eval(_LOW_CONTRAST) == []
        browser.picture(tmp_path / f"{number}.png")
        seen = np.asarray(Image.open(tmp_path / f"{number}.png").convert("L"))
        assert (np.median(seen) < 80) == dark
        assert np.ptp(seen) > 100


@pytest.mark.parametrize("dark", [False, True])
def test_a_token_of_any_probability_can_be_read(
    dark: bool, site: str, browser: Browser, fake_run: Path
) -> None:
    browser.look(*SIZES[0], dark=dark)
    open_page(browser, site, pages(fake_run)[3])
    browser.eval(
        "for (const p of [0, 1, 2, 3, 4, 5, 6, 7, 'broken']) {"
        " const token = document.createElement('span');"
        " token.className = 'token p' + p; token.textContent = 'word';"
        " document.querySelector('.tokens').append(token); }"
    )
    assert browser.eval("document.querySelectorAll('.tokens .token').length") >= 9
    assert browser.eval(_LOW_CONTRAST) == []


# Texts whose colour is too close to that of the background (WCAG 2: 4.5, and 3 for large text).
_LOW_CONTRAST = """(() => {
  const rgb = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = (c) => {
    const [r, g, b] = rgb(c).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (top, below) => {
    const [r, g, b, a = 1] = rgb(top), under = rgb(below);
    return `rgb(${[r, g, b].map((v, i) => v * a + under[i] * (1 - a)).join(",")})`;
  };
  const behind = (node) => {
    if (!node) return "rgb(255,255,255)";
    const own = getComputedStyle(node).backgroundColor;
    const alpha = rgb(own)[3];
    if (alpha === 0) return behind(node.parentElement);
    return alpha === undefined ? own : over(own, behind(node.parentElement));
  };
  const bad = [];
  for (const node of document.querySelectorAll("main *, header *")) {
    if (![...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    if (node.closest("svg") || node.tagName === "OPTION") continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(style.color), light(behind(node))].sort((x, y) => y - x);
    const wanted = parseFloat(style.fontSize) >= 18.66 ? 3 : 4.5;
    if ((a + 0.05) / (b + 0.05) < wanted) bad.push([node.className, node.textContent.slice(0, 30)]);
  }
  return bad.slice(0, 5);
})()"""


def test_the_run_page_tells_what_the_record_tells(
    address: str, browser: Browser, fake_run: Path
) -> None:
    open_page(browser, address, "/run/0")
    records = list(read_records(fake_run))
    assert browser.eval("document.querySelectorAll('.rollouts tbody tr').length") == len(records)
    rows = browser.eval(
        "[...document.querySelectorAll('.rollouts tbody tr')]"
        ".map((r) => [r.cells[0].innerText, r.cells[3].innerText])"
    )
    assert rows == [
        [r["rollout_id"], "–" if r["reward"] is None else f"{r['reward']:.2f}"] for r in records
    ]
    success = sum(r["reward"] == 1 for r in records) / len(records)
    assert f"{round(100 * success)}%" in browser.eval("document.querySelector('.tiles').innerText")
    for title in (
        *("Success over time", "Success by task", "Rewards", "Failures by kind"),
        *("Where the time went", "Desktops at work over time", "Slowest steps"),
    ):
        assert title in browser.text()


def test_filters_narrow_the_table_and_stand_in_the_address(
    address: str, browser: Browser, fake_run: Path
) -> None:
    records = list(read_records(fake_run))
    task = records[0]["task_id"]
    open_page(browser, address, "/run/0")
    _choose(browser, "task", task)
    ids = [r["rollout_id"] for r in records if r["task_id"] == task]
    assert _listed(browser) == ids
    assert f"task={task}" in browser.eval("location.hash")
    _choose(browser, "reward", "1")
    ids = [r["rollout_id"] for r in records if r["task_id"] == task and r["reward"] == 1]
    assert _listed(browser) == ids
    fragment = browser.eval("location.hash")[1:]
    open_page(browser, address, fragment)
    assert _listed(browser) == ids
    assert browser.eval("document.querySelector('select[name=task]').value") == task


def test_tasks_that_differ_by_their_number_are_seen_as_one_kind(
    browser: Browser, tmp_path: Path
) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        for number, (task_id, reward) in enumerate(
            [("suite/press/7", 1.0), ("suite/press/11", 0.0), ("suite/drag", 1.0)]
        ):
            run.append(make_rollout(group_id=f"g{number}", task_id=task_id, reward=reward))
    open_page(browser, write_site([run.path], tmp_path / "view").as_uri(), "/run/0")
    bars = browser.eval("[...document.querySelectorAll('.bars')].map((b) => b.innerText)")
    assert any("suite/press/*" in text and "50%" in text for text in bars)
    _choose(browser, "task", "suite/press/*")
    assert _listed(browser) == ["g0/0", "g1/0"]
    _choose(browser, "task", "suite/press/11")
    assert _listed(browser) == ["g1/0"]


def test_replies_are_searched(address: str, browser: Browser, fake_run: Path) -> None:
    wanted = [
        r["rollout_id"]
        for r in read_records(fake_run)
        if any("drag" in s["response"]["content"] for s in r["steps"])
    ]
    open_page(browser, address, "/run/0?text=DRAG")
    browser.wait("!document.querySelector('.count').textContent.includes('searching')")
    assert _listed(browser) == wanted
    open_page(browser, address, "/run/0?text=nobody%20wrote%20this")
    browser.wait("document.body.innerText.includes('no rollout matches')")


def test_a_step_shows_what_was_seen_done_and_came_of_it(
    address: str, browser: Browser, fake_run: Path
) -> None:
    record = next(
        r
        for r in read_records(fake_run)
        if r["n_steps"] > 2 and all(a["action"] for a in r["steps"][0]["actions"])
    )
    open_page(browser, address, rollout_link(record, 0))
    first, second = (record["images"][s["images"][-1]]["sha256"] for s in record["steps"][:2])
    browser.wait("document.querySelector('.pictures .main canvas[data-painted]')")
    sources = browser.eval(
        "[...document.querySelectorAll('.pictures canvas')].map((c) => [c.dataset.src, c.width])"
    )
    assert [s.rpartition("/")[2][:64] for s, _ in sources] == [first, second, first, second]
    full = record["images"][0]["width"]
    assert [width for _, width in sources] == [full, *[min(full, 640)] * 3]
    action = record["steps"][0]["actions"][0]["action"]
    assert action is not None
    mark = browser.eval(
        "(() => { const o = document.querySelector('.pictures .main .overlay');"
        "const c = o.querySelector('.ink-fill[cx]') || o.querySelector('circle');"
        "return [o.viewBox.baseVal.width, c && +c.getAttribute('cx'), c && +c.getAttribute('cy')];"
        "})()"
    )
    assert mark == [1280, action["x"], action["y"]]
    assert record["steps"][0]["response"]["content"] in browser.text()
    assert browser.eval("document.querySelectorAll('.step-text .tokens .token').length") >= len(
        record["steps"][0]["response"]["token_ids"] or ()
    )


def test_keys_move_through_steps_and_rollouts(
    address: str, browser: Browser, fake_run: Path
) -> None:
    records = list(read_records(fake_run))
    at = next(i for i, r in enumerate(records[:-1]) if r["n_steps"] > 2)
    record, last = records[at], records[at]["n_steps"]
    open_page(browser, address, rollout_link(record))
    heading = "document.querySelector('.step h2').innerText"
    for key, step in (
        ("ArrowRight", 2),
        ("l", 3),
        ("ArrowLeft", 2),
        ("h", 1),
        ("ArrowLeft", 1),
        ("End", last),
        ("ArrowRight", last),
        ("Home", 1),
        ("ArrowRight", 2),
    ):
        browser.press(key)
        browser.wait(f"{heading} === 'Step {step} of {last}'")
    assert browser.eval("location.hash").endswith("/1")
    assert browser.eval("document.querySelector('.strip .current .caption').innerText")[0] == "2"
    browser.press("3")
    browser.wait("document.querySelector('.main figcaption').innerText.includes('difference')")
    browser.press("]")
    browser.wait(f"document.title.startsWith({json.dumps(records[at + 1]['rollout_id'])})")
    browser.press("[")
    browser.wait(f"document.title.startsWith({json.dumps(record['rollout_id'])})")
    browser.press("g")
    browser.wait(f"document.title.startsWith({json.dumps(record['group_id'])} + ' ·')")
    browser.press("u")
    browser.wait("document.querySelector('.rollouts')")
    browser.press("j")
    browser.press("j")
    browser.press("Enter")
    browser.wait(f"document.title.startsWith({json.dumps(records[1]['rollout_id'])})")
    browser.press("?")
    browser.wait("document.querySelector('dialog').open")


def test_typing_into_the_search_is_no_command(address: str, browser: Browser) -> None:
    open_page(browser, address, "/run/0")
    browser.press("/")
    browser.wait("document.activeElement.type === 'search'")
    before = browser.eval("location.hash")
    for key in "ug]":
        browser.press(key)
    assert browser.eval("document.activeElement.value") == "ug]"
    assert browser.eval("location.hash") == before


def test_a_link_leads_to_its_step(address: str, browser: Browser, fake_run: Path) -> None:
    record = next(r for r in read_records(fake_run) if r["n_steps"] > 2)
    open_page(browser, address, rollout_link(record, 2))
    assert browser.eval("document.querySelector('.step h2').innerText").startswith("Step 3 of")


@pytest.mark.parametrize(
    "fragment",
    [
        "/run/9",
        "/run/0/rollout/nobody/0",
        "/run/0/group/none",
        "/nowhere",
        "/live",
        "/run/__proto__",
    ],
)
def test_a_link_to_nothing_says_so(fragment: str, site: str, browser: Browser) -> None:
    browser.open("about:blank")
    browser.open(f"{site}#{fragment}")
    browser.wait("document.querySelector('main > .error')")


def test_runs_are_compared_task_by_task(
    address: str, browser: Browser, fake_run: Path, other_run: Path
) -> None:
    open_page(browser, address, "/compare/0/1")
    rows = browser.eval(
        "[...document.querySelectorAll('.tall tbody tr')]"
        ".map((r) => [r.cells[0].innerText, r.cells[3].innerText])"
    )
    changes = {}
    for task in {r["task_id"] for r in read_records(fake_run)}:
        means = [
            np.mean([r["reward"] for r in read_records(run) if r["task_id"] == task])  # type: ignore[misc]
            for run in (fake_run, other_run)
        ]
        changes[task] = f"{means[1] - means[0]:+.2f}".replace("-", "−")
    assert dict(rows) == changes


def test_the_attempts_of_a_group_stand_side_by_side(
    address: str, browser: Browser, fake_run: Path
) -> None:
    group = next(read_records(fake_run))["group_id"]
    members = sorted(
        (r for r in read_records(fake_run) if r["group_id"] == group), key=lambda r: r["attempt"]
    )
    open_page(browser, address, f"/run/0/group/{quote(group, safe='')}")
    shown = browser.eval(
        "[...document.querySelectorAll('.attempt')].map((a) => ["
        "a.querySelector('.reward').innerText, a.querySelectorAll('a.thumb').length,"
        " a.querySelectorAll('.checks li').length])"
    )
    assert shown == [
        [f"{r['reward']:.2f}", r["n_steps"], len((r["score"] or {"checks": ()})["checks"])]
        for r in members
    ]
    tops = browser.eval(
        "[...document.querySelectorAll('.attempt')].map((a) => a.getBoundingClientRect().top)"
    )
    assert len(set(tops)) == 1


def test_lost_and_empty_rollouts_have_a_page(browser: Browser, tmp_path: Path) -> None:
    from legato.rl.types import Status

    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        run.append(make_rollout(steps=0, status=Status.SKIPPED))
        run.append(
            make_rollout(attempt=1, steps=0, status=Status.ERROR, error_kind="env", error="it died")
        )
    url = write_site([run.path], tmp_path / "view").as_uri()
    open_page(browser, url, "/run/0/rollout/g0%2F0")
    assert "no step was made" in browser.text()
    open_page(browser, url, "/run/0/rollout/g0%2F1")
    assert "env: it died" in browser.text()
    open_page(browser, url, "/run/0/group/g0")
    assert "Too few verdicts" in browser.text()
    assert browser.complaints() == []


def test_a_run_without_records_has_a_page(browser: Browser, tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        pass
    open_page(browser, write_site([run.path], tmp_path / "view").as_uri(), "/run/0")
    assert "nothing yet" in browser.text()
    assert browser.complaints() == []


def test_gaps_are_shown_by_turn_and_at_their_step(browser: Browser, tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        for rollout in make_group([1.0, 0.0]):
            run.append(rollout)
    note_gaps(run.path, {"g0/0": [Gap(0, 1e-4, 2e-4), Gap(1, 3e-4, 5e-4)]})
    url = write_site([run.path], tmp_path / "view").as_uri()
    open_page(browser, url, "/run/0")
    assert "logprob gap by turn" in browser.text()
    open_page(browser, url, "/run/0/rollout/g0%2F0/1")
    assert "mean 3.0e-4, largest 5.0e-4 nats" in browser.text()


def test_what_is_not_finite_is_said(browser: Browser, tmp_path: Path) -> None:
    """A run that diverged is one that people want to look at."""
    nan = float("nan")
    rollouts = make_group([1.0, 0.0])
    for step in rollouts[0].steps:
        ids = step.generation.token_ids or ()
        step.generation = replace(step.generation, logprobs=(nan, *[-0.5] * (len(ids) - 1)))
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        for rollout in rollouts:
            run.append(rollout)
    note_gaps(run.path, {"g0/0": [Gap(0, nan, nan)], "g0/1": [Gap(0, 1e-4, 2e-4)]})
    site = write_site([run.path], tmp_path / "view").as_uri()
    with ViewServer([run.path]) as server:
        for url in (site, server.url):
            open_page(browser, url, "/run/0")
            assert "not finite: turn 1: 1 of 2 rollouts" in browser.text()
            open_page(browser, url, "/run/0/rollout/g0%2F0/0")
            assert re.search(r"trainer − server\s+not finite", browser.text())
            assert "not finite: 1 logprob" in browser.text()
            tokens = "[...document.querySelectorAll('.step-text .tokens .token')]"
            first, second = browser.eval(f"{tokens}.slice(0, 2).map((t) => t.title)")
            assert "logprob not finite" in first
            assert "logprob -0.5000" in second
    assert browser.complaints() == []


def test_a_run_of_gaps_none_of_which_is_finite_has_a_page(browser: Browser, tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        run.append(make_rollout())
    note_gaps(run.path, {"g0/0": [Gap(0, float("nan"), float("nan"))]})
    open_page(browser, write_site([run.path], tmp_path / "view").as_uri(), "/run/0")
    assert "not finite: turn 1: 1 of 1 rollout" in browser.text()
    assert browser.complaints() == []


def test_the_pace_leaves_out_the_time_between_sessions(
    browser: Browser, resumed_run: Path, tmp_path: Path
) -> None:
    url = write_site([resumed_run], tmp_path / "view").as_uri()
    open_page(browser, url, "/run/0")
    figures = browser.eval("legato.run('0').then((run) => legato.figures(run))")
    summary = summarise(resumed_run)
    assert figures["wall"] == pytest.approx(summary.wall_s)
    assert figures["perHour"] == pytest.approx(summary.rollouts_per_hour)
    assert "in 2 sessions" in browser.text()
    found = re.search(r"(\d+)% of 4 desktops leased on average; 2 sessions", browser.text())
    assert found
    leased = sum(r["timing"]["total_s"] for r in read_records(resumed_run))
    assert int(found[1]) == pytest.approx(100 * leased / (4 * summary.wall_s), abs=5)


def test_data_that_is_asked_for_again_arrives_both_times(browser: Browser, fake_run: Path) -> None:
    """As when a run grows while a page of it is on its way."""
    with ViewServer([fake_run]) as server:
        open_page(browser, server.url, "/run/0")
        found = browser.eval(
            "(async () => { await legato.run('0'); const name = '0/rollout-0';"
            " const before = legato.load(name); await legato.grown('0', 1e6);"
            " const after = legato.load(name); const late = new Promise((resolve) =>"
            " setTimeout(() => resolve(['one never came']), 10000));"
            " return Promise.race([late, Promise.all([before, after]).then(([a, b]) =>"
            " [a.rollout_id, b.rollout_id, a === b, legato.load(name) === after])]); })()"
        )
    name = next(read_records(fake_run))["rollout_id"]
    assert found == [name, name, False, True]
    assert browser.complaints() == []


def test_data_without_a_delivery_is_an_error(
    browser: Browser, fake_run: Path, tmp_path: Path
) -> None:
    index = write_site([fake_run], tmp_path / "view")
    (index.parent / "data/0/rollout-0.js").write_bytes(b"")
    record = next(read_records(fake_run))
    browser.open(f"{index.as_uri()}#{rollout_link(record)}")
    browser.wait(
        "document.querySelector('main > .error')?.innerText.includes('rollout-0.js cannot be read')"
    )


def test_a_picture_that_is_missing_is_said(
    browser: Browser, fake_run: Path, tmp_path: Path
) -> None:
    index = write_site([fake_run], tmp_path / "view", images=Images.COPY)
    for picture in (tmp_path / "view/data/0/images").iterdir():
        picture.unlink()
    record = next(read_records(fake_run))
    open_page(browser, index.as_uri(), rollout_link(record, 0))
    browser.wait("document.querySelector('.pictures').innerText.includes('picture missing')")


def _choose(browser: Browser, name: str, value: str) -> None:
    browser.eval(
        f"(() => {{ const s = document.querySelector('select[name={name}]');"
        f"s.value = {json.dumps(value)}; s.dispatchEvent(new Event('change')); }})()"
    )


def _listed(browser: Browser) -> list[str]:
    rows = "[...document.querySelectorAll('.rollouts tbody tr')].map((r) => r.cells[0].innerText)"
    found: list[str] = browser.eval(rows)
    return found
