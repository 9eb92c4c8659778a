"""What a provider must keep to, tried on a real sandbox.

For a provider of your own, in a test or by ``python -m legato.rl sandboxes check NAME``::

    @pytest.mark.parametrize("rule", conformance.RULES, ids=conformance.name)
    def test_conformance(rule, mine):  # a fixture: conformance.Subject of your Sandboxes
        rule(mine)

A rule raises :class:`Broken`, or the ``EnvFailure`` of a call that should have worked.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from legato.desktop.guest.mux import Stream
from legato.desktop.sandboxes import owner
from legato.desktop.sandboxes.contract import Sandbox, Sandboxes
from legato.errors import EnvFailure, LegatoError

LIFE_S = 300.0
CREATE_S = 120.0
PATIENCE_S = 30.0
BIG = 2**20


class Broken(LegatoError):  # noqa: N818 - a state
    """The provider did not keep to the contract; the message says where."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A provider, and a sandbox of it that the rules share and leave as it is."""

    sandboxes: Sandboxes
    sandbox: Sandbox
    mark: dict[str, str]
    """A label that nothing else bears."""


Rule = Callable[[Subject], None]


@contextmanager
def subject(sandboxes: Sandboxes) -> Iterator[Subject]:
    """Creates the shared sandbox, and deletes it at the end."""
    mark = {"legato-check": secrets.token_hex(8)}
    labels = {**owner.labels(), **mark}
    sandbox = sandboxes.create(labels, life_s=LIFE_S, timeout=CREATE_S)
    try:
        yield Subject(sandboxes, sandbox, mark)
    finally:
        sandboxes.delete(sandbox.id)


def name(rule: Rule) -> str:
    return rule.__name__


def execute_tells_output_and_code(s: Subject) -> None:
    done = s.sandboxes.execute(s.sandbox.id, ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"])
    _expect(done.code == 7, f"exit code 7 was told as {done.code}")
    _expect(done.text.split() == ["out", "err"], f"both outputs are wanted, got {done.text!r}")


def execute_passes_arguments_as_they_are(s: Subject) -> None:
    odd = ["a b", "", "$HOME", "it's", '"q"', "line\nbreak", "żółć", "*", "\\"]
    show = "import sys; print(ascii(sys.argv[1:]))"
    done = s.sandboxes.execute(s.sandbox.id, ["/usr/bin/python3", "-c", show, *odd])
    _expect(done.text.strip() == ascii(odd), f"arguments were changed: {done.text!r}")


def execute_passes_environment(s: Subject) -> None:
    done = s.sandboxes.execute(
        s.sandbox.id, ["/bin/sh", "-c", 'echo "$LEGATO_CHECK"'], env={"LEGATO_CHECK": "a 'b'"}
    )
    _expect(done.text.strip() == "a 'b'", f"the variable was told as {done.text!r}")


def execute_keeps_its_deadline(s: Subject) -> None:
    started = time.monotonic()
    try:
        s.sandboxes.execute(s.sandbox.id, ["/bin/sleep", "300"], timeout=2.0)
    except EnvFailure:
        _expect(time.monotonic() - started < 2.0 + PATIENCE_S, "a deadline of 2 s was overrun")
    else:
        raise Broken("a command that took longer than its deadline was taken for done")


def files_come_back_as_they_were(s: Subject) -> None:
    path, data = "/tmp/legato check", secrets.token_bytes(BIG)
    for content in (data, b"short", b""):
        s.sandboxes.upload(s.sandbox.id, path, content)
        back = s.sandboxes.download(s.sandbox.id, path)
        _expect(back == content, f"a file of {len(content)} bytes came back changed")
    missing = s.sandboxes.download(s.sandbox.id, "/tmp/no-such-file")
    _expect(missing is None, "a file that is not there was found")


def streams_carry_bytes_both_ways(s: Subject) -> None:
    data = bytes(range(256)) * (BIG // 256)
    with _stream(s, "/bin/cat") as stream:
        for start in range(0, BIG, 2**16):
            part = data[start : start + 2**16]
            stream.write(part)
            _expect(_read(stream, len(part)) == part, "bytes were changed on their way")


def streams_end_with_their_command(s: Subject) -> None:
    with _stream(s, "/bin/echo", "bye") as stream:
        _expect(_read(stream, 4) == b"bye\n", "the command's last words were lost")
        try:
            _expect(stream.read() == b"", "there was more than the command said")
        except OSError:
            return  # an end without a farewell is an end


def commands_end_with_their_stream(s: Subject) -> None:
    with _stream(s, "/bin/sh", "-c", "echo $$; exec cat") as stream:
        pid = ""
        while not pid.endswith("\n"):
            pid += stream.read().decode()
    deadline = time.monotonic() + PATIENCE_S
    alive = [
        "/bin/sh",
        "-c",
        f"kill -0 {pid.strip()} && ! grep -q 'State:.Z' /proc/{pid.strip()}/status",
    ]
    while s.sandboxes.execute(s.sandbox.id, alive).code == 0:
        _expect(time.monotonic() < deadline, "the command went on after its stream was closed")


def there_is_no_network(s: Subject) -> None:
    dial = "import socket; socket.create_connection(('1.1.1.1', 443), 5)"
    done = s.sandboxes.execute(s.sandbox.id, ["/usr/bin/python3", "-c", dial])
    _expect(done.code != 0, "the sandbox reaches the internet")


def list_finds_by_labels(s: Subject) -> None:
    found = {each.id: each for each in s.sandboxes.list(s.mark)}
    _expect(set(found) == {s.sandbox.id}, f"one sandbox bears {s.mark}, found {sorted(found)}")
    _expect(owner.is_ours(found[s.sandbox.id].labels), "labels were lost")
    others = s.sandboxes.list({"legato-check": "another"})
    _expect(not others, "sandboxes with other labels were found")


def keep_renews(s: Subject) -> None:
    s.sandboxes.keep(s.sandbox.id, LIFE_S)


def deleted_is_gone(s: Subject) -> None:
    mark = {"legato-check": secrets.token_hex(8)}
    made = s.sandboxes.create({**owner.labels(), **mark}, life_s=LIFE_S, timeout=CREATE_S)
    s.sandboxes.delete(made.id)
    s.sandboxes.delete(made.id)
    deadline = time.monotonic() + PATIENCE_S
    while s.sandboxes.list(mark):
        _expect(time.monotonic() < deadline, "a deleted sandbox is still listed")
    try:
        s.sandboxes.execute(made.id, ["/bin/true"])
    except EnvFailure:
        return
    raise Broken("a deleted sandbox still ran a command")


RULES: tuple[Rule, ...] = (
    execute_tells_output_and_code,
    execute_passes_arguments_as_they_are,
    execute_passes_environment,
    execute_keeps_its_deadline,
    files_come_back_as_they_were,
    streams_carry_bytes_both_ways,
    streams_end_with_their_command,
    commands_end_with_their_stream,
    there_is_no_network,
    list_finds_by_labels,
    keep_renews,
    deleted_is_gone,
)


def _expect(kept: bool, otherwise: str) -> None:
    if not kept:
        raise Broken(otherwise)


@contextmanager
def _stream(s: Subject, *argv: str) -> Iterator[Stream]:
    stream = s.sandboxes.stream(s.sandbox.id, argv)
    try:
        yield stream
    finally:
        stream.close()


def _read(stream: Stream, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = stream.read()
        if not chunk:
            raise Broken(f"the stream ended after {len(data)} of {count} bytes")
        data += chunk
    return data
