"""Run the benchmarks and keep what they print: ``make bench``.

Every line of a benchmark is ``name: value (bar …)``. With ``--readme`` the figures go into the
README's tables, between their markers, together with the machine they were measured on: one table
for what ``make bench`` runs, one for the benchmarks that take hours and run only when named.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
QUICK = "<!-- benchmarks: written by `make bench` -->", "<!-- benchmarks end -->"
LONG = "<!-- long benchmarks: written by `tools/bench.py learn` -->", "<!-- long benchmarks end -->"
"""Begin and end of each table in the README."""
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
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPO) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    if process.returncode:
        sys.exit(f"{script.name} ended with exit code {process.returncode}")
    return lines


def machine() -> str:
    """The machine in one line: processor, cores, memory, system, Python."""
    cpu = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    memory = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.M)
    gib = int(memory[1]) / 2**20 if memory else 0
    return (
        f"{cpu[1].strip() if cpu else platform.machine()}, {os.cpu_count()} cores, {gib:.0f} GiB, "
        f"no GPU, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}, "
        f"{datetime.date.today().isoformat()}"
    )


def table(lines: list[str]) -> str:
    rows = ["| figure | measured | bar |", "|---|---|---|"]
    for line in lines:
        found = LINE.match(line)
        if found and found["bar"]:
            rows.append(f"| {found['name']} | {found['value']} | {found['bar'][4:]} |")
    return "\n".join(rows)


def write_readme(markers: tuple[str, str], lines: list[str]) -> None:
    begin, end = markers
    readme = REPO / "README.md"
    text = readme.read_text()
    if begin not in text or end not in text:
        sys.exit(f"README.md lacks the markers {begin} and {end}")
    head, rest = text.split(begin, 1)
    tail = rest.split(end, 1)[1]
    block = f"{begin}\nMeasured on: {machine()}.\n\n{table(lines)}\n{end}"
    readme.write_text(head + block + tail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="bench_NAME.py to run; all quick ones by default")
    parser.add_argument("--readme", action="store_true", help="write the README's table")
    parser.add_argument("--options", default="", help="of the benchmarks, in one word")
    args = parser.parse_args()
    folder = REPO / "tests" / "bench"
    scripts = [folder / f"bench_{n}.py" for n in args.names] or [
        script for script in sorted(folder.glob("bench_*.py")) if script.name not in ON_THEIR_OWN
    ]
    for markers, chosen in (
        (QUICK, [script for script in scripts if script.name not in ON_THEIR_OWN]),
        (LONG, [script for script in scripts if script.name in ON_THEIR_OWN]),
    ):
        lines = [line for script in chosen for line in run(script, shlex.split(args.options))]
        if args.readme and lines:
            write_readme(markers, lines)


if __name__ == "__main__":
    main()
