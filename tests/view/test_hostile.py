"""Nothing that was recorded can run in the viewer."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from legato.rl.record import read_records
from legato.view.serve import ViewServer
from legato.view.site import write_site
from tests.view.chromium import Browser
from tests.view.hostile import PAYLOADS, make_hostile_run
from tests.view.pages import open_page, rollout_link

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "run"
    make_hostile_run(path)
    return path


@pytest.mark.parametrize("way", ["folder", "server"])
def test_nothing_that_was_recorded_can_run(
    way: str, browser: Browser, hostile_run: Path, tmp_path: Path
) -> None:
    def check(page: str) -> None:
        assert browser.eval("window.pwned") is None, page
        assert browser.eval("({}).pwned") is None, page
        assert browser.eval(_FOREIGN) == [], page

    def walk(url: str) -> None:
        records = list(read_records(hostile_run))
        open_page(browser, url, "/run/0")
        for payload in PAYLOADS:
            plain = " ".join(payload.split())
            assert plain in " ".join(browser.text().split()), payload
        check("run")
        for payload in PAYLOADS:
            open_page(browser, url, f"/run/0/group/{quote(payload, safe='')}")
            check(payload)
            assert browser.eval("document.querySelectorAll('.attempt').length") == 3
        for record in records[:: 1 if way == "folder" else 5]:
            open_page(browser, url, rollout_link(record, 1))
            browser.eval("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            check(record["rollout_id"])
            payload = record["task_id"]
            texts = browser.eval(
                "[...document.querySelectorAll('pre.text')].map((p) => p.textContent)"
            )
            assert payload in texts
        for key in ("text", "task", "sort", "status"):
            for payload in PAYLOADS[:4]:
                open_page(browser, url, f"/run/0?{key}={quote(payload, safe='')}")
                check(payload)
        asked = [r for r in browser.requests() if not r.startswith(("about:", url.split("#")[0]))]
        assert [r for r in asked if not r.startswith(url.rpartition("/")[0])] == []
        assert browser.complaints() == []

    if way == "folder":
        walk(write_site([hostile_run], tmp_path / "view").as_uri())
    else:
        with ViewServer([hostile_run]) as server:
            walk(server.url)


# Elements and attributes that the viewer itself never makes.
_FOREIGN = """(() => {
  const found = [];
  for (const node of document.querySelectorAll("*")) {
    const { tagName } = node;
    if (["IFRAME", "OBJECT", "EMBED", "BASE", "TEXTAREA"].includes(tagName)) found.push(tagName);
    const source = node.getAttribute("src") || "";
    if (tagName === "SCRIPT" && !/^(app|data)\\/[\\w/-]+\\.js/.test(source)) found.push("script");
    for (const { name, value } of node.attributes) {
      if (name.startsWith("on")) found.push(name);
      if (name === "href" && tagName === "A" && !value.startsWith("#/")) found.push(value);
    }
  }
  return found;
})()"""


def test_the_policy_holds_even_if_a_script_got_in(
    fake_run: Path, browser: Browser, tmp_path: Path
) -> None:
    """The second line of defence: what the page itself would never do is refused as well."""
    open_page(browser, write_site([fake_run], tmp_path / "view").as_uri(), "/run/0")
    browser.eval(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.pwned = 1';"
        "document.body.append(s); const d = document.createElement('div');"
        "d.innerHTML = '<img src=x onerror=\"window.pwned=1\">'; document.body.append(d); })()"
    )
    browser.eval("new Promise((done) => setTimeout(done, 300))")
    assert browser.eval("window.pwned") is None
    assert any("Content Security Policy" in c for c in browser.complaints())
