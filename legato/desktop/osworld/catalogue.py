"""What OSWorld's software knows by name, to refuse a task before a machine is started for it.

``catalogue.json`` lists the set-up steps, getters and metrics of the ``desktop-env`` release that
:mod:`.environment` installs, each metric with the optional packages it uses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from legato.desktop.osworld.environment import DESKTOP_ENV, Environment

NOT_IMPLEMENTED = frozenset({"tidy_desktop", "act", "replay"})
"""Steps that OSWorld names and does not have."""
ACCOUNT = {"googledrive": "googledrive/settings.yml", "login": "google/settings.json"}
"""Steps on a Google account, with the file of its password below ``SETTINGS``."""
SETTINGS = "evaluation_examples/settings"
_PACKAGES_OF_STEPS = {"googledrive": ("pydrive",)}
_PACKAGES_OF_GETTERS = {"googledrive_file": ("pydrive",)}


def problems(
    config: Mapping[str, Any], *, checkout: Path | None, environment: Environment
) -> list[str]:
    """Every reason, known beforehand, why OSWorld's software cannot run a task; none if it can.

    Files of the task are looked for in the ``checkout``.
    """
    return list(dict.fromkeys(_Reader(checkout, environment).task(config)))


def is_infeasible(config: Mapping[str, Any]) -> bool:
    """Whether only an agent that reports failure succeeds at the task."""
    evaluator = config.get("evaluator")
    return isinstance(evaluator, Mapping) and evaluator.get("func") == "infeasible"


@cache
def _known() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(
        (files("legato.desktop.osworld") / "catalogue.json").read_text()
    )
    return known


class _Reader:
    def __init__(self, checkout: Path | None, environment: Environment) -> None:
        self.checkout, self.environment = checkout, environment

    def task(self, config: Mapping[str, Any]) -> Iterator[str]:
        yield from self.steps(config.get("config"), "config")
        evaluator = config.get("evaluator")
        if not isinstance(evaluator, Mapping) or "func" not in evaluator:
            yield "'evaluator' must be an object with a 'func'"
            return
        yield from self.steps(evaluator.get("postconfig"), "evaluator.postconfig")
        if is_infeasible(config):
            return
        several = isinstance(evaluator["func"], list)
        funcs = evaluator["func"] if several else [evaluator["func"]]
        if not funcs:
            yield "evaluator.func must not be an empty list"
        for func in funcs:
            yield from self.metric(func)
        if evaluator.get("conj", "and") not in ("and", "or"):
            yield f"evaluator.conj must be 'and' or 'or', not {evaluator['conj']!r}"
        for role in ("result", "expected"):
            yield from self.getters(evaluator.get(role), role, len(funcs), several)

    def steps(self, steps: Any, where: str) -> Iterator[str]:
        if steps is None:
            return
        if not isinstance(steps, list):
            yield f"'{where}' must be a list of steps"
            return
        for number, step in enumerate(steps):
            at = f"{where}[{number}]"
            if not isinstance(step, Mapping) or not isinstance(step.get("parameters"), Mapping):
                yield f'{at} must be an object {{"type", "parameters"}}'
                continue
            yield from self.step(step.get("type"), step["parameters"], at)

    def step(self, kind: Any, parameters: Mapping[str, Any], at: str) -> Iterator[str]:
        if kind not in _known()["steps"]:
            yield f"{at}: step {kind!r} is not in {DESKTOP_ENV}"
        elif kind in NOT_IMPLEMENTED:
            yield f"{at}: step {kind!r} is not implemented in {DESKTOP_ENV}"
        elif kind == "proxy":
            yield f"{at}: step 'proxy' needs a proxy to the internet"
        for package in self.missing(_PACKAGES_OF_STEPS.get(kind, ())):
            yield f"{at}: step {kind!r} needs the package {package!r} in OSWorld's environment"
        if kind in ACCOUNT:
            file = str(parameters.get("settings_file", f"{SETTINGS}/{ACCOUNT[kind]}"))
            if not self.has(file):
                yield f"{at}: step {kind!r} needs a Google account, whose file {file} is missing"
        for upload in parameters.get("files", ()) if kind == "upload_file" else ():
            path = upload.get("local_path") if isinstance(upload, Mapping) else None
            if not isinstance(path, str) or not self.has(path):
                yield f"{at} (upload_file): there is no file {path} in the checkout"

    def metric(self, func: Any) -> Iterator[str]:
        known: Mapping[str, list[str]] = _known()["metrics"]
        if not isinstance(func, str) or func not in known:
            yield f"evaluator.func: metric {func!r} is not in {DESKTOP_ENV}"
            return
        for package in self.missing(tuple(known[func])):
            yield f"metric {func!r} needs the package {package!r} in OSWorld's environment"

    def getters(self, data: Any, role: str, count: int, several: bool) -> Iterator[str]:
        if not data:
            if role == "result":
                yield "evaluator.result is missing"
            return
        if isinstance(data, list) != several or (several and len(data) != count):
            wanted = f"a list of {count}, as long as 'func'" if several else "one object"
            yield f"evaluator.{role} must be {wanted}"
            return
        for getter in data if several else [data]:
            if not getter and role == "expected":
                continue
            kind = getter.get("type") if isinstance(getter, Mapping) else None
            if kind not in _known()["getters"]:
                yield f"evaluator.{role}: getter {kind!r} is not in {DESKTOP_ENV}"
            for package in self.missing(_PACKAGES_OF_GETTERS.get(str(kind), ())):
                yield f"getter {kind!r} needs the package {package!r} in OSWorld's environment"

    def missing(self, packages: tuple[str, ...]) -> list[str]:
        return [package for package in packages if not self.environment.has(package)]

    def has(self, file: str) -> bool:
        path = Path(file).expanduser()
        if self.checkout is not None:
            path = self.checkout.expanduser() / path
        return path.is_file()
