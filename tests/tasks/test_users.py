"""Who is who: the agent, the app's server and the verifier, under root and an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import legato

pytestmark = pytest.mark.desktop
USERS = [os.getuid()] + ([1000] if os.getuid() == 0 else [])


@pytest.fixture(scope="module")
def readable() -> Iterator[Path]:
    """A copy of the package that every user can read, wherever this one lies."""
    folder = Path(tempfile.mkdtemp(prefix="package-"))
    folder.chmod(0o755)
    assert legato.__file__ is not None
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(legato.__file__).parent, folder / "legato", ignore=skip)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("uid", USERS, ids=lambda uid: "root" if uid == 0 else "user")
def test_server_and_verifier_are_out_of_the_agents_reach(uid: int, readable: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("as_user.py")), str(uid)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd="/",
        env=os.environ | {"PYTHONPATH": str(readable), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["driver"] == uid
    assert (told["solved"], told["forged"]) == (1.0, 0.0)
    assert set(told["answers"]) == {"403"}
    assert not told["seen"]
    assert told["judge"]["net"] != told["net"]
    users = [told["driver"], told["agent"], told["server"], told["judge"]["uid"]]
    if uid == 0:
        assert len(set(users)) == 4
        assert 0 not in users[1:]
    else:
        # Without further user ids the namespaces alone keep them apart; the judge's own has no
        # name for its user.
        assert users[:3] == [uid] * 3
