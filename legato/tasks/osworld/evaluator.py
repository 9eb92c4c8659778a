"""The ``evaluator`` of a task in OSWorld's format, as far as text and files reach.

Grading runs ``postconfig``, then commands in the guest, then freezes it and reads files; the
metrics themselves run in the verifier process. As in OSWorld, several metrics are joined by
``conj``: with ``and`` the mean, and 0 as soon as one is 0; with ``or`` the best one. An
``infeasible`` task is won by the ``fail`` action and by nothing else, and ``fail`` loses any
other task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from legato.desktop.actions import Fail
from legato.desktop.contract import Check, Machine, Score
from legato.tasks.osworld import metrics
from legato.tasks.osworld.getters import Getter, Gives
from legato.tasks.osworld.steps import Stage, Step
from legato.tasks.scoring import credit
from legato.tasks.verifier import run_judge

_JUDGE = Path(metrics.__file__)


@dataclass(frozen=True, slots=True)
class Takes:
    """What a metric accepts."""

    result: Gives
    expected: Gives
    rules: tuple[str, ...] = ()
    """Keys that its rule must have; of several alternatives, none is listed."""
    options: tuple[str, ...] = ()


TAKES: Mapping[str, Takes] = {
    "check_include_exclude": Takes("text", "rule"),
    "exact_match": Takes("text", "rule", rules=("expected",)),
    "match_in_list": Takes("text", "rule", rules=("expected",)),
    "is_in_list": Takes("text", "rule", rules=("expected",)),
    "literal_match": Takes("text", "rule", options=("ignore_case",)),
    "fuzzy_match": Takes("text", "rule", rules=("expected",)),
    "compare_text_file": Takes("file", "file", options=("ignore_blanks", "ignore_case")),
    "diff_text_file": Takes("file", "file"),
    "check_list": Takes("file", "rule"),
}


@dataclass(frozen=True, slots=True)
class Metric:
    func: str
    result: Getter
    expected: Getter
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Evaluator:
    metrics: tuple[Metric, ...]
    """Empty for an ``infeasible`` task."""
    conj: Literal["and", "or"] = "and"
    postconfig: tuple[Step, ...] = ()

    @property
    def infeasible(self) -> bool:
        return not self.metrics

    def prepare(self, machine: Machine, base: Path) -> None:
        """Fetch the gold files. Raises :class:`~legato.errors.EnvFailure`."""
        for slot, getter in self._getters():
            getter.prepare(machine, base, slot)

    def grade(self, machine: Machine, base: Path) -> Score:
        """Raises :class:`~legato.errors.GradeFailure` or :class:`~legato.errors.EnvFailure`."""
        failed = isinstance(machine.ended_by, Fail)
        if self.infeasible or failed:
            right = failed == self.infeasible
            output = "the agent said fail" if failed else "the agent did not say fail"
            return Score(float(right), (Check("feasibility", "progress", right),), output)
        for step in self.postconfig:
            step.run(machine, Stage(base, after_agent=True))
        checks = run_judge(_JUDGE, {"metrics": self._evidence(machine)})
        shares = [credit(check) for check in checks]
        met = f"{sum(check.passed for check in checks)}/{len(checks)} metrics met"
        return Score(_join(self.conj)(shares), tuple(checks), met)

    def _getters(self) -> list[tuple[str, Getter]]:
        return [
            (f"evaluator/{number}-{role}", getter)
            for number, metric in enumerate(self.metrics)
            for role, getter in (("result", metric.result), ("expected", metric.expected))
        ]

    def _evidence(self, machine: Machine) -> list[dict[str, Any]]:
        getters = self._getters()
        got = {slot: getter.get(machine, slot) for slot, getter in getters if getter.live}
        machine.freeze()
        got |= {slot: getter.get(machine, slot) for slot, getter in getters if not getter.live}
        return [
            {
                "func": metric.func,
                "result": got[f"evaluator/{number}-result"],
                "expected": got[f"evaluator/{number}-expected"],
                "options": dict(metric.options),
            }
            for number, metric in enumerate(self.metrics)
        ]


def _join(conj: Literal["and", "or"]) -> Callable[[Sequence[float]], float]:
    return max if conj == "or" else _mean_of_all


def _mean_of_all(shares: Sequence[float]) -> float:
    return sum(shares) / len(shares) if all(shares) else 0.0
