from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest


def legato(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "legato.rl", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_view_writes_a_folder_into_the_run(fake_run: Path, other_run: Path, tmp_path: Path) -> None:
    done = legato("view", fake_run, other_run, "--out", tmp_path / "view", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"open {tmp_path / 'view' / 'index.html'}"
    assert (tmp_path / "view" / "data" / "1" / "index.js").is_file()


def test_film_and_sheet(fake_run: Path, tmp_path: Path) -> None:
    done = legato("film", fake_run, "0", "--width", "320", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (film,) = tmp_path.glob("*.gif")
    assert str(film.name) in done.stdout
    done = legato("sheet", fake_run, "--rollouts", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sheet.png").is_file()


def test_the_current_directory_is_refused_in_one_line(fake_run: Path, tmp_path: Path) -> None:
    done = legato("view", fake_run, "--out", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "while you are in it" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("view", "nowhere"), "no run at nowhere"),
        (("film", "nowhere", "0"), "no run at nowhere"),
        (("sheet", "nowhere"), "no run at nowhere"),
        (("view", "nowhere", "--serve", "--out", "x"), "leave them out with --serve"),
        (("view", "nowhere", "--live", "--images", "copy"), "leave them out with --serve"),
        (("view", "nowhere", "--port", "8000"), "give --serve or --live"),
    ],
)
def test_mistakes_end_in_one_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = legato(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["--serve", "--live"])
def test_serve_prints_its_address_and_ends_with_ctrl_c(
    flag: str, fake_run: Path, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "legato.rl", "view", str(fake_run), flag],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[1]
            with urllib.request.urlopen(url.split("#")[0], timeout=30) as page:
                assert page.status == 200
            server.send_signal(signal.SIGINT)
            _, stderr = server.communicate(timeout=30)
        finally:
            server.kill()
    assert server.returncode == 0
    assert "Traceback" not in stderr
