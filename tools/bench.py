"""Run the benchmarks and keep what they print: ``make bench``.

Every line of a benchmark is ``name: value (bar …)``. With ``--readme`` its lines are kept in
``tests/bench/measured.json``, with the machine and the day, and the table of the
README is written anew from that file: of each benchmark, the last run that went through.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
MEASURED = REPO / "tests" / "bench" / "measured.json"
MARKERS = "<!-- benchmarks: written by `tools/bench.py` -->", "<!-- benchmarks end -->"
"""Begin and end of the table in the README."""
LINE = re.compile(r"^\s*(?P<name>[^:]+(?:: [^:]+)*?): (?P<value>[^:]*?)(?: \((?P<bar>bar .*)\))?$")
DEADLINE_S = 1800
ON_THEIR_OWN = {
    "bench_learn.py": 6 * 3600,
    "bench_qa.py": 2 * 3600,
    "bench_verl_learn.py": 3 * 3600,
}
"""Those that take hours, with their deadline in seconds; they run only when named."""


def run(script: Path, options: list[str]) -> list[str]:
    """What one benchmark prints, line by line, shown as it comes."""
    print(f"== {script.relative_to(REPO)}", flush=True)
    lines: list[str] = []
    deadline = ON_THEIR_OWN.get(script.name, DEADLINE_S)
    command = ["timeout", "--kill-after=30", str(deadline), sys.executable, str(script), *options]
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPO, env=env) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    if process.returncode:
        sys.exit(f"{script.name} ended with exit code {process.returncode}")
    return lines


@dataclass(frozen=True, slots=True)
class Measured:
    """A run of one benchmark, as it is kept."""

    machine: str
    date: str
    lines: list[str]
    """As printed, those with a bar."""


def machine() -> str:
    """The machine in one line: processor, cores, memory, system, Python."""
    cpu = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    memory = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.M)
    gib = int(memory[1]) / 2**20 if memory else 0
    return (
        f"{cpu[1].strip() if cpu else platform.machine()}, {os.cpu_count()} cores, {gib:.0f} GiB, "
        f"no GPU, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )


def measured(lines: list[str]) -> Measured:
    barred = [line for line in lines if (found := LINE.match(line)) and found["bar"]]
    return Measured(machine(), datetime.date.today().isoformat(), barred)


def read_measured() -> dict[str, Measured]:
    """By the name of the benchmark."""
    if not MEASURED.exists():
        return {}
    return {name: Measured(**run) for name, run in json.loads(MEASURED.read_text()).items()}


def keep(name: str, run: Measured) -> None:
    runs = {**read_measured(), name: run}
    ordered = {name: asdict(runs[name]) for name in sorted(runs)}
    MEASURED.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def tables(runs: dict[str, Measured]) -> str:
    """One table for each machine and day, in Markdown."""
    parts = []
    for where in sorted({(run.machine, run.date) for run in runs.values()}):
        rows = ["| figure | measured | bar |", "|---|---|---|"]
        for _, run in sorted(runs.items()):
            if (run.machine, run.date) != where:
                continue
            for line in run.lines:
                found = LINE.match(line)
                assert found is not None, line
                rows.append(f"| {found['name']} | {found['value']} | {found['bar'][4:]} |")
        parts.append(f"Measured on: {', '.join(where)}.\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


def write_readme(runs: dict[str, Measured]) -> None:
    begin, end = MARKERS
    readme = REPO / "README.md"
    text = readme.read_text()
    if begin not in text or end not in text:
        sys.exit(f"README.md lacks the markers {begin} and {end}")
    head, rest = text.split(begin, 1)
    tail = rest.split(end, 1)[1]
    readme.write_text(f"{head}{begin}\n{tables(runs)}\n{end}{tail}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="bench_NAME.py to run; all quick ones by default")
    parser.add_argument("--readme", action="store_true", help="keep the figures; write the table")
    parser.add_argument("--options", default="", help="of the benchmarks, in one word")
    args = parser.parse_args()
    folder = REPO / "tests" / "bench"
    scripts = [folder / f"bench_{n}.py" for n in args.names] or [
        script for script in sorted(folder.glob("bench_*.py")) if script.name not in ON_THEIR_OWN
    ]
    for script in scripts:
        lines = run(script, shlex.split(args.options))
        if args.readme:
            keep(script.stem.removeprefix("bench_"), measured(lines))
            write_readme(read_measured())


if __name__ == "__main__":
    main()
