"""What the agent's programs cannot do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from legato.desktop.contract import Machine
from legato.desktop.local import LocalDesktop
from tests.desktop.local.conftest import ScriptedTask

pytestmark = pytest.mark.desktop


def sh(machine: Machine, script: str, timeout: float = 30) -> str:
    done = machine.run(["bash", "-c", f"exec 2>&1; {script}"], timeout=timeout)
    return done.stdout


def test_no_network_but_loopback(machine: Machine) -> None:
    assert sh(
        machine, "ls /sys/class/net 2>/dev/null; cut -d: -f1 /proc/net/dev | tail -n +3"
    ).split() == ["lo"]
    code = "import socket; socket.create_connection(('192.0.2.1', 80), 2)"
    assert "unreachable" in sh(machine, f'python3 -c "{code}"')


def test_no_privileges(machine: Machine) -> None:
    status = sh(machine, "cat /proc/self/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["NoNewPrivs"] == "1"
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[name], 16) == 0
    assert fields["Uid"].split() == ["1000"] * 4


def test_the_hosts_user_is_not_root(shared_desktop: LocalDesktop, machine: Machine) -> None:
    assert shared_desktop._box is not None
    owner = Path(f"/proc/{shared_desktop._box.first_pid}/status").read_text()
    uid = int(owner.split("Uid:\t")[1].split()[0])
    assert uid != 0


def test_only_its_own_processes_and_files_are_seen(machine: Machine, tmp_path: Path) -> None:
    assert sh(machine, f"ls {tmp_path} {Path(__file__).parent} /root").count("No such file") == 3
    seen = sh(machine, "ps -eo comm=").split()
    own = {"python3", "Xvfb", "bwrap", "openbox", "tint2", "dbus-daemon", "ps", "bash"}
    assert set(seen) <= own
    names = sh(machine, "ls /")
    assert set(names.split()) <= {
        "bin",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "opt",
        "proc",
        "run",
        "sbin",
        "tmp",
        "usr",
        "var",
    }


def test_nothing_but_its_own_places_can_be_written(machine: Machine) -> None:
    out = sh(
        machine,
        "for d in / /usr /etc /dev /opt /opt/legato /var /run /home; do "
        "touch $d/x 2>/dev/null && echo wrote $d; done; "
        "for d in ~ /tmp /dev/shm /run/user/1000; do touch $d/x && echo ok; done",
    )
    assert out.split() == ["ok"] * 4


def test_the_guest_program_is_out_of_reach(machine: Machine) -> None:
    out = sh(
        machine,
        "kill -9 1; kill -STOP 1; cat /proc/1/environ; ls /proc/1/fd; "
        "cat /proc/1/maps; sleep 0.1; ps -o state= -p 1",
    )
    assert out.split()[-1] == "S"
    assert out.count("Permission denied") >= 3
    attach = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True);"
        "print(libc.ptrace(16, 1, 0, 0), ctypes.get_errno())"
    )
    assert sh(machine, f'python3 -c "{attach}"').split() == ["-1", "1"]


def test_the_driver_is_not_to_be_had_from_inside(machine: Machine) -> None:
    """The control socket has no name inside, abstract or not."""
    names = sh(machine, "cat /proc/net/unix | awk '{print $8}' | sort -u")
    assert "control" not in names
    assert sh(machine, "find / -name 'control' -type s 2>/dev/null") == ""


def test_the_screens_memory_cannot_be_cut_short(
    shared_desktop: LocalDesktop, machine: Machine
) -> None:
    cut = (
        "import os, glob\n"
        "pid = next(p for p in os.listdir('/proc') if p.isdigit() "
        "and open(f'/proc/{p}/comm').read() == 'Xvfb\\n')\n"
        "tried = 0\n"
        "for fd in glob.glob(f'/proc/{pid}/fd/*'):\n"
        "    if 'memfd:screen' in os.readlink(fd):\n"
        "        tried += 1\n"
        "        try: os.truncate(fd, 0); print('cut')\n"
        "        except PermissionError: pass\n"
        "print('tried', tried > 0)\n"
    )
    machine.write_file("/tmp/cut.py", cut.encode())
    assert sh(machine, "python3 /tmp/cut.py") == "tried True\n"
    assert shared_desktop.observe().width == 1280


def test_a_fork_bomb_is_bounded(shared_desktop: LocalDesktop, machine: Machine) -> None:
    machine.launch(["bash", "-c", "f() { f | f & }; f; sleep 100"], wait_window=False)
    machine.run(["sleep", "2"])
    # Threads count as well; ours and a few to spare are not the agent's.
    count = len(sh(machine, "ls -d /proc/[0-9]*").split())
    assert 300 < count < 1200
    shared_desktop.prepare()
    task = ScriptedTask()
    shared_desktop.reset(task)
    assert len(sh(task.machine, "ls -d /proc/[0-9]*").split()) < 20


def test_disks_are_bounded(own_desktop: Callable[..., LocalDesktop]) -> None:
    desktop = own_desktop(extra={"disk_mib": 16})
    task = ScriptedTask()
    desktop.reset(task)
    for place in ("/home/user", "/tmp", "/dev/shm"):
        out = sh(task.machine, f"head -c 64M /dev/zero > {place}/big; stat -c %s {place}/big")
        assert "No space left" in out
        assert int(out.split()[-1]) <= 16 * 2**20
    desktop.reset(ScriptedTask())  # a full disk does not stand in its way
    desktop.check_health()


def test_chromium_keeps_its_own_sandbox(machine: Machine) -> None:
    machine.launch(["chromium", "about:blank"], timeout=60)
    deadline = time.monotonic() + 30
    while set(renderers := renderer_fields(machine, "Seccomp")) != {"2"}:  # a filter is on
        assert time.monotonic() < deadline, renderers  # one that was just forked has none yet
    depths = [len(pids.split()) for pids in renderer_fields(machine, "NSpid")]
    assert min(depths) >= 2  # in process namespaces below the desktop's
    assert "--no-sandbox" not in sh(machine, "ps -eo args")


def renderer_fields(machine: Machine, name: str) -> list[str]:
    """A field of every renderer's status, of those that are still there."""
    renderers = machine.run(["pgrep", "-f", "--", "--type=renderer"]).stdout.split()
    statuses = [f"/proc/{pid}/status" for pid in renderers]
    found = machine.run(["grep", "-h", f"^{name}:", "/dev/null", *statuses]).stdout
    return [line.split(":")[1].strip() for line in found.splitlines()]


def test_agents_are_told_apart_on_the_host(own_desktop: Callable[..., LocalDesktop]) -> None:
    """Two desktops of root run as two users, so one cannot signal or trace the other."""
    if os.getuid() != 0:
        pytest.skip("an ordinary user's desktops all run as that user, in separate namespaces")
    uids = set()
    for _ in range(2):
        desktop = own_desktop()
        desktop.prepare()
        assert desktop._box is not None
        status = Path(f"/proc/{desktop._box.first_pid}/status").read_text()
        uids.add(status.split("Uid:\t")[1].split()[0])
    assert len(uids) == 2
    assert "0" not in uids
