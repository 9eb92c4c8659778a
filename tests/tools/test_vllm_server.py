from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.conftest import REPO, CheckpointFactory, Vllm
from tools.vllm_server import VllmServer

TOOL = REPO / "tools" / "vllm_server.py"


def namespace_of(pid: int) -> str:
    """Name of the pid namespace that the children of ``pid`` run in."""
    for child in children(pid):
        if (name := os.readlink(f"/proc/{child}/ns/pid")) != os.readlink("/proc/self/ns/pid"):
            return name
    raise LookupError(f"no child of {pid} has its own pid namespace")


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def members(namespace: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "ns" / "pid") == namespace:
                found.append(int(entry.name))
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
    return found


@pytest.mark.vllm
def test_reports_logprobs_and_token_ids(vllm: Vllm) -> None:
    asked = {
        "model": vllm.model,
        "messages": [{"role": "user", "content": "click"}],
        "max_tokens": 4,
        "logprobs": True,
        "return_token_ids": True,
    }
    answer = httpx.post(f"{vllm.url}/chat/completions", json=asked, timeout=60).json()
    choice = answer["choices"][0]
    assert 1 <= len(choice["token_ids"]) <= 4
    assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])
    assert answer["prompt_token_ids"]


@pytest.mark.vllm
@pytest.mark.timeout(400)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_end_of_the_owner_takes_server_and_command_along(
    tiny_checkpoint: CheckpointFactory, how: signal.Signals
) -> None:
    report = "import os, time; print(os.environ['LEGATO_POLICY_URL'], flush=True); time.sleep(600)"
    owner = subprocess.Popen(
        [sys.executable, TOOL, tiny_checkpoint(), "--", sys.executable, "-c", report],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    try:
        url = owner.stdout.readline().strip()
        assert httpx.get(f"{url}/models", timeout=30).json()["data"][0]["id"] == "tiny"
        names = {Path(f"/proc/{c}/comm").read_text().strip(): c for c in children(owner.pid)}
        bwrap = names.pop("bwrap")
        (command,) = names.values()
        namespace = namespace_of(bwrap)
        assert len(members(namespace)) >= 4  # bwrap, API server, engine core, worker
        owner.send_signal(how)
        assert owner.wait(60) == (-how if how == signal.SIGKILL else 128 + how)
    finally:
        owner.kill()
        owner.wait(10)
        owner.stdout.close()
    deadline = time.monotonic() + 10
    while (members(namespace) or Path(f"/proc/{command}").exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert members(namespace) == []
    assert not Path(f"/proc/{command}").exists()


@pytest.mark.vllm
def test_failed_start_shows_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    before = children(os.getpid())
    server = VllmServer(tmp_path / "no-such-checkpoint")
    with pytest.raises(RuntimeError, match=r"(?s)exited with code 1 while starting.*no-such"):
        server.start(timeout=120)
    assert children(os.getpid()) == before


@pytest.mark.vllm
def test_start_that_takes_too_long_is_given_up(tiny_checkpoint: CheckpointFactory) -> None:
    with pytest.raises(RuntimeError, match="was not up in time"):
        VllmServer(tiny_checkpoint()).start(timeout=1)


def test_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        VllmServer(tmp_path, port=taken.getsockname()[1]).start()
