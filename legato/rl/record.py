"""The run directory: every rollout on disk, append-only and safe against a crash at any byte.

::

    DIR/run.json           what is run: tasks and settings; must agree when a run is resumed
    DIR/sessions.jsonl     when each process that wrote here began and ended, and how it ran
    DIR/rollouts.jsonl     one record per try of an attempt (:mod:`legato.rl.schema`)
    DIR/messages/<sha256>.json, DIR/images/<sha256>.png
                           prompts by content: each message and each screenshot once

Only :class:`RunDir` writes; everything else here reads, also while a run is being written.
"""

from __future__ import annotations

import base64
import json
import math
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, cast

from legato import __version__
from legato.desktop.contract import Screenshot
from legato.errors import ConfigError, DiskFullError, StorageError
from legato.rl.manifest import Manifest, RunPath, agree, existing_run
from legato.rl.schema import IMAGE_SCHEME, SCHEMA, RolloutRecord, StoredRecord, dump_json, encode
from legato.rl.store import Blobs, Lock, Log, read_log
from legato.rl.types import VERDICTS, Rollout, Status

AttemptKey: TypeAlias = tuple[str, int]
"""``(group_id, attempt)``: what is final once and only once."""


@dataclass(frozen=True, slots=True)
class FinishedAttempt:
    """An attempt that came to its end; a resumed run must not repeat it."""

    status: Status
    reward: float | None
    rollout_id: str


@dataclass(slots=True)
class Session:
    """One process that wrote to the run directory. Times are Unix seconds."""

    number: int
    started_at: float
    ended_at: float | None
    """``None``: still running, or killed."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How it ran (see :attr:`Manifest.session`)."""


class RunDir:
    """The one writer of a run directory. Calls are blocking and may come from any thread."""

    path: Path
    finished: dict[AttemptKey, FinishedAttempt]
    """Attempts that are final, those of earlier sessions included."""
    tries: dict[AttemptKey, int]
    """Recorded tries of each attempt: the ``attempt_try`` of the next one."""

    def __init__(self, path: Path, lock: Lock, manifest: Manifest) -> None:
        """Use :meth:`create_or_resume`."""
        self.path = path
        self.finished = {}
        self.tries = {}
        self._lock = lock
        self._closed = False
        self._busy = threading.Lock()
        self._messages = _messages(path)
        self._images = _images(path)
        self._messages.open_for_writing()
        self._images.open_for_writing()
        end = 0
        for record, end in _scan(path):  # noqa: B007 - the last offset is what is wanted
            self._note(record)
        self._session = len(read_sessions(path))
        sessions_end = max((end for _, end in read_log(path / "sessions.jsonl")), default=0)
        self._rollouts = Log(path / "rollouts.jsonl", end)
        self._sessions = Log(path / "sessions.jsonl", sessions_end)
        self._sessions.append(
            dump_json(
                {
                    "session": self._session,
                    "started_at": time.time(),
                    "legato": __version__,
                    "settings": dict(manifest.session),
                }
            )
        )

    @classmethod
    def create_or_resume(cls, path: RunPath, manifest: Manifest) -> RunDir:
        """Open a new directory, or one of an earlier run of the same tasks and settings.

        Raises :class:`ConfigError` if another process is writing there, if it holds something
        else, or if tasks or settings differ (naming them); :class:`StorageError` if it cannot be
        written.
        """
        folder = Path(path)
        lock = _lock(folder)
        try:
            agree(folder, manifest)
            return cls(folder, lock, manifest)
        except BaseException:
            lock.close()
            raise

    def append(self, rollout: Rollout) -> None:
        """Record one try of an attempt; it is on disk when this returns.

        Raises :class:`DiskFullError` or :class:`StorageError`; the rollout is then not recorded,
        what was recorded before stays, and the call may be repeated. Raises ``ValueError`` for an
        attempt that is already final.
        """
        encoded = encode(rollout)
        record = {**encoded.record, "session": self._session, "recorded_at": time.time()}
        with self._busy:
            if self._closed:
                raise ValueError(f"{self.path} is closed")
            key = (rollout.group_id, rollout.attempt)
            if key in self.finished:
                raise ValueError(
                    f"attempt {rollout.attempt} of group {rollout.group_id} is already final "
                    f"({self.finished[key].status})"
                )
            self._messages.put(encoded.messages)
            self._images.put({name: shot.png for name, shot in encoded.screenshots.items()})
            self._rollouts.append(dump_json(record))
            self._note(encoded.record)

    def close(self) -> None:
        """Note the end of this session and let the next writer in. Idempotent."""
        with self._busy:
            if self._closed:
                return
            self._closed = True
            try:
                self._sessions.append(
                    dump_json({"session": self._session, "ended_at": time.time()})
                )
            except DiskFullError:
                # The stamp only refines the wall clock, which else ends at the last record.
                pass
            finally:
                self._rollouts.close()
                self._sessions.close()
                self._lock.close()

    def __enter__(self) -> RunDir:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __fspath__(self) -> str:
        return str(self.path)

    def _note(self, record: RolloutRecord) -> None:
        key = (record["group_id"], record["attempt"])
        self.tries[key] = self.tries.get(key, 0) + 1
        status = Status(record["status"])
        if status is not Status.RETRIED:
            self.finished[key] = FinishedAttempt(status, record["reward"], record["rollout_id"])


def read_records(path: RunPath) -> Iterator[StoredRecord]:
    """Every record of a run in the order written, one at a time in memory.

    Raises :class:`ConfigError` if there is no run at ``path``, :class:`StorageError` for a damaged
    record.
    """
    for record, _ in scan_records(path):
        yield record


def scan_records(path: RunPath, start: int = 0) -> Iterator[tuple[StoredRecord, int]]:
    """:func:`read_records` from an offset on, each with the offset just behind it.

    ``start`` is 0 or such an offset, so that a reader can follow a run and find a record again.
    """
    yield from _scan(existing_run(path), start)


def finished_attempts(path: RunPath) -> dict[AttemptKey, FinishedAttempt]:
    """Attempts of a run that are final, by ``(group_id, attempt)``.

    Every status but ``retried`` is final. Attempts that were under way when a run was interrupted
    have no record, so a resumed run makes them anew.
    """
    return {
        (record["group_id"], record["attempt"]): FinishedAttempt(
            Status(record["status"]), record["reward"], record["rollout_id"]
        )
        for record in read_records(path)
        if record["status"] != Status.RETRIED
    }


def read_sessions(path: RunPath) -> list[Session]:
    """The processes that wrote to a run, in order."""
    sessions: dict[int, Session] = {}
    file = Path(path) / "sessions.jsonl"
    for line, end in read_log(file):
        number = line.get("session")
        if type(number) is not int or not {"started_at", "ended_at"} & line.keys():
            raise StorageError(
                f"{file}, the line before byte {end} is of no session; move it out of the file"
            )
        if "started_at" in line:
            sessions[number] = Session(number, line["started_at"], None, line.get("settings") or {})
        elif number in sessions:
            sessions[number].ended_at = line["ended_at"]
    return list(sessions.values())


def load_request(
    run_dir: RunPath, record: RolloutRecord, step: int, *, inline_images: bool = False
) -> list[dict[str, Any]]:
    """The exact prompt of one step, rebuilt as OpenAI-style chat messages.

    Images stay ``legato-image://<sha256>``, or become PNG data URLs with ``inline_images``.
    Raises :class:`StorageError` if a file is missing or damaged.
    """
    folder = Path(run_dir)
    stored, images = _messages(folder), _images(folder)
    messages: list[dict[str, Any]] = []
    for name in record["steps"][step]["request"]:
        message = json.loads(stored.get(name))
        if inline_images and isinstance(message["content"], list):
            for part in message["content"]:
                if part["type"] == "image_url":
                    url = part["image_url"]["url"]
                    part["image_url"]["url"] = data_url(images.get(url.removeprefix(IMAGE_SCHEME)))
        messages.append(message)
    return messages


def load_screenshot(run_dir: RunPath, name: str) -> Screenshot:
    """A stored screenshot by its hash; raises :class:`StorageError` if missing or damaged."""
    return Screenshot.from_png(_images(Path(run_dir)).get(name))


def data_url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _messages(folder: Path) -> Blobs:
    return Blobs(folder / "messages", ".json")


def _images(folder: Path) -> Blobs:
    return Blobs(folder / "images", ".png")


def _scan(folder: Path, start: int = 0) -> Iterator[tuple[StoredRecord, int]]:
    """Records that can be counted on: a run that was mended by hand must not count one twice."""
    path = folder / "rollouts.jsonl"
    final: set[AttemptKey] = set()
    at = start
    for line, end in read_log(path, start):
        if line.get("schema") != SCHEMA:
            raise StorageError(
                f"{path} holds a record of schema {line.get('schema')!r}; this version of "
                f"legato reads {SCHEMA}"
            )
        problem = _problem(line)
        if problem is None and line["status"] != Status.RETRIED:
            key = (line["group_id"], line["attempt"])
            if key in final:
                problem = f"repeats attempt {key[1]} of group {key[0]!r}, which is final"
            final.add(key)
        if problem is not None:
            raise StorageError(
                f"{path}, the record at byte {at}, {problem}; move the line out of the file to go "
                "on without it"
            )
        at = end
        yield cast(StoredRecord, line), end


def _problem(record: Mapping[str, Any]) -> str | None:
    """What keeps a record from being counted; ``None`` if nothing does."""
    missing = sorted(StoredRecord.__required_keys__ - record.keys())
    if missing:
        return f"has no {', '.join(missing)}"
    if not all(isinstance(record[key], str) for key in ("rollout_id", "task_id", "group_id")):
        return "has an id that is no text"
    if type(record["attempt"]) is not int or record["attempt"] < 0:
        return f"has the attempt number {record['attempt']!r}"
    if record["status"] not in {status.value for status in Status}:
        return f"has the unknown status {record['status']!r}"
    reward = record["reward"]
    graded = type(reward) in (int, float) and math.isfinite(reward)
    if record["status"] in VERDICTS and not graded:
        return f"is {record['status']} with a reward of {reward!r}"
    return None


def _lock(folder: Path) -> Lock:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        present = {entry.name for entry in folder.iterdir()}
    except OSError as e:
        raise ConfigError(f"cannot use {folder} as a run directory: {e.strerror}") from e
    # A crash before run.json was written leaves only hidden files of ours.
    ours = {name for name in present if name == ".lock" or name.startswith(".run.json.")}
    if "run.json" not in present and present > ours:
        raise ConfigError(
            f"{folder} is not empty and holds no run; choose a new or empty directory for --out"
        )
    return Lock(folder / ".lock")
