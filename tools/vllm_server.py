"""A real vLLM server on the CPU, owned by whoever starts it.

    python tools/vllm_server.py CHECKPOINT -- COMMAND ...

runs COMMAND with ``LEGATO_POLICY_URL`` and ``LEGATO_POLICY_MODEL`` set, then stops the server.
From Python: ``with VllmServer(checkpoint) as server: ... server.url``.

vLLM is a small tree of processes that do not all notice when their parent is killed, and they
leave shared memory and sockets behind. So the tree runs in a pid namespace with a private
``/dev/shm`` that also serves as its ``TMPDIR``: when the owner dies, even by SIGKILL, the kernel
takes everything with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

import httpx

LogprobsMode = Literal["processed_logprobs", "raw_logprobs"]

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0
LOG_TAIL_LINES = 30

ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",  # the first request would compile for 20 s otherwise
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_SERVER_DEV_MODE": "1",  # serves the abort, cache and weight endpoints
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TMPDIR": "/dev/shm",
}
IN_ONE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""Executor that runs the model in the engine's own process. A worker in one of its own, which vLLM
starts on a CPU otherwise, polls for work without a pause while requests come: a core of two."""


class VllmServer:
    """One server, running between :meth:`start` and :meth:`stop`; a context manager of both."""

    def __init__(
        self,
        checkpoint: Path,
        *,
        model: str = "tiny",
        port: int = 0,
        log: Path | None = None,
        logprobs_mode: LogprobsMode = "processed_logprobs",
        max_model_len: int = 8192,
        max_num_seqs: int = 16,
        max_images: int = 32,
        extra: Sequence[str] = (),
    ) -> None:
        """``model`` is the served name; ``port`` 0 takes a free one; ``extra`` goes to vLLM.

        ``log`` keeps what the server prints; without it that is kept only for a failed start.
        """
        self.checkpoint = checkpoint.resolve()
        self.model = model
        self.port = port
        self.log = log
        self._options = [
            *("--served-model-name", model),
            *("--host", "127.0.0.1"),
            *("--dtype", "float32"),
            *("--max-model-len", str(max_model_len)),
            *("--max-num-seqs", str(max_num_seqs)),
            *("--limit-mm-per-prompt", json.dumps({"image": max_images, "video": 0})),
            *("--logprobs-mode", logprobs_mode),
            *("--block-size", "32"),  # without it no prefix shorter than 128 tokens is reused
            *("--distributed-executor-backend", IN_ONE_PROCESS),
            "--enforce-eager",
            "--enable-scale-out",  # serves the token endpoint, /inference/v1/generate
            "--enable-prompt-tokens-details",
            *extra,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._namespace: int | None = None  # pidfd of its first process

    @property
    def root(self) -> str:
        """Without a path, such as ``http://127.0.0.1:8000``."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The OpenAI-style base, what ``--policy-url`` wants."""
        return f"{self.root}/v1"

    def start(self, timeout: float = START_TIMEOUT_S) -> None:
        """Start, and return once requests are answered (20 to 60 s on two cores).

        Raises ``RuntimeError`` with the end of the server's log if it exits, or is not up after
        ``timeout`` seconds; nothing is left running then.
        """
        if threading.current_thread() is not threading.main_thread():
            # The kernel ties "dies with its parent" to the parent's thread.
            raise RuntimeError("start the server from the main thread, it dies with the thread")
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise RuntimeError("bubblewrap is not installed; run: make setup")
        with contextlib.ExitStack() as stack:
            self.port = stack.enter_context(_reserved_port(self.port))
            log = stack.enter_context(self._open_log())
            info_read, info_write = os.pipe()
            info = stack.enter_context(os.fdopen(info_read))
            self._process = subprocess.Popen(
                [
                    *(bwrap, "--die-with-parent", "--unshare-pid", "--info-fd", str(info_write)),
                    *("--dev-bind", "/", "/", "--proc", "/proc", "--tmpfs", "/dev/shm"),
                    *("--", sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"),
                    *(str(self.checkpoint), "--port", str(self.port), *self._options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | ENVIRONMENT,
                pass_fds=[info_write],
                # Ctrl-C is for the owner, who then stops the server. A session of its own would
                # be scheduled as a group of its own (autogroup), which starves its clients.
                process_group=0,
            )
            os.close(info_write)
            try:
                if started := info.read():  # empty when bubblewrap could not start
                    self._namespace = os.pidfd_open(json.loads(started)["child-pid"])
                problem = self._wait_until_up(self._process, time.monotonic() + timeout)
            except BaseException:
                self.stop()
                raise
            if problem is not None:
                self.stop()
                log.seek(0)
                tail = log.read().decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
                raise RuntimeError("\n".join([f"vLLM {problem}. The end of its log:", *tail]))

    def stop(self) -> None:
        """End every process of the server and wait until they are gone. Idempotent."""
        process, self._process = self._process, None
        namespace, self._namespace = self._namespace, None
        if process is not None:
            process.kill()
            process.wait(STOP_TIMEOUT_S)
        if namespace is not None:
            # The first process of a pid namespace is gone only after all the others are.
            select.select([namespace], [], [], STOP_TIMEOUT_S)
            os.close(namespace)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _open_log(self) -> IO[bytes]:
        if self.log is None:
            return tempfile.TemporaryFile()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        return self.log.open("w+b")

    def _wait_until_up(self, process: subprocess.Popen[bytes], deadline: float) -> str | None:
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.root}/health", timeout=5.0).is_success:
                    return None
            with contextlib.suppress(subprocess.TimeoutExpired):
                return f"exited with code {process.wait(0.25)} while starting"
        return "was not up in time"


@contextlib.contextmanager
def _reserved_port(port: int) -> Iterator[int]:
    """Hold a port (0: a free one) until the server has bound it.

    Linux lets two sockets bind one address when both set SO_REUSEADDR and neither listens yet.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        yield holder.getsockname()[1]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a command beside a real CPU vLLM server.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--model", default="tiny", help="served model name")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--log", type=Path, help="file for what the server prints")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="what to run")
    args = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with VllmServer(args.checkpoint, model=args.model, port=args.port, log=args.log) as server:
            return run_beside(server, args.command)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def run_beside(server: VllmServer, command: Sequence[str]) -> int:
    """Run a command with the server's address in its environment; returns its exit code.

    Ctrl-C reaches the command too, which knows what to finish first, and is waited for. The
    command is ended when this process is.
    """
    names = {"LEGATO_POLICY_URL": server.url, "LEGATO_POLICY_MODEL": server.model}
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "--", *command], env=os.environ | names
    )
    try:
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
