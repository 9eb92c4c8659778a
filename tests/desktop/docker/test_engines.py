"""Whole jobs on every way to an engine: a group with verdicts, TCP, SSH."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from legato.desktop.actions import AnyAction, Done
from legato.desktop.contract import DesktopOptions
from legato.desktop.docker import check_requirements, make_desktop
from legato.desktop.docker.engine import Engine
from legato.errors import ConfigError
from legato.rl.config import DesktopConfig
from legato.rl.driver import Driver, GroupOptions
from legato.rl.harness import make_harness
from legato.rl.pool import Pool
from legato.rl.rollout import Limits
from legato.rl.types import Generation, Prompt, Rollout, Sampling, Status
from legato.tasks.reference import shipped_actions
from legato.tasks.suites import load_task
from tests.desktop.docker.engines import DaemonProcess, await_port, free_port

pytestmark = pytest.mark.desktop

TASK = "settings_tabs"
"""Its pages come from a server of the driver's, whose state is what is graded."""


class HalfRight:
    """A policy whose first attempt plays the reference episode; every other gives up at once."""

    version = "7"

    def __init__(self, actions: list[AnyAction]) -> None:
        self._harness = make_harness("qwen3_5", tokenizer=None)
        self._replies = [self._harness.render_reply(a, (1280, 720)) for a in actions]
        self._started = 0

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        turn = sum(message.role == "assistant" for message in prompt.messages)
        reply = self._replies[turn] if turn < len(self._replies) else self._done()
        if turn == 0:
            self._started += 1
            if self._started > 1:
                reply = self._done()
        return Generation(
            text=reply,
            token_ids=None,
            logprobs=None,
            prompt_ids=None,
            image_tokens=None,
            version=self.version,
            finish_reason="stop",
        )

    def _done(self) -> str:
        return self._harness.render_reply(Done(), (1280, 720))

    async def aclose(self) -> None:
        return


async def collect(config: DesktopConfig) -> list[Rollout]:
    ended: list[Rollout] = []

    async def keep(rollout: Rollout) -> None:
        ended.append(rollout)

    task = load_task(TASK, 3)
    actions = shipped_actions(task)
    assert actions
    async with Pool(config.factory(), config.desktop_options(), size=2) as pool:
        driver = Driver(
            pool,
            HalfRight(actions),
            make_harness("qwen3_5", tokenizer=None),
            policy_model="scripted",
            sampling=Sampling(),
            limits=Limits(max_steps=len(actions) + 1),
            groups=GroupOptions(size=2),
            on_rollout=keep,
        )
        await driver.run_group(task, "g0")
    return ended


def test_a_group_with_verdicts(daemon: DaemonProcess) -> None:
    config = DesktopConfig(backend="docker", options={"engine": daemon.address})
    rollouts = asyncio.run(collect(config))
    assert {r.status for r in rollouts} == {Status.OK}
    assert sorted(r.reward for r in rollouts if r.reward is not None) == [0.0, 1.0]
    client = Engine(daemon.address)
    running = client.api.containers(filters={"label": "org.legatolabs.desktop=container"})
    client.close()
    # At most the one that other tests share: the pool has closed its own.
    assert len(running) <= 1


def play_reference(address: str) -> float:
    """One episode of the task, by its reference; the reward."""
    task = load_task(TASK, 3)
    desktop = make_desktop(DesktopOptions(extra={"engine": address}), 9)
    try:
        desktop.reset(task)
        desktop.wait_after_reset()
        for action in shipped_actions(task) or []:
            desktop.act(action)
            desktop.observe()
        desktop.wait_before_eval()
        return desktop.evaluate().reward
    finally:
        desktop.close()


def test_over_tcp(daemon: DaemonProcess) -> None:
    assert play_reference(daemon.tcp) == 1.0


@contextmanager
def ssh_to_here(directory: Path) -> Iterator[str]:
    """An SSH server on the loopback that takes one key, and an ``ssh`` that has it: its port."""
    sshd = shutil.which("sshd", path="/usr/sbin")
    assert sshd, "this test needs sshd: make setup installs it"
    for name in ("host", "user"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(make, check=True, timeout=60)
    port = free_port()
    os.makedirs("/run/sshd", exist_ok=True)
    server = directory / "sshd_config"
    server.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {directory}/host\n"
        f"AuthorizedKeysFile {directory}/user.pub\nPidFile none\nUsePAM no\nStrictModes no\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\n"
    )
    client = directory / "ssh_config"
    client.write_text(
        f"Host *\nIdentityFile {directory}/user\nIdentitiesOnly yes\n"
        f"UserKnownHostsFile {directory}/known\nStrictHostKeyChecking accept-new\n"
    )
    bin_ = directory / "bin"
    bin_.mkdir()
    ssh = bin_ / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {client} "$@"\n')
    ssh.chmod(0o755)
    with (directory / "sshd.log").open("wb") as log:
        process = subprocess.Popen(
            [sshd, "-D", "-e", "-f", str(server)], stdin=subprocess.DEVNULL, stderr=log
        )
    try:
        await_port(port, process)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
            yield f"ssh://root@127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.skipif(os.geteuid() != 0, reason="the SSH server lets root in")
def test_over_ssh(daemon: DaemonProcess, short_path: Path) -> None:
    with ssh_to_here(short_path) as host:
        assert play_reference(f"{host}{daemon.socket}") == 1.0
        with pytest.raises(ConfigError, match=r"no engine at|cannot be reached"):
            check_requirements(f"{host}/nowhere/docker.sock")
    with pytest.raises(ConfigError, match="ssh could not reach"):
        check_requirements(f"ssh://nobody@127.0.0.1:{free_port()}")
