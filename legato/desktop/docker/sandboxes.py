"""The contract of sandbox providers, kept by a container engine.

For an engine far away that is to be treated like any provider of sandboxes: commands, files and
streams go through its API. Desktops of an engine are better had from the backend ``docker``, whose
containers hold nothing but the guest program.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import secrets
import shlex
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docker.errors import NotFound

from legato.desktop import image
from legato.desktop.docker.engine import Engine
from legato.desktop.docker.options import DockerOptions
from legato.desktop.docker.stream import AttachedStream
from legato.desktop.sandboxes.contract import Output, Sandbox, Sandboxes, SandboxGone
from legato.errors import EnvFailure

_LIFE = "/tmp/.legato-life"
_LIVE = 'while [ "$(date +%s)" -lt "$(cat {0})" ]; do sleep 1; done'
_NOTE_PID = 'echo $$ > "$0"; exec "$@"'
_KILL_S = 2.0
TIMED_OUT = (124, 137)
"""Exit codes by which timeout(1) tells that it ended the command."""


class DockerSandboxes(Sandboxes):
    kind = "docker"

    def __init__(self, options: DockerOptions) -> None:
        self._options = options
        self._image = options.image or image.reference()
        self._engine = Engine(options.engine)

    def check(self) -> None:
        self._engine.check()
        self._engine.check_image(self._image)

    def create(self, labels: Mapping[str, str], *, life_s: float, timeout: float) -> Sandbox:
        api = self._engine.api
        with self._engine.calls("create a sandbox"):
            made = api.create_container(
                self._image,
                entrypoint=["/bin/sh", "-c", f"{_until(life_s)}; {_LIVE.format(_LIFE)}"],
                user="0",
                working_dir="/",
                labels=dict(labels),
                host_config=api.create_host_config(
                    network_mode="none",
                    cap_drop=["ALL"],
                    security_opt=self._engine.security,
                    mem_limit=self._options.memory_mib * 2**20,
                    nano_cpus=int(self._options.cpus * 1e9),
                    pids_limit=self._options.max_processes,
                    auto_remove=True,
                    init=True,
                ),
            )
            id = str(made["Id"])
            api.start(id)
            (found,) = [each for each in self.list(labels) if each.id == id]
        return found

    def keep(self, id: str, life_s: float) -> None:
        done = self.execute(id, ["/bin/sh", "-c", _until(life_s)])
        if done.code:
            raise EnvFailure(f"sandbox {id} could not be renewed: {done.text}")

    def execute(
        self,
        id: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> Output:
        bounded = ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", "/usr/bin/timeout"]
        bounded += [f"--kill-after={_KILL_S:g}", f"{timeout:g}", *argv]
        api = self._engine.api
        with self._calls(id, "run a command"):
            run = api.exec_create(id, bounded, environment=dict(env or {}), user="0")["Id"]
            said: bytes = api.exec_start(run)
            code = int(api.exec_inspect(run)["ExitCode"])
        if code in TIMED_OUT:
            raise EnvFailure(f"{shlex.join(argv)[:80]} did not end within {timeout:g} s")
        return Output(code, said.decode("utf-8", "replace"))

    def upload(self, id: str, path: str, data: bytes) -> None:
        directory, name = posixpath.split(path)
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        with self._calls(id, "take a file"):
            self._engine.api.put_archive(id, directory, archive.getvalue())

    def download(self, id: str, path: str) -> bytes | None:
        with self._calls(id, "give a file"):
            try:
                chunks, _ = self._engine.api.get_archive(id, path)
            except NotFound:
                self._engine.api.inspect_container(id)
                return None
            archive = io.BytesIO(b"".join(chunks))
        with tarfile.open(fileobj=archive) as tar:
            file = tar.extractfile(tar.next() or tarfile.TarInfo())
            if file is None:
                raise EnvFailure(f"{path} is no file")
            return file.read()

    def stream(
        self, id: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> AttachedStream:
        pid = f"/tmp/.legato-{secrets.token_hex(6)}"
        api = self._engine.api
        with self._calls(id, "start a command"):
            run = api.exec_create(
                id,
                ["/bin/sh", "-c", _NOTE_PID, pid, *argv],
                environment=dict(env or {}),
                stdin=True,
                user="0",
            )["Id"]
            return _Stream(self, id, pid, api.exec_start(run, socket=True))

    def delete(self, id: str) -> None:
        with contextlib.suppress(SandboxGone), self._calls(id, "end a sandbox"):
            self._engine.api.remove_container(id, force=True, v=True)

    def list(self, labels: Mapping[str, str]) -> list[Sandbox]:
        wanted = [f"{name}={value}" for name, value in labels.items()]
        with self._engine.calls("list sandboxes"):
            found = self._engine.api.containers(filters={"label": wanted})
        return [Sandbox(each["Id"], each["Labels"], float(each["Created"])) for each in found]

    def close(self) -> None:
        self._engine.close()

    @contextlib.contextmanager
    def _calls(self, id: str, what: str) -> Iterator[None]:
        try:
            with self._engine.calls(what):
                yield
        except EnvFailure as e:
            if isinstance(e.__cause__, NotFound):
                raise SandboxGone(f"there is no sandbox {id}") from e
            raise


class _Stream(AttachedStream):
    """Ends its command too: the engine only closes the command's input."""

    def __init__(self, sandboxes: DockerSandboxes, id: str, pid: str, response: Any) -> None:
        super().__init__(response)
        self._sandboxes, self._id = sandboxes, id
        self._kill = ["/bin/sh", "-c", f"kill -9 $(cat {pid})"]

    def close(self) -> None:
        super().close()
        with contextlib.suppress(EnvFailure):
            self._sandboxes.execute(self._id, self._kill)


def _until(life_s: float) -> str:
    return f"echo $(($(date +%s) + {life_s:.0f})) > {_LIFE}"
