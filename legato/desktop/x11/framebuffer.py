"""The screen as Xvfb keeps it: the XWD file that ``-fbdir`` makes.

The file is X11's XWD version 7 (``XWDFile.h``): 25 big-endian words, the window name up to
``header_size``, ``ncolors`` entries of 12 bytes, then the pixels; here 32 bits each, blue first.
The pointer is drawn into it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct

import numpy as np

from legato.desktop.x11.connection import XConnection
from legato.desktop.x11.screen import to_rgb
from legato.errors import EnvFailure, SandboxError

_HEADER = struct.Struct(">25I")
_SEAL_SHRINK = 0x0002


class Framebuffer:
    """Implements :class:`~legato.desktop.x11.screen.Screen`.

    Maps the descriptor of an XWD file; the descriptor is owned, and closed, by this.

    The file belongs to the agent's user, and reading a mapped file that was cut short kills the
    reader. So it must be sealed against shrinking; raises ``SandboxError`` if it is not.
    """

    def __init__(self, fd: int) -> None:
        try:
            if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEAL_SHRINK:
                raise SandboxError("the screen's memory is not sealed against shrinking")
            memory = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        except OSError as e:
            raise SandboxError(f"the screen's memory cannot be mapped safely: {e}") from e
        finally:
            os.close(fd)
        fields = _HEADER.unpack_from(memory)
        header_size, version = fields[0], fields[1]
        width, height = fields[4], fields[5]
        bits, stride, colors = fields[11], fields[12], fields[19]
        if version != 7 or bits != 32 or stride != 4 * width:
            raise EnvFailure(f"unknown screen format: XWD {version}, {bits} bits, stride {stride}")
        offset = header_size + 12 * colors
        if offset + stride * height > len(memory):
            raise EnvFailure(f"a {width}x{height} screen does not fit its {len(memory)} bytes")
        self._pixels = np.frombuffer(memory, np.uint32, width * height, offset).reshape(
            height, width
        )

    def pixels(self, x: XConnection) -> np.ndarray:
        """The live screen, read-only."""
        x.sync()
        return self._pixels

    def rgb(self, x: XConnection) -> np.ndarray:
        with x.undisturbed():
            return to_rgb(self._pixels)

    def last_rgb(self) -> None:
        """A look costs next to nothing, so none is kept."""
        return None
