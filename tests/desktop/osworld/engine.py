"""A docker engine of the tests: its own data, socket and bridge, gone when they are over."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

IMAGE = "happysixd/osworld-docker"
START_S = 60.0


class Engine:
    """``with Engine() as engine``; publishes ports on this host and reaches nothing else."""

    def __init__(self, disk: str | None = None) -> None:
        """``disk`` as for ``mount -t tmpfs -o size=``; by default this host's."""
        self._disk = disk
        self.folder = Path(tempfile.mkdtemp(prefix="legato-dockerd-"))
        self.host = f"unix://{self.folder}/docker.sock"
        number = os.getpid() * 2 + (disk is not None)
        self._bridge = f"lgt{number}"
        self._net = f"172.30.{number % 250}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Engine:
        try:
            if self._disk is not None:
                self.data.mkdir()
                run("mount", "-t", "tmpfs", "-o", f"size={self._disk}", "tmpfs", str(self.data))
            run("ip", "link", "add", self._bridge, "type", "bridge")
            run("ip", "addr", "add", f"{self._net}.1/24", "dev", self._bridge)
            run("ip", "link", "set", self._bridge, "up")
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, timeout=20)
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if line.split()[1].startswith(str(self.folder)):
                subprocess.run(["umount", "-l", line.split()[1]], capture_output=True, timeout=20)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def data(self) -> Path:
        """Where the engine keeps images and containers."""
        return self.folder / "data"

    def load(self, rootfs: Path, start: Sequence[str], tag: str = IMAGE) -> None:
        """Make an image of a tar, whose containers run ``start``."""
        self.docker("import", "--change", f"ENTRYPOINT {json.dumps(list(start))}", str(rootfs), tag)

    def docker(self, *arguments: str) -> str:
        return run("docker", "-H", self.host, *arguments, timeout=300)

    def _start(self) -> None:
        settings = {
            "data-root": str(self.data),
            "exec-root": str(self.folder / "exec"),
            "pidfile": str(self.folder / "pid"),
            "hosts": [self.host],
            "bridge": self._bridge,
            "iptables": False,
            "ip6tables": False,
            "ip-forward": False,
            "ip-masq": False,
        }
        (self.folder / "daemon.json").write_text(json.dumps(settings))
        with open(self.folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                ["dockerd", "--config-file", str(self.folder / "daemon.json")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        ends = time.monotonic() + START_S
        while subprocess.run(
            ["docker", "-H", self.host, "version"], capture_output=True, timeout=30
        ).returncode:
            if self._process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            time.sleep(0.1)


def run(*argv: str, timeout: float = 60) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv[:3])}: {done.stderr.strip()[-500:]}")
    return done.stdout
