"""The command line with desktops in sandboxes: a group, its cost, and no key anywhere."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from legato.desktop import image
from legato.desktop.sandboxes import conformance, owner, providers
from legato.desktop.sandboxes.contract import Sandbox
from legato.errors import ConfigError, EnvFailure
from legato.rl import read_records
from legato.rl.cli import app
from tests.desktop.sandboxes.conftest import KEYS
from tests.desktop.sandboxes.double import Fault, Provider
from tests.rl.servers import ModelServer

EDIT = "key ctrl+a\ntype so long\\n\nkey ctrl+s\ndone"


def legato(*args: Any) -> Result:
    """In this process: importing a provider's package takes seconds."""
    return CliRunner().invoke(app, [*map(str, args)])


def tasks(folder: Path) -> Path:
    """One that :data:`EDIT` solves, and one, locked down, that it does not."""
    (folder / "note.txt").write_text("hello\n")
    (folder / "gold.txt").write_text("so long\n")
    note = "/home/user/Desktop/note.txt"
    steps: list[dict[str, Any]] = [
        {
            "type": "upload_file",
            "parameters": {"files": [{"local_path": str(folder / "note.txt"), "path": note}]},
        },
        {"type": "open", "parameters": {"path": note}},
    ]
    evaluator = {
        "func": "compare_text_file",
        "result": {"type": "vm_file", "path": note, "dest": "note.txt"},
        "expected": {"type": "cloud_file", "path": f"file://{folder}/gold.txt", "dest": "gold.txt"},
    }
    config = {"instruction": "Write: so long", "config": steps, "evaluator": evaluator}
    path = folder / "tasks.json"
    path.write_text(
        json.dumps(
            [{"task_id": "note", "config": config}, {"task_id": "text", "task": "edit_text"}]
        )
    )
    return path


@pytest.mark.desktop
def test_a_group_with_verdicts(name: str, provider: Provider, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ModelServer(reply=EDIT) as server:
        done = legato(
            *("--verbose", "collect", "--tasks", tasks(tmp_path), "--out", out),
            *("--policy-url", server.url, "--model", "scripted", "--api", "chat"),
            *("--harness", "compact", "--backend", name, "--desktops", 2, "--group", 2),
            *("--max-steps", 2, "--width", 640, "--height", 480, "--no-standby"),
            *("desktop.options.hourly_rate=3600", "desktop.options.create_timeout=110"),
        )
    assert done.exit_code == 0, done.output
    records = list(read_records(out))
    assert Counter((r["task_id"], r["status"], r["reward"]) for r in records) == {
        ("note", "ok", 1.0): 2,
        ("text", "ok", 0.0): 2,
    }
    assert provider.made == {}, "the run took its sandboxes along"
    paths = [path for method, path in provider.requests if method == "POST"]
    assert sum(path.endswith(("/api/sandbox", "/api/v2/sandboxes")) for path in paths) == 2

    profile = legato("profile", out)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["cost"] == pytest.approx(2 * summary["wall_s"])
    assert summary["cost_per_rollout"] == pytest.approx(summary["cost"] / 4)
    assert "sandboxes cost" in profile.stdout

    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    key = KEYS[name]
    assert not [path for path in written if key.encode() in path.read_bytes()]
    assert key not in done.output + profile.output


def test_the_key_is_in_no_message(
    name: str, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = KEYS[name]
    sandboxes = providers.connect(name)
    made = sandboxes.create(owner.labels(), life_s=120, timeout=60)
    sandboxes.stream(made.id, ["/bin/cat"]).close()
    environment = sandboxes.execute(made.id, ["/usr/bin/env"]).text
    provider.fail(Fault("GET", "/api/", 400, f"the key {key} is odd"))
    with pytest.raises(EnvFailure) as failed:
        sandboxes.list({})
    sandboxes.delete(made.id)
    assert "is odd" in str(failed.value)
    assert key not in str(failed.value)
    assert key not in environment
    assert key not in caplog.text
    assert key not in repr((sandboxes, made, failed.value))


def test_list_and_reap_touch_only_ours(name: str, provider: Provider) -> None:
    strangers = provider.create("image", {"team": "other"}, 300, {"autoStopInterval": 5})
    sandboxes = providers.connect(name)
    dead = subprocess.run(
        [sys.executable, "-c", "from legato.desktop.sandboxes import owner; print(owner.labels())"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    ours = {**owner.OURS, owner.OWNER: dead.split("'")[-2]}
    elsewhere = {**owner.OURS, owner.OWNER: "0123456789ab-1-1"}

    def create(labels: dict[str, str]) -> Sandbox:
        return sandboxes.create(labels, life_s=120, timeout=60)

    left, far, mine = create(ours), create(elsewhere), create(owner.labels())
    listed = legato("sandboxes", "list", "--provider", name).stdout
    for made, state in ((left, "left behind"), (far, "of another machine"), (mine, "in use")):
        assert any(made.id in line and state in line for line in listed.splitlines()), listed
    assert strangers.id not in listed

    reaped = legato("sandboxes", "reap", "--provider", name)
    assert left.id in reaped.stdout
    assert set(provider.made) == {strangers.id, far.id, mine.id}
    legato("sandboxes", "reap", "--provider", name, "--all")
    assert set(provider.made) == {strangers.id}


def test_the_image_is_built_once_from_the_package_list(name: str, provider: Provider) -> None:
    provider.images.clear()
    built = image.plain_name()
    done = legato("sandbox-image", name, "--cpus", 4)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == built
    recipe = json.dumps(provider.recipes[built])
    assert "apt-get install" in recipe
    assert "xvfb" in recipe
    assert "bubblewrap" in recipe
    asked = len(provider.requests)
    assert legato("sandbox-image", name).stdout.splitlines() == [built]
    assert not [1 for method, _ in provider.requests[asked:] if method == "POST"]


def test_check_tries_the_contract(name: str, provider: Provider) -> None:
    done = legato("sandboxes", "check", name)
    assert done.exit_code == 0, done.output
    assert done.stdout.count(": kept") == len(conformance.RULES)
    assert provider.made == {}


def test_without_a_key_the_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in providers.KEYS.values():
        monkeypatch.delenv(key, raising=False)
    failed = legato("sandboxes", "list").exception
    assert isinstance(failed, ConfigError)
    assert all(key in str(failed) for key in providers.KEYS.values())
