"""What the agent in a container has: its own user, no rights, no network, bounded resources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from legato.desktop.actions import Action
from legato.desktop.contract import Machine
from legato.desktop.docker.desktop import DockerDesktop
from legato.desktop.docker.engine import Engine
from tests.desktop.local.conftest import ScriptedTask

pytestmark = pytest.mark.desktop


@dataclass
class LockedTask(ScriptedTask):
    lockdown: bool = True


def test_the_lockdown_holds_and_the_browser_keeps_its_sandbox(desktop: DockerDesktop) -> None:
    task = LockedTask()
    desktop.reset(task)  # raises unless every step of the probe holds
    machine = task.machine
    machine.launch(["chromium", "about:blank"], timeout=90)
    machine.check_lockdown()  # type: ignore[attr-defined]
    renderer = machine.run(["pgrep", "-f", "--", "--type=renderer"]).stdout.split()[0]
    status = machine.run(["cat", f"/proc/{renderer}/status"]).stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert len(fields["NSpid"].split()) > 1, "the renderer has no pid namespace of its own"
    assert int(fields["Seccomp_filters"]) > 1, "the renderer has only the container's filter"
    desktop.act(Action(action_type="key", key="ctrl+t"))


def test_rights(machine: Machine) -> None:
    assert machine.run(["id", "-u"]).stdout == "1000\n"
    status = machine.run(["cat", "/proc/self/status"]).stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"
    assert {int(fields[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (
        machine.run(["touch", "/usr/x", "/opt/legato/x", "/etc/x"]).stderr.count("Read-only") == 3
    )
    for secret in ("fd/0", "mem", "environ", "root"):
        assert machine.run(["sh", "-c", f"exec 3< /proc/1/{secret}"]).returncode != 0


@pytest.mark.parametrize(
    "call",
    [
        # To the host of the virtual machine, past every network namespace.
        pytest.param("s.socket(40, s.SOCK_STREAM)", id="vsock"),
        pytest.param("s.socket(38, s.SOCK_SEQPACKET)", id="kernel crypto"),
        pytest.param("l.syscall(321, 0, 0, 0) and e()", id="bpf"),
        pytest.param("l.syscall(425, 1, 0) and e()", id="io_uring_setup"),
        pytest.param("l.syscall(250, 0, 0, 0) and e()", id="keyctl"),
    ],
)
def test_calls_that_reach_the_kernel_itself_are_refused(call: str, machine: Machine) -> None:
    script = (
        "import socket as s, ctypes, os\nl = ctypes.CDLL(None, use_errno=True)\n"
        "def e(): raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n"
    )
    done = machine.run(["python3", "-c", script + call])
    assert "PermissionError: [Errno 1]" in done.stderr


def test_the_container_is_made_as_it_says(desktop: DockerDesktop, engine: Engine) -> None:
    desktop.check_health()
    (mine,) = [c for c in containers(engine) if c["Names"] == [f"/{desktop._box.name}"]]  # type: ignore[union-attr]
    host = engine.api.inspect_container(mine["Id"])["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert host["CapDrop"] == ["ALL"]
    assert host["ReadonlyRootfs"]
    assert host["Memory"] == host["MemorySwap"] == 3072 * 2**20
    assert host["PidsLimit"] == 1024
    assert host["NanoCpus"] == 2e9
    assert not host["Privileged"]
    assert not host["Binds"]
    assert "no-new-privileges" in host["SecurityOpt"]


BUSY = """
import os, time
start, parent = time.monotonic(), os.fork()
while time.monotonic() < start + 2:
    pass
if parent:
    os.wait()
    print(sum(os.times()[:4]) / (time.monotonic() - start))
"""


def containers(engine: Engine) -> list[dict[str, object]]:
    found: list[dict[str, object]] = engine.api.containers(all=True)
    return found


def test_only_what_a_reset_empties_can_be_written_to(machine: Machine) -> None:
    find = ["find", "/", *PRUNED, "-type", "d", "-writable", "-print", "-prune"]
    found = machine.run(find).stdout.split()
    assert set(found) == {
        "/home/user",
        "/run/user/1000",
        "/run/desk",
        "/tmp",
        "/dev/shm",
        "/dev/mqueue",
    }


PRUNED = ("-path", "/proc", "-prune", "-o")


def test_memory_and_processes_are_bounded(own_desktop: Callable[..., DockerDesktop]) -> None:
    desktop = own_desktop(memory_mib=512, max_processes=128, disk_mib=64, cpus=0.5)
    task = ScriptedTask()
    desktop.reset(task)
    taken = task.machine.run(["python3", "-c", BUSY])
    assert float(taken.stdout) < 0.75, "two that want a processor each have half of one"
    eaten = task.machine.run(["python3", "-c", "x = b'x' * (700 << 20); print(len(x))"])
    assert eaten.returncode == -9
    filled = task.machine.run(["sh", "-c", "head -c 100M /dev/zero > ~/full"])
    assert "No space left" in filled.stderr
    bomb = "for i in $(seq 400); do sleep 30 & done; wait"
    refused = task.machine.run(["bash", "-c", bomb], timeout=120)
    assert "Resource temporarily unavailable" in refused.stderr
    desktop.prepare()  # in the same container, or a new one
    desktop.reset(ScriptedTask())
    desktop.check_health()
