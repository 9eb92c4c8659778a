"""A rollout as a film: every screenshot with the action drawn on it, then how it ended."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from PIL import Image

from legato.errors import ConfigError, StorageError
from legato.rl.store import replacing, storage_errors
from legato.view.draw import caption, draw_actions
from legato.view.strip import Frame, Strip

FFMPEG_DEADLINE_S = 600.0


def write_film(strip: Strip, out: Path, *, width: int = 960, seconds: float = 1.2) -> None:
    """Write ``out``, a ``.gif`` or, where ffmpeg is installed, an ``.mp4``.

    ``width`` is in pixels, ``seconds`` is how long each picture stays. Raises
    :class:`ConfigError` for another suffix, a rollout without pictures or a missing ffmpeg, and
    :class:`~legato.errors.StorageError` if the file cannot be written.
    """
    if not strip.frames:
        raise ConfigError(f"rollout {strip.rollout_id} has no screenshots ({strip.status})")
    match out.suffix.lower():
        case ".gif":
            _write_gif(_pictures(strip, width), out, seconds)
        case ".mp4":
            _write_mp4(_pictures(strip, width), out, seconds)
        case other:
            raise ConfigError(f"cannot make a {other or 'nameless'} film; use .gif or .mp4")


def _pictures(strip: Strip, width: int) -> Iterator[Image.Image]:
    steps = sum(frame.step is not None for frame in strip.frames)
    size: tuple[int, int] | None = None
    for frame in strip.frames:
        picture = frame.load()
        if size is None:
            # An even number of pixels each way, as the usual video formats want it.
            size = (width // 2 * 2, round(width * picture.height / picture.width) // 2 * 2)
        screen = strip.screen or picture.size
        scaled = picture.resize(size, Image.Resampling.LANCZOS)
        marked = draw_actions(scaled, frame.actions, screen)
        words = caption(size[0], _words(strip, frame, steps), max(12, width // 50), lines=2)
        whole = Image.new("RGB", (size[0], (size[1] + words.height) // 2 * 2))
        whole.paste(marked, (0, 0))
        whole.paste(words, (0, size[1]))
        yield whole


def _words(strip: Strip, frame: Frame, steps: int) -> str:
    if frame.step is None:
        return f"{strip.title}\n{strip.verdict}"
    actions = ";  ".join(shown.words for shown in frame.actions) or "no action"
    return f"{strip.rollout_id}  step {frame.step + 1} of {steps}\n{actions}"


def _write_gif(pictures: Iterator[Image.Image], out: Path, seconds: float) -> None:
    # Octrees keep the few pixels of a mark in their colour; median cut gives them away.
    palettes = (
        picture.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        for picture in pictures
    )
    first = next(palettes)
    with replacing(out) as file:
        first.save(
            file,
            format="GIF",
            save_all=True,
            append_images=palettes,
            duration=round(1000 * seconds),
            loop=0,
            optimize=False,
        )


def _write_mp4(pictures: Iterator[Image.Image], out: Path, seconds: float) -> None:
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        raise ConfigError(
            "an .mp4 needs ffmpeg, which is not installed: install it (Debian: apt install "
            "ffmpeg), or make a .gif"
        )
    part = out.with_name(f".{out.stem}.part.mp4")
    with storage_errors(out), tempfile.TemporaryFile() as frames:
        first = next(pictures)
        frames.write(first.tobytes())
        for picture in pictures:
            frames.write(picture.tobytes())
        frames.seek(0)
        command = [
            *(ffmpeg, "-loglevel", "error", "-y"),
            *("-f", "rawvideo", "-pixel_format", "rgb24", "-framerate", f"{1 / seconds:.6f}"),
            *("-video_size", f"{first.width}x{first.height}", "-i", "pipe:0"),
            *("-r", "25", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(part)),
        ]
        try:
            _run(command, frames)
            part.replace(out)
        finally:
            part.unlink(missing_ok=True)


def _run(command: list[str], frames: IO[bytes]) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=frames,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=FFMPEG_DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        raise StorageError(f"ffmpeg did not end within {FFMPEG_DEADLINE_S:g} s") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise StorageError(f"ffmpeg made no film: {said[-1] if said else 'it gave no reason'}")
