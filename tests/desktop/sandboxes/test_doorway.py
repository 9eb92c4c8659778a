from __future__ import annotations

import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from legato.desktop.sandboxes import doorway, owner, port, providers
from tests.desktop.sandboxes.double import Provider

PORT = 4321


def test_only_who_knows_the_secret_comes_in(name: str, provider: Provider) -> None:
    sandboxes = providers.connect(name)
    assert isinstance(sandboxes, port.PortSandboxes)
    made = sandboxes.create(owner.labels(), life_s=120, timeout=60)
    program = port._DOORWAY
    opened = sandboxes.execute(
        made.id,
        ["/usr/bin/python3", "-I", "-S", "-c", program, str(PORT), "/bin/cat"],
        env={doorway.SECRET: "right"},
    )
    assert opened.code == 0, opened.text
    address = sandboxes.port(made.id, PORT)

    def knock(**headers: str) -> None:
        known = {**address.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
        with connect(address.url, additional_headers=known, compression=None) as inside:
            inside.send(b"\0\xff")
            assert inside.recv(timeout=30) == b"\0\xff"

    for secret in ({}, {"x_legato_door": ""}, {"x_legato_door": "wrong"}):
        with pytest.raises(WebSocketException):
            knock(**secret)
    knock(x_legato_door="right")
    sandboxes.delete(made.id)


def test_masked_bytes_come_out_as_they_went_in() -> None:
    mask = b"\x01\x80\xff\x3c"
    for size in range(9):
        plain = bytes(range(200, 200 + size))
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(plain))
        assert doorway._unmasked(masked, mask) == plain
