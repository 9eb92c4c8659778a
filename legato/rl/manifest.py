"""What a run directory holds rollouts of, and whether a resumed run still agrees with it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from legato import __version__
from legato.errors import ConfigError
from legato.rl.advantage import MIN_GROUP
from legato.rl.schema import SCHEMA, dump_json
from legato.rl.store import replacing

RUN_SCHEMA = "legato.run/v0"

RunPath: TypeAlias = "str | os.PathLike[str]"
"""A run directory: its path, or the :class:`~legato.rl.record.RunDir` itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a run directory holds rollouts of. No field may carry a key or a password."""

    tasks: Sequence[Mapping[str, Any]] = ()
    """The tasks as JSON; empty when they stream in from a trainer."""
    group: int | None = None
    """Attempts wanted per group, ``None`` if it varies."""
    min_group: int = MIN_GROUP
    """Fewest verdicts from which a group is trained."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What shapes a rollout or its group (model, policy version, sampling, harness, backend, step
    limit ...). A run is resumed only with the same settings, policy version included: a group half
    sampled by other weights is not a group. A trainer whose version moves on with every step
    leaves it out here; each record carries it anyway."""
    session: Mapping[str, Any] = field(default_factory=dict)
    """How this process runs it (number of desktops, URLs, timeouts ...). Free to change."""


def existing_run(path: RunPath) -> Path:
    """The path of a run directory that is there; raises :class:`ConfigError` if it is not."""
    folder = Path(path)
    if not (folder / "run.json").is_file():
        raise ConfigError(f"no run at {folder} (no run.json); give the --out of a collect")
    return folder


def read_manifest(path: RunPath) -> Manifest:
    """What a run was started with, ``session`` apart; raises :class:`ConfigError` if no run."""
    return Manifest(**_stored(existing_run(path)))


def agree(folder: Path, manifest: Manifest) -> None:
    """Write ``run.json``, or compare with the one that is there."""
    wanted = json.loads(
        dump_json(
            {
                "tasks": [dict(task) for task in manifest.tasks],
                "group": manifest.group,
                "min_group": manifest.min_group,
                "settings": dict(manifest.settings),
            }
        )
    )
    if not (folder / "run.json").exists():
        head = {
            "schema": RUN_SCHEMA,
            "records": SCHEMA,
            "legato": __version__,
            "created_at": time.time(),
        }
        with replacing(folder / "run.json") as file:
            file.write(json.dumps({**head, **wanted}, indent=1).encode("ascii") + b"\n")
        return
    stored = _stored(folder)
    differing = [
        *_differences("group", stored["group"], wanted["group"]),
        *_differences("min_group", stored["min_group"], wanted["min_group"]),
        *_differences("settings", stored["settings"], wanted["settings"]),
        *_task_differences(stored["tasks"], wanted["tasks"]),
    ]
    if differing:
        raise ConfigError(
            f"{folder} was begun with other settings: {'; '.join(differing)}. Repeat the command "
            "with the old ones to resume it, or choose a new --out"
        )


def _stored(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    try:
        stored = json.loads(path.read_bytes())
        if stored["schema"] != RUN_SCHEMA:
            raise ConfigError(f"{path} has the unknown schema {stored['schema']!r}")
        return {key: stored[key] for key in ("tasks", "group", "min_group", "settings")}
    except (ValueError, KeyError, TypeError) as e:
        raise ConfigError(f"{path} is not a run's manifest: {e}; choose another --out") from e


def _differences(name: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from _differences(f"{name}.{key}", old.get(key), new.get(key))
    elif old != new:
        yield f"{name.removeprefix('settings.')} was {_short(old)}, now {_short(new)}"


def _task_differences(old: list[Any], new: list[Any]) -> Iterator[str]:
    if old == new:
        return
    if len(old) != len(new):
        yield f"tasks were {len(old)}, now {len(new)}"
    for index, (before, now) in enumerate(zip(old, new, strict=False)):
        if before != now:
            yield f"task {index} was {_short(before)}, now {_short(now)}"
            return


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
