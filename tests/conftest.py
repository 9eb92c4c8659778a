"""What tests share: tiny checkpoints, one real model server, and a check that nothing is left.

Set ``LEGATO_TEST_VLLM_URL`` to test against a vLLM server that already runs, on the checkpoint of
``tools/warm_start.py``, instead of starting one, and ``LEGATO_TEST_VLLM_MODEL`` to its checkpoint
directory if it reports none of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx
import pytest

from tests.leaks import LeakCheck
from tools.vllm_server import VllmServer

REPO = Path(__file__).resolve().parent.parent

_leak_check = pytest.StashKey[LeakCheck]()
_leaks = pytest.StashKey[list[str]]()


class CheckpointFactory(Protocol):
    def __call__(self, family: str = "qwen3_vl", **generation: float) -> Path: ...


@dataclass(frozen=True, slots=True)
class Vllm:
    """A running server."""

    root: str
    """Such as ``http://127.0.0.1:8000``; ``/metrics`` and the token endpoint lie under it."""
    model: str
    """The served name."""
    checkpoint: Path
    """Directory of the weights and the tokenizer it serves."""
    process: VllmServer | None = None
    """What stops and starts it; ``None`` if it is not this session's own."""

    @property
    def url(self) -> str:
        """What ``--policy-url`` wants."""
        return f"{self.root}/v1"


@pytest.fixture(scope="session")
def tiny_checkpoint() -> CheckpointFactory:
    """``tiny_checkpoint(family, **generation_config)``: its directory, built on first use."""

    def build(family: str = "qwen3_vl", **generation: float) -> Path:
        fields = [f"--generation={name}={value}" for name, value in generation.items()]
        return _made("tiny_vlm.py", f"--family={family}", *fields)

    return build


@pytest.fixture(scope="session")
def warm_checkpoint() -> Path:
    """A tiny Qwen3-VL that replies to the ``compact`` harness with random actions."""
    return _made("warm_start.py")


@pytest.fixture(scope="session")
def press_checkpoint() -> Path:
    """A tiny Qwen3-VL that replies with a click on a button, any button."""
    return _made("press_warm_start.py")


@pytest.fixture(scope="session")
def vllm(request: pytest.FixtureRequest) -> Iterator[Vllm]:
    """A real vLLM server on the warm checkpoint, one for the whole session."""
    if given := os.environ.get("LEGATO_TEST_VLLM_URL"):
        yield _running_server(given.rstrip("/").removesuffix("/v1"))
        return
    with VllmServer(request.getfixturevalue("warm_checkpoint")) as server:
        yield Vllm(server.root, server.model, server.checkpoint, server)


def _made(tool: str, *options: str) -> Path:
    """The checkpoint that a tool of ours makes, or made before and kept."""
    done = subprocess.run(  # apart: torch must not be imported into the tests' process
        [sys.executable, REPO / "tools" / tool, *options],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
    )
    return Path(done.stdout.splitlines()[-1])


def _running_server(root: str) -> Vllm:
    served = httpx.get(f"{root}/v1/models", timeout=10.0).raise_for_status().json()["data"][0]
    checkpoint = Path(os.environ.get("LEGATO_TEST_VLLM_MODEL", served["root"]))
    if not (checkpoint / "tokenizer.json").is_file():
        pytest.fail(f"no checkpoint at {checkpoint}; set LEGATO_TEST_VLLM_MODEL to its directory")
    return Vllm(root, served["id"], checkpoint.resolve())


# --- order and leaks ---------------------------------------------------------------------------


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests first, those of the model server last and together: it takes memory and CPU."""
    items.sort(
        key=lambda item: (
            item.get_closest_marker("vllm") is not None,
            item.get_closest_marker("desktop") is not None,
        )
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[_leak_check] = LeakCheck()
        config.stash[_leak_check].begin()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    check = session.config.stash.get(_leak_check, None)
    if check is not None:
        session.config.stash[_leaks] = check.finish()
        if session.config.stash[_leaks]:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if leaks := config.stash.get(_leaks, []):
        terminalreporter.section("left behind by this session", red=True)
        for line in leaks:
            terminalreporter.line(line)
