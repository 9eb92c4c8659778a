from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from legato.errors import ConfigError
from legato.rl.record import read_records
from legato.view.images import Images
from legato.view.pages import POLICY, app_files, data_script
from legato.view.site import runs_json, write_site


def delivered(script: bytes) -> tuple[str, Any]:
    """What a data script hands over, read as JavaScript reads its two string literals."""
    body = script.decode("ascii")
    assert body.startswith("legato.deliver('")
    assert body.endswith("');\n")
    name, value = body[len("legato.deliver('") : -len("');\n")].split("','", 1)
    unescaped = value.replace("\\'", "'").replace("\\\\", "\\")
    return name, json.loads(unescaped)


def test_the_folder_holds_every_rollout_and_every_picture(fake_run: Path, tmp_path: Path) -> None:
    index = write_site([fake_run], tmp_path / "view")
    data = index.parent / "data" / "0"
    records = list(read_records(fake_run))
    assert {p.name for p in data.glob("rollout-*.js")} == {
        f"rollout-{n}.js" for n in range(len(records))
    }
    used = {i["sha256"] for r in records for i in r["images"]}
    used |= {r["final_screenshot"] for r in records if r["final_screenshot"]}
    assert {p.stem for p in (data / "images").iterdir()} == used
    name, body = delivered((data / "index.js").read_bytes())
    assert name == "0/index"
    assert len(body["rows"]) == len(records)


def test_hard_links_cost_no_space_and_outlive_the_run(fake_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(fake_run, tmp_path / "run"))
    folder = write_site([run], tmp_path / "view").parent
    pictures = list((folder / "data/0/images").iterdir())
    assert pictures
    assert all(os.stat(p).st_nlink == 2 for p in pictures)
    shutil.rmtree(run)
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in pictures)


@pytest.mark.parametrize(("how", "link"), [(Images.SYMLINK, True), (Images.COPY, False)])
def test_pictures_can_be_linked_or_copied(
    how: Images, link: bool, fake_run: Path, tmp_path: Path
) -> None:
    folder = write_site([fake_run], tmp_path / "view", images=how).parent
    for picture in (folder / "data/0/images").iterdir():
        assert picture.is_symlink() == link
        assert picture.read_bytes() == (fake_run / "images" / picture.name).read_bytes()


def test_a_viewer_is_replaced_as_a_whole(fake_run: Path, other_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "view"
    write_site([fake_run, other_run], out)
    assert (out / "data/1").is_dir()
    write_site([fake_run], out)
    assert not (out / "data/1").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["view"]


def test_a_folder_of_something_else_is_left_alone(fake_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.txt").write_text("mine")
    with pytest.raises(ConfigError, match="no viewer"):
        write_site([fake_run], out)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis"]
    assert (out / "chapter.txt").read_text() == "mine"


def test_the_folder_that_one_is_in_is_left_alone(
    fake_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for out in (".", "", "..", "../here", "/"):
        with pytest.raises(ConfigError, match="while you are in it"):
            write_site([fake_run], Path(out))
    assert write_site([fake_run], Path("../there")).is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["here", "there"]


def test_a_run_is_not_replaced_by_its_viewer(fake_run: Path, tmp_path: Path) -> None:
    write_site([fake_run], tmp_path / "view")
    run = Path(shutil.copytree(fake_run, tmp_path / "view" / "run"))
    with pytest.raises(ConfigError, match="holds the run"):
        write_site([run], tmp_path / "view")
    assert (run / "run.json").is_file()


def test_a_file_is_no_folder(fake_run: Path, tmp_path: Path) -> None:
    (tmp_path / "view").write_text("mine")
    with pytest.raises(ConfigError, match="is a file"):
        write_site([fake_run], tmp_path / "view")
    assert (tmp_path / "view").read_text() == "mine"


def test_what_a_killed_one_left_is_removed_by_the_next(fake_run: Path, tmp_path: Path) -> None:
    killed = (
        "import os, sys; from pathlib import Path; from legato.view.site import write_site;"
        "write_site([sys.argv[1]], Path(sys.argv[2]), progress=lambda n: os.kill(os.getpid(), 9))"
    )
    done = subprocess.run(
        [sys.executable, "-c", killed, str(fake_run), str(tmp_path / "view")], timeout=120
    )
    assert done.returncode == -signal.SIGKILL
    assert [p.suffix for p in tmp_path.iterdir()] == [".part"]
    write_site([fake_run], tmp_path / "view")
    assert [p.name for p in tmp_path.iterdir()] == ["view"]


def test_one_that_is_still_writing_is_not_disturbed(fake_run: Path, tmp_path: Path) -> None:
    def meanwhile(records: int) -> None:
        if records == 1:
            write_site([fake_run], tmp_path / "view")

    index = write_site([fake_run], tmp_path / "view", progress=meanwhile)
    rollouts = list((index.parent / "data/0").glob("rollout-*.js"))
    assert len(rollouts) == len(list(read_records(fake_run)))
    assert [p.name for p in tmp_path.iterdir()] == ["view"]


def test_a_failed_attempt_leaves_the_old_viewer(fake_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "view"
    write_site([fake_run], out)
    before = (out / "data/0/index.js").read_bytes()
    with pytest.raises(ConfigError, match="tokenizer"):
        write_site([fake_run], out, tokenizer="/no/such/folder")
    assert (out / "data/0/index.js").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["view"]


@pytest.mark.parametrize(
    "value",
    [
        "');alert(1);//",
        "\\');alert(1);//",
        "\\",
        "\\\\'",
        "</script><script>alert(1)</script>",
        "\u2028alert(1)\u2029",
        "\ud800",
        {"__proto__": {"x": 1}},
        ["'", '"', "\n", "\x00", "漢"],
    ],
)
def test_data_scripts_are_one_call_with_two_strings(value: Any) -> None:
    script = data_script("0/rollout-1", value)
    assert script.count(b"\n") == 1
    name, body = delivered(script)
    assert name == "0/rollout-1"
    assert body == value
    # Quotes inside the literals are all escaped: by an odd number of backslashes.
    inner = script[len(b"legato.deliver('") : -len(b"');\n")].replace(b"','", b"", 1)
    for at, byte in enumerate(inner):
        if byte == ord("'"):
            before = inner[:at]
            assert (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def test_the_page_runs_nothing_of_its_own() -> None:
    page = app_files()["index.html"].decode()
    assert f'content="{POLICY}"' in page
    assert "unsafe" not in POLICY
    assert "http" not in page.replace("http-equiv", "")
    for script in page.split("<script")[1:]:
        assert script.split(">", 1)[1].startswith("</script>")


def test_the_app_never_makes_markup_of_text() -> None:
    for name, content in app_files().items():
        if name.endswith(".js"):
            text = content.decode()
            for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
                assert way not in text, f"{name} uses {way}"


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["step-1", "step-2"], ["step-1", "step-2"]),
        (["a/run", "b/run"], ["a/run", "b/run"]),
        (["grpo/rollouts"], ["grpo/rollouts"]),
        (["grpo/rollouts", "grpo/rollouts-eval"], ["grpo/rollouts", "grpo/rollouts-eval"]),
    ],
)
def test_a_run_bears_a_name_that_tells_it(
    folders: list[str], names: list[str], tmp_path: Path
) -> None:
    told = runs_json([tmp_path / folder for folder in folders], live=False)
    assert told["runs"] == [{"name": name} for name in names]
