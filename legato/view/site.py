"""The viewer as a folder that opens with a double click, also on another machine."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from legato.errors import ConfigError
from legato.rl.manifest import RunPath, existing_run, read_manifest
from legato.rl.record import read_sessions
from legato.rl.schema import StoredRecord
from legato.rl.store import replacing_folder
from legato.view.detail import rollout_detail
from legato.view.gaps import read_gaps
from legato.view.images import Images
from legato.view.index import TEXT_CHUNK, RunIndex, reply_texts
from legato.view.pages import app_files, data_script
from legato.view.token_text import TokenText, find_token_text

_MARK = "data/runs.js"


def write_site(
    run_dirs: Sequence[RunPath],
    out: Path,
    *,
    images: Images = Images.HARDLINK,
    tokenizer: str | None = None,
    progress: Callable[[int], object] = lambda records: None,
) -> Path:
    """Write the viewer of some runs to the folder ``out`` and return its ``index.html``.

    Holds one record at a time, beside one row for each. A viewer that is already there is
    replaced as a whole. Raises :class:`ConfigError` if there is no run, or if ``out`` cannot be
    replaced; :class:`~legato.errors.StorageError` if it cannot be written.
    """
    runs = [existing_run(run_dir) for run_dir in run_dirs]
    folder = out.resolve()
    _check_replaceable(folder, out, runs)
    with replacing_folder(folder) as part:
        for name, content in app_files().items():
            _write(part / name, content)
        for key, run in enumerate(runs):
            _RunFolder(part / "data" / str(key), key, run, images, tokenizer).write(progress)
        _write(part / _MARK, data_script("runs", runs_json(runs, live=False)))
    return out / "index.html"


def _check_replaceable(folder: Path, named: Path, runs: Sequence[Path]) -> None:
    if Path.cwd().is_relative_to(folder):
        raise ConfigError(
            f"{named} cannot be replaced while you are in it; choose another --out, such as "
            f"{named / 'view'}"
        )
    if any(run.resolve().is_relative_to(folder) for run in runs):
        raise ConfigError(f"{named} holds the run itself; choose another --out")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{named} is a file; choose another --out")
    if not (folder / _MARK).is_file() and any(folder.iterdir()):
        raise ConfigError(f"{named} holds something that is no viewer; choose another --out")


def runs_json(runs: Sequence[Path], *, live: bool) -> dict[str, object]:
    """What the viewer is told first. Runs of the same name are told apart by their parents'.

    A trainer's ``rollouts`` always bear the name of the training run.
    """
    names = [run.resolve().name for run in runs]
    if len(set(names)) < len(names) or any(name.startswith("rollouts") for name in names):
        names = ["/".join(run.resolve().parts[-2:]) for run in runs]
    return {"runs": [{"name": name} for name in names], "live": live}


def spelling_of(run: Path, tokenizer: str | None) -> TokenText | None:
    """How to spell a run's token ids; raises ``ConfigError`` if ``tokenizer`` is none."""
    sessions = [session.settings for session in read_sessions(run)]
    return find_token_text(tokenizer, read_manifest(run).settings, sessions)


class _RunFolder:
    def __init__(
        self, folder: Path, key: int, run: Path, images: Images, tokenizer: str | None
    ) -> None:
        self.folder = folder
        self.key = key
        self.run = run
        self.images = images
        self.spelling = spelling_of(run, tokenizer)
        self.linked: set[str] = set()

    def write(self, progress: Callable[[int], object]) -> None:
        manifest, gaps = read_manifest(self.run), read_gaps(self.run)
        index = RunIndex.of(self.run)
        texts: list[list[str]] = []
        (self.folder / "images").mkdir(parents=True)
        for number, record in index.follow():
            detail = rollout_detail(
                self.run, manifest, record, self.spelling, gaps.get(record["rollout_id"])
            )
            self._deliver(f"rollout-{number}", detail)
            self._link_images(record)
            texts.append(reply_texts(record))
            if len(texts) == TEXT_CHUNK:
                self._deliver(f"text-{number // TEXT_CHUNK}", texts)
                texts = []
            progress(number + 1)
        if texts:
            self._deliver(f"text-{index.chunks - 1}", texts)
        self._deliver("index", index.to_json())

    def _deliver(self, name: str, value: object) -> None:
        _write(self.folder / f"{name}.js", data_script(f"{self.key}/{name}", value))

    def _link_images(self, record: StoredRecord) -> None:
        names = {image["sha256"] for image in record["images"]}
        if record["final_screenshot"] is not None:
            names.add(record["final_screenshot"])
        for name in sorted(names - self.linked):
            self._link(self.run / "images" / f"{name}.png", self.folder / "images" / f"{name}.png")
        self.linked |= names

    def _link(self, source: Path, target: Path) -> None:
        if not source.exists():
            return  # the page shows that it is missing
        if self.images is Images.SYMLINK:
            target.symlink_to(source.resolve())
            return
        if self.images is Images.HARDLINK:
            try:
                os.link(source, target)
                return
            except OSError as e:
                if e.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                    raise
                self.images = Images.COPY
        shutil.copyfile(source, target)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
