"""Reading the pixels of a PNG file. Stdlib only.

Format: W3C PNG specification, third edition: 8-bit grey, RGB or RGBA, not interlaced, which is
what picture viewers write. Bounded in what it unpacks, whatever the header claims.
"""

from __future__ import annotations

import struct
import zlib

MAX_PIXELS = 2**20
_CHANNELS = {0: 1, 2: 3, 6: 4}

Pixels = list[list[tuple[int, ...]]]
"""Rows of (red, green, blue)."""


class NotRead(ValueError):  # noqa: N818 - a fact about the file
    """The bytes are no PNG of the kinds read here."""


def read_png(data: bytes) -> Pixels:
    """The pixels, transparency left out. Raises :class:`NotRead`."""
    try:
        return _read(data)
    except (struct.error, zlib.error, IndexError) as e:
        raise NotRead(str(e)) from None


def _read(data: bytes) -> Pixels:
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        raise NotRead("no PNG signature")
    header, packed, at = b"", b"", 8
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + length]
        at += 12 + length
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            packed += body
        elif kind == b"IEND":
            break
    width, height, depth, colour, _, _, interlace = struct.unpack(">II5B", header)
    channels = _CHANNELS.get(colour)
    if depth != 8 or channels is None or interlace:
        raise NotRead("not 8-bit grey, RGB or RGBA, or interlaced")
    if not 0 < width * height <= MAX_PIXELS:
        raise NotRead("too many pixels, or none")
    stride = width * channels
    raw = zlib.decompressobj().decompress(packed, height * (stride + 1))
    if len(raw) != height * (stride + 1):
        raise NotRead("pixels are missing")
    rows: Pixels = []
    before = bytearray(stride)
    for y in range(height):
        start = y * (stride + 1)
        before = _unfilter(
            raw[start], bytearray(raw[start + 1 : start + 1 + stride]), before, channels
        )
        rows.append([_rgb(before[x : x + channels]) for x in range(0, stride, channels)])
    return rows


def _rgb(pixel: bytes | bytearray) -> tuple[int, ...]:
    return (pixel[0],) * 3 if len(pixel) == 1 else tuple(pixel[:3])


def _unfilter(kind: int, line: bytearray, above: bytearray, step: int) -> bytearray:
    """Undo one row's filter (section 9.2 of the specification)."""
    if kind > 4:
        raise NotRead(f"unknown filter {kind}")
    for i in range(len(line)) if kind else ():
        left = line[i - step] if i >= step else 0
        up = above[i]
        corner = above[i - step] if i >= step else 0
        guess = (left, up, (left + up) // 2, _paeth(left, up, corner))[kind - 1]
        line[i] = (line[i] + guess) & 255
    return line


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    distances = (abs(guess - left), abs(guess - up), abs(guess - corner))
    return (left, up, corner)[distances.index(min(distances))]
