"""The Python environment that OSWorld's software runs in, apart from the trainer's.

OSWorld pins numpy, torch and transformers below what verl and TRL need, so the two never share an
interpreter. :func:`build` makes a virtual environment with the ``desktop-env`` package and what it
imports; ``python -m legato.rl osworld-setup`` calls it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from legato.errors import ConfigError

DESKTOP_ENV = "desktop-env==1.0.2"
"""OSWorld's package on PyPI. Installed without its dependencies, for their pins."""
DEADLINE_S = 1500.0
"""Longest a build may take, in seconds; a minute where the packages come from near by."""
_STAMP = "legato-osworld.ready"
_MODULES = "desktop_env"


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment at ``path``; whether it is whole is for :meth:`check` to say."""

    path: Path

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    @property
    def whole(self) -> bool:
        try:
            return (self.path / _STAMP).read_text() == _recipe() and self.python.exists()
        except OSError:
            return False

    def check(self) -> None:
        """Raise :class:`~legato.errors.ConfigError` unless :func:`build` has finished here."""
        if not self.whole:
            where = "" if self.path == default_path() else f" --path {self.path}"
            raise ConfigError(
                f"OSWorld's environment is not set up at {self.path}: run "
                f"`python -m legato.rl osworld-setup{where}` once"
            )

    def has(self, module: str) -> bool:
        """Whether a top-level module is installed; ``False`` where there is no environment."""
        return any(
            (site / module).exists() or (site / f"{module}.py").exists()
            for site in self.path.glob("lib/python3*/site-packages")
        )


def default_path() -> Path:
    """``$XDG_CACHE_HOME/legato/osworld``, by default in ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "legato" / "osworld"


def build(
    path: Path, *, say: Callable[[str], None] = lambda line: None, deadline: float = DEADLINE_S
) -> Environment:
    """Make the environment at ``path`` or leave a whole one as it is.

    Several processes may ask at once: one builds and the others wait. A build that was cut short
    starts afresh. Raises :class:`~legato.errors.ConfigError` when it takes longer than ``deadline``
    seconds, when a package cannot be had, or when ``path`` cannot be written.
    """
    environment = Environment(path.expanduser().absolute())
    ends = time.monotonic() + deadline
    try:
        environment.path.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{environment.path}.lock", "w") as lock:
            _take(lock.fileno(), ends, environment.path)
            if not environment.whole:
                _build(environment, say, ends)
    except OSError as e:
        raise ConfigError(f"could not write OSWorld's environment at {path}: {e}") from e
    return environment


def _take(lock: int, ends: float, path: Path) -> None:
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= ends:
                raise ConfigError(
                    f"another process has been building {path} all the time"
                ) from None
            time.sleep(0.2)


def _build(environment: Environment, say: Callable[[str], None], ends: float) -> None:
    path = environment.path
    if path.exists() and not (path / "pyvenv.cfg").exists() and any(path.iterdir()):
        raise ConfigError(f"{path} is neither empty nor a virtual environment: choose another path")
    shutil.rmtree(path, ignore_errors=True)
    say(f"making {path}")
    _run([sys.executable, "-m", "venv", str(path)], "making the virtual environment", ends)
    pip = [str(environment.python), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    say(f"installing {DESKTOP_ENV}")
    _run([*pip, "--no-deps", DESKTOP_ENV], f"installing {DESKTOP_ENV}", ends)
    say("installing what it imports (about 900 MB)")
    wanted = str(files("legato.desktop.osworld") / "requirements.txt")
    _run([*pip, "-r", wanted], "installing what desktop-env imports", ends)
    say("trying it")
    spec = "import importlib.util, sys; sys.exit(importlib.util.find_spec('desktop_env') is None)"
    _run([str(environment.python), "-c", spec], f"finding {_MODULES}", ends)
    part = path / f"{_STAMP}.part"
    part.write_text(_recipe())
    part.replace(path / _STAMP)


def _recipe() -> str:
    """What an environment was built from; another recipe makes a build begin anew."""
    wanted = (files("legato.desktop.osworld") / "requirements.txt").read_text()
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return hashlib.sha256(f"{DESKTOP_ENV}\n{version}\n{wanted}".encode()).hexdigest()


def _run(argv: list[str], what: str, ends: float) -> None:
    left = ends - time.monotonic()
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=max(left, 1.0), stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{what} took too long; run the same command again to go on") from None
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no reason"]
        raise ConfigError(f"{what} failed: {said[0]}")
