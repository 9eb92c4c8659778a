"""Tasks are refused by a named reason before a machine starts, or can be run."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from legato.desktop.osworld import catalogue
from legato.desktop.osworld.environment import DESKTOP_ENV, Environment
from legato.errors import ConfigError
from legato.tasks import parse_tasks
from tests.desktop.osworld.examples import EXAMPLES, NO_CONFIG

NOWHERE = Environment(Path("/nonexistent"))
LIST_NAMES = """
import inspect, json
from legato.desktop.osworld.worker import stubs
stubs.install()
from desktop_env.controllers.setup import SetupController
from desktop_env.evaluators import getters, metrics
functions = lambda module: {n for n, f in vars(module).items() if inspect.isfunction(f)}
print(json.dumps({
    "steps": sorted(n[1:-6] for n in vars(SetupController) if n.endswith("_setup")),
    "getters": sorted(n[4:] for n in functions(getters) if n.startswith("get_")),
    "metrics": sorted(functions(metrics)),
}))
"""


def problems(**changes: Any) -> list[str]:
    config = {**EXAMPLES[0].config, **changes}
    return catalogue.problems(config, checkout=None, environment=NOWHERE)


def evaluator(**changes: Any) -> dict[str, Any]:
    return {**EXAMPLES[0].config["evaluator"], **changes}


def test_the_names_are_those_of_the_installed_release(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "legato").symlink_to(Path(catalogue.__file__).parent.parent.parent)
    done = subprocess.run(
        [environment.python, "-c", LIST_NAMES],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    names = json.loads(done.stdout.splitlines()[-1])
    known = catalogue._known()
    assert {kind: sorted(known[kind]) for kind in known} == names


@pytest.mark.parametrize("example", [*EXAMPLES, NO_CONFIG], ids=lambda e: e.name)
def test_examples_can_be_run(example: Any) -> None:
    found = catalogue.problems(example.config, checkout=None, environment=NOWHERE)
    assert found == []
    assert catalogue.is_infeasible(example.config) == (example is NO_CONFIG)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config": {}}, "'config' must be a list of steps"),
        ({"config": ["launch"]}, "config[0] must be an object"),
        ({"config": [{"type": "dance", "parameters": {}}]}, f"'dance' is not in {DESKTOP_ENV}"),
        ({"config": [{"type": "replay", "parameters": {}}]}, "'replay' is not implemented"),
        ({"config": [{"type": "proxy", "parameters": {}}]}, "needs a proxy to the internet"),
        (
            {"config": [{"type": "login", "parameters": {"settings_file": "a/b.json"}}]},
            "needs a Google account, whose file a/b.json is missing",
        ),
        (
            {"config": [{"type": "upload_file", "parameters": {"files": [{"local_path": "no"}]}}]},
            "there is no file no in the checkout",
        ),
        ({"evaluator": None}, "'evaluator' must be an object with a 'func'"),
        ({"evaluator": evaluator(func=[])}, "evaluator.func must not be an empty list"),
        ({"evaluator": evaluator(func="taste")}, f"metric 'taste' is not in {DESKTOP_ENV}"),
        ({"evaluator": evaluator(func=["exact_match"])}, "must be a list of 1, as long as 'func'"),
        ({"evaluator": evaluator(conj="xor")}, "evaluator.conj must be 'and' or 'or'"),
        ({"evaluator": evaluator(result={"type": "mind"})}, "getter 'mind' is not in"),
        ({"evaluator": evaluator(result=None)}, "evaluator.result is missing"),
        (
            {"evaluator": evaluator(func="compare_image_text")},
            "metric 'compare_image_text' needs the package 'easyocr'",
        ),
    ],
)
def test_every_reason_is_named(changes: dict[str, Any], reason: str) -> None:
    assert [problem for problem in problems(**changes) if reason in problem]


def test_every_task_of_a_checkout_can_be_run_or_is_refused_by_name(tmp_path: Path) -> None:
    """All of a checkout's with ``LEGATO_OSWORLD=PATH``, else those of the tests."""
    root = Path(os.environ.get("LEGATO_OSWORLD") or _checkout(tmp_path))
    files = sorted(root.glob("evaluation_examples/examples/*/*.json"))
    assert files
    for file in files:
        entry = {"task_id": file.stem, "domain": file.parent.name}
        refusal = _refusal(entry, root)
        reasons = ("needs the package", "needs a Google account", "needs a proxy")
        assert refusal is None or any(reason in refusal for reason in reasons), refusal


def _refusal(entry: dict[str, str], root: Path) -> str | None:
    try:
        (task,) = parse_tasks([entry], backend="osworld", osworld_path=root)
    except ConfigError as e:
        return str(e)
    return None if task.instruction else "no instruction"


def _checkout(root: Path) -> Path:
    for example in (*EXAMPLES, NO_CONFIG):
        folder = root / "evaluation_examples" / "examples" / example.domain
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{example.name}.json").write_text(json.dumps(example.config))
    return root
