"""The loop that serves the driver, and all else that the guest program waits for."""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys

import pytest

from legato.desktop.guest.loop import Loop, Reply
from legato.desktop.local.warden import Warden


def test_what_is_ready_may_be_closed_by_what_was_ready_before_it() -> None:
    """As a clean-up closes connections whose clients have just been killed."""
    loop = Loop(lambda op, request: Reply())
    pairs = [socket.socketpair() for _ in range(3)]
    handled: list[int] = []

    def first(number: int) -> None:
        """Whichever it is: the others are as ready, and their turn would be next."""
        if handled:
            sys.exit()
        handled.append(number)
        for other, (ours, _) in enumerate(pairs):
            if other != number:
                loop.selector.unregister(ours)
                ours.close()

    for number, (ours, theirs) in enumerate(pairs):
        theirs.send(b"x")
        loop.selector.register(ours, selectors.EVENT_READ, lambda number=number: first(number))
    with pytest.raises(SystemExit):
        loop.serve()
    assert len(handled) == 1
    for pair in pairs:
        for end in pair:
            end.close()


def test_a_warden_bears_it_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    warden = object.__new__(Warden)
    warden._selector = selectors.DefaultSelector()
    pairs = [socket.socketpair() for _ in range(2)]

    def close_the_other(number: int) -> None:
        ours, _ = pairs[1 - number]
        warden._selector.unregister(ours)
        ours.close()

    for number, (ours, theirs) in enumerate(pairs):
        theirs.send(b"x")
        warden._selector.register(
            ours, selectors.EVENT_READ, lambda number=number: close_the_other(number)
        )
    warden._turn(1.0)
    assert len(warden._selector.get_map()) == 1
    for pair in pairs:
        for end in pair:
            with contextlib.suppress(OSError):
                end.close()
