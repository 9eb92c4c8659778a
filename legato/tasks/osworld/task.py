"""A task in OSWorld's format, read and checked as a whole before anything starts.

Fields follow OSWorld's task files: ``instruction``, ``config`` (set-up steps, may be absent) and
``evaluator`` (``func``, ``result``, ``expected``, ``options``, ``conj``, ``postconfig``; all but
the last two lists of one length when ``func`` is a list).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from legato.desktop.contract import Machine, Score
from legato.tasks.osworld.evaluator import TAKES, Evaluator, Metric
from legato.tasks.osworld.getters import GETTERS, Getter
from legato.tasks.osworld.steps import STEPS, Stage, Step

SUPPORTED = "; ".join(
    f"{what} {', '.join(names)}"
    for what, names in (
        ("steps", STEPS),
        ("evaluators", ["infeasible", *TAKES]),
        ("getters", GETTERS),
    )
)
"""For people: what a config may use on a machine of ours."""

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class OsworldTask:
    """Implements :class:`legato.desktop.contract.Task` on any machine."""

    task_id: str
    domain: str
    instruction: str
    config: Mapping[str, Any]
    base: Path
    """Host folder that relative host paths in the config start from."""
    steps: tuple[Step, ...]
    evaluator: Evaluator

    def setup(self, machine: Machine) -> None:
        self.evaluator.prepare(machine, self.base)
        for step in self.steps:
            step.run(machine, Stage(self.base))

    def grade(self, machine: Machine) -> Score:
        return self.evaluator.grade(machine, self.base)


def read_config(
    task_id: str, domain: str, config: Mapping[str, Any], *, base: Path, local: bool
) -> tuple[OsworldTask | None, list[str]]:
    """The task, or every reason why it cannot run here.

    ``local`` says that the guest has the programs of this host.
    """
    reader = _Reader(base=base, local=local)
    instruction = reader.instruction(config)
    if config.get("proxy") is True:
        reader.refuse("needs a proxy to the internet ('proxy': true)")
    steps = reader.steps(config.get("config"), "config")
    evaluator = reader.evaluator(config.get("evaluator"))
    if reader.problems or evaluator is None:
        return None, reader.problems
    return OsworldTask(task_id, domain, instruction, config, base, steps, evaluator), []


@dataclass(slots=True)
class _Reader:
    """Reads one config and collects what is wrong with it."""

    base: Path
    local: bool
    problems: list[str] = field(default_factory=list)

    def refuse(self, what: str) -> None:
        if what not in self.problems:
            self.problems.append(what)

    def instruction(self, config: Mapping[str, Any]) -> str:
        text = config.get("instruction")
        if isinstance(text, str) and text.strip():
            return text
        self.refuse("'instruction' must be a non-empty string")
        return ""

    def steps(self, data: Any, where: str) -> tuple[Step, ...]:
        if data is None:
            return ()
        if not isinstance(data, list):
            self.refuse(f"'{where}' must be a list of steps")
            return ()
        steps = [self._step(item, f"{where}[{i}]") for i, item in enumerate(data)]
        return tuple(step for step in steps if step is not None)

    def _step(self, data: Any, where: str) -> Step | None:
        if not isinstance(data, dict) or not isinstance(data.get("type"), str):
            self.refuse(f'{where} must be an object {{"type", "parameters"}}')
            return None
        kind = STEPS.get(data["type"])
        if kind is None:
            self.refuse(f"{where}: step {data['type']!r} is not supported")
            return None
        step = self._model(kind, data.get("parameters", {}), f"{where} ({data['type']})")
        if step is None:
            return None
        for problem in step.problems(self.base, local=self.local):
            self.refuse(f"{where} ({data['type']}): {problem}")
        return step

    def evaluator(self, data: Any) -> Evaluator | None:
        if not isinstance(data, dict) or "func" not in data:
            self.refuse("'evaluator' must be an object with a 'func'")
            return None
        postconfig = self.steps(data.get("postconfig"), "evaluator.postconfig")
        if data["func"] == "infeasible":
            return Evaluator((), postconfig=postconfig)
        conj = data.get("conj", "and")
        if conj not in ("and", "or"):
            self.refuse(f"evaluator.conj must be 'and' or 'or', got {conj!r}")
            return None
        metrics = [self._metric(part, where) for part, where in self._parts(data)]
        if not metrics or None in metrics:
            return None
        return Evaluator(tuple(m for m in metrics if m is not None), conj, postconfig)

    def _parts(self, data: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
        """One ``{func, result, expected, options}`` per metric, with where it stands."""
        names = ("result", "expected", "options")
        if not isinstance(data["func"], list):
            yield {name: data.get(name) for name in ("func", *names)}, "evaluator"
            return
        count = len(data["func"])
        if count == 0:
            self.refuse("evaluator.func must not be an empty list")
        columns = {name: data.get(name) or [None] * count for name in names}
        for name, column in columns.items():
            if not isinstance(column, list) or len(column) != count:
                self.refuse(f"evaluator.{name} must be a list of {count}, as long as 'func'")
                return
        for i, func in enumerate(data["func"]):
            yield {"func": func, **{n: columns[n][i] for n in names}}, f"evaluator[{i}]"

    def _metric(self, data: Mapping[str, Any], where: str) -> Metric | None:
        func, options = data["func"], data["options"] or {}
        takes = TAKES.get(func) if isinstance(func, str) else None
        result = self._getter(data["result"], f"{where}.result")
        expected = self._getter(data["expected"], f"{where}.expected")
        if takes is None:
            self.refuse(f"{where}.func: evaluator {func!r} is not supported")
            return None
        if not isinstance(options, dict) or not set(options) <= set(takes.options):
            allowed = ", ".join(takes.options) or "none"
            self.refuse(f"{where}.options of {func}: supported here: {allowed}; got {options!r}")
            return None
        if result is None or expected is None:
            return None
        for role, getter, wanted in (
            ("result", result, takes.result),
            ("expected", expected, takes.expected),
        ):
            if getter.gives != wanted:
                self.refuse(f"{where}.{role}: {func} takes a {wanted}, not a {getter.gives}")
        for key in takes.rules:
            rules = getattr(expected, "rules", None)
            if not isinstance(rules, dict) or key not in rules:
                self.refuse(f"{where}.expected: the rules of {func} must have {key!r}")
        return Metric(func, result, expected, options)

    def _getter(self, data: Any, where: str) -> Getter | None:
        if not isinstance(data, dict) or not isinstance(data.get("type"), str):
            self.refuse(f"{where} must be an object with a 'type'")
            return None
        kind = GETTERS.get(data["type"])
        if kind is None:
            self.refuse(f"{where}: getter {data['type']!r} is not supported")
            return None
        if data.get("multi"):
            self.refuse(f"{where} ({data['type']}): several files at once is not supported")
            return None
        parameters = {key: value for key, value in data.items() if key != "type"}
        getter = self._model(kind, parameters, f"{where} ({data['type']})")
        if getter is None:
            return None
        for problem in getter.problems(self.base):
            self.refuse(f"{where} ({data['type']}): {problem}")
        return getter

    def _model(self, kind: type[_Model], data: Any, where: str) -> _Model | None:
        try:
            return kind.model_validate(data)
        except ValidationError as e:
            for item in e.errors(include_url=False):
                at = ".".join(str(part) for part in item["loc"])
                problem = (
                    f"parameter {at!r} is not supported"
                    if item["type"] == "extra_forbidden"
                    else f"parameter {at!r}: {item['msg']}"
                )
                self.refuse(f"{where}: {problem}")
            return None
