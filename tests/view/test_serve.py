from __future__ import annotations

import http.client
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from legato.errors import ConfigError
from legato.rl.manifest import Manifest
from legato.rl.publish import FOLDER
from legato.rl.record import RunDir
from legato.view.index import RunIndex
from legato.view.pages import POLICY
from legato.view.serve import HOST, ViewServer
from tests.rl.factories import make_rollout
from tests.view.runs import make_run
from tests.view.test_site import delivered


@pytest.fixture
def server(fake_run: Path) -> Iterator[ViewServer]:
    with ViewServer([fake_run]) as server:
        yield server


def ask(
    server: ViewServer, path: str, *, method: str = "GET", host: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    port = urlsplit(server.url).port
    connection = http.client.HTTPConnection(HOST, port, timeout=20)
    try:
        connection.request(method, path, headers={"Host": host or f"{HOST}:{port}"})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def get(server: ViewServer, path: str) -> tuple[int, bytes]:
    status, _, body = ask(server, f"/{server.token}/{path}")
    return status, body


def test_the_page_and_its_data(server: ViewServer, fake_run: Path) -> None:
    assert get(server, "")[1].startswith(b"<!doctype html>")
    assert get(server, "app/base.js")[0] == 200
    assert delivered(get(server, "data/runs.js")[1])[1]["live"] is False
    name, index = delivered(get(server, "data/0/index.js")[1])
    assert name == "0/index"
    _, detail = delivered(get(server, "data/0/rollout-0.js")[1])
    assert detail["rollout_id"] == index["rows"][0][0]
    _, texts = delivered(get(server, "data/0/text-0.js")[1])
    assert len(texts) == len(index["rows"])
    picture = detail["images"][0]["sha256"]
    status, body = get(server, f"data/0/images/{picture}.png")
    assert status == 200
    assert body == (fake_run / "images" / f"{picture}.png").read_bytes()


def test_what_cannot_be_shown_is_answered(
    server: ViewServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(index: RunIndex) -> None:
        raise TypeError("a figure is missing")

    monkeypatch.setattr(RunIndex, "to_json", broken)
    status, body = get(server, "data/0/index.js")
    assert status == 500
    assert body == b"TypeError: a figure is missing"
    assert "data/0/index.js" in caplog.text
    assert server.token not in caplog.text
    assert get(server, "data/runs.js")[0] == 200


@pytest.mark.parametrize("token", ["", "x", "%C3%A9", "../", "%2e%2e"])
def test_nothing_without_the_token(server: ViewServer, token: str) -> None:
    for rest in ("", "/", "/data/runs.js", "/data/0/index.js", "/live.json"):
        status, _, body = ask(server, f"/{token}{rest}")
        assert status == 403
        assert server.token.encode() not in body


def test_a_token_that_is_nearly_right_is_wrong(server: ViewServer) -> None:
    for token in (server.token[:-1], server.token + "x", server.token.swapcase()):
        assert ask(server, f"/{token}/data/runs.js")[0] == 403


def test_tokens_are_long_and_differ(fake_run: Path) -> None:
    with ViewServer([fake_run]) as one, ViewServer([fake_run]) as other:
        assert one.token != other.token
        assert len(one.token) >= 32


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil:80"])
def test_another_host_name_is_refused(server: ViewServer, host: str) -> None:
    assert ask(server, f"/{server.token}/data/runs.js", host=host)[0] == 421


def test_localhost_is_a_name_of_this_machine(server: ViewServer) -> None:
    port = urlsplit(server.url).port
    assert ask(server, f"/{server.token}/data/runs.js", host=f"localhost:{port}")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "../run.json",
        "data/../../run.json",
        "data/0/../../../run.json",
        "data/0/images/../../run.json",
        "data/0/images/..%2f..%2frun.json",
        "%2e%2e/run.json",
        "data/0/images/%2e%2e/run.json.png",
        "app/../../../../etc/passwd",
        "app//etc/passwd",
        "/etc/passwd",
        "data/0/run.json",
        "data/0/rollouts.jsonl",
        "data/0/images/" + "0" * 64 + ".png",
        "data/0/rollout--1.js",
        "data/0/rollout-99999.js",
        "data/7/index.js",
        "data/0/text-4.js.js",
        "live/0/..%2f..%2frun.sock/" + "0" * 64 + ".png",
        "live/0/1.0.sock/" + "0" * 64 + ".png",
        "data/0/index.js\x00.png".replace("\x00", "%00"),
    ],
)
def test_no_path_leads_out(server: ViewServer, path: str) -> None:
    status, body = get(server, path)
    assert status == 404
    assert body == b"not found"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_can_only_be_read(server: ViewServer, method: str, fake_run: Path) -> None:
    before = sorted(p.stat().st_mtime_ns for p in fake_run.rglob("*"))
    assert ask(server, f"/{server.token}/data/runs.js", method=method)[0] == 501
    assert sorted(p.stat().st_mtime_ns for p in fake_run.rglob("*")) == before


def test_headers_keep_the_page_to_itself(server: ViewServer) -> None:
    _, headers, _ = ask(server, f"/{server.token}/")
    assert headers["Content-Security-Policy"].startswith(POLICY)
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers


def test_only_this_machine_can_connect(server: ViewServer) -> None:
    port = urlsplit(server.url).port
    for address in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET):
        if address[4][0].startswith("127."):  # type: ignore[union-attr]
            continue
        with socket.socket() as other:
            other.settimeout(5)
            assert other.connect_ex(address[4]) != 0


def test_a_port_that_is_taken_is_said(server: ViewServer, fake_run: Path) -> None:
    with pytest.raises(ConfigError, match="choose another --port"):
        ViewServer([fake_run], port=urlsplit(server.url).port or 0)


def test_what_is_recorded_later_is_seen(tmp_path: Path) -> None:
    with (
        RunDir.create_or_resume(tmp_path / "run", Manifest()) as run,
        ViewServer([run.path], live=True) as server,
    ):
        assert json.loads(get(server, "live.json")[1])["runs"][0]["records"] == 0
        run.append(make_rollout())
        assert json.loads(get(server, "live.json")[1])["runs"][0]["records"] == 1
        assert len(delivered(get(server, "data/0/index.js")[1])[1]["rows"]) == 1
        assert get(server, "data/0/rollout-0.js")[0] == 200


def test_a_damaged_run_is_said_and_does_not_end_the_server(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        run.append(make_rollout())
    with ViewServer([run.path]) as server:
        with open(run.path / "rollouts.jsonl", "ab") as log:
            log.write(b"no json\nnor this\n")
        status, body = get(server, "data/0/index.js")
        assert status == 500
        assert b"damaged" in body
        assert get(server, "data/0/rollout-0.js")[0] == 200


def test_the_socket_of_a_killed_run_is_no_desktop_and_no_error(
    fake_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(fake_run, run)
    (run / FOLDER).mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(run / FOLDER / "1.0.sock"))
    with ViewServer([run], live=True) as server:
        status, body = get(server, "live.json")
        assert status == 200
        (shown,) = json.loads(body)["runs"]
        assert shown["boards"] == []
        assert get(server, f"live/0/1.0.sock/{'0' * 64}.png")[0] == 404


def test_the_desktops_of_a_run_under_way(tmp_path: Path) -> None:
    path = tmp_path / "run"
    running = threading.Thread(
        target=make_run, args=(path,), kwargs={"tasks": 2, "group": 3, "seconds": 0.3}
    )
    running.start()
    try:
        while not (path / "run.json").exists():
            running.join(0.05)
        with ViewServer([path], live=True) as server:
            assert server.url.endswith("#/live")
            pictures = 0
            while running.is_alive():
                for board in json.loads(get(server, "live.json")[1])["runs"][0]["boards"]:
                    assert board["screen"] == [1280, 720]
                    for desktop in board["desktops"]:
                        if desktop["screenshot"] is None:
                            continue
                        sha = desktop["screenshot"]["sha256"]
                        status, body = get(server, f"live/0/{board['name']}/{sha}.png")
                        # It may have moved on between the two questions.
                        assert status in (200, 404)
                        pictures += body.startswith(b"\x89PNG")
            assert pictures > 0
            assert json.loads(get(server, "live.json")[1])["runs"][0]["boards"] == []
    finally:
        running.join(60)
