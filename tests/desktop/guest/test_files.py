"""Reading files of a machine that has run out of something: that is no missing file."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from legato.desktop.guest import files


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/", os.O_PATH)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "look",
    [lambda p: files.read_file(f"{p}/a", str(p), 10), lambda p: files.list_files(str(p))],
    ids=["read", "list"],
)
def test_a_machine_without_descriptors_cannot_tell(
    tmp_path: Path, look: Callable[[Path], object]
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with no_descriptors_left(), pytest.raises(OSError) as raised:
        look(tmp_path)
    assert raised.value.errno == errno.EMFILE
    assert look(tmp_path) in (b"x", ["a"])


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("missing", "file/below", "loop", "x" * 300, "."):
        assert files.read_file(f"{tmp_path}/{name}", str(tmp_path), 10) is None
    assert files.list_files(f"{tmp_path}/missing") == []
