"""A driver in a process of its own, to be killed. ``drive.py UID MODE``; prints JSON lines.

With a UID other than ours it becomes that user first, after all imports: an interpreter in a
home directory of root may not be readable to them later.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from PIL import Image

import legato.desktop.local.requirements
from legato.desktop.actions import Action
from legato.desktop.contract import DesktopOptions
from legato.desktop.local import LocalDesktop, check_requirements, make_desktop
from tests.desktop.local.conftest import ScriptedTask

__all__ = ["legato"]


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def run_episode(desktop: LocalDesktop) -> None:
    task = ScriptedTask()
    desktop.reset(task)
    machine = task.machine
    machine.write_file("/home/user/a.txt", b"")
    machine.launch(["mousepad", "/home/user/a.txt"])
    desktop.wait_after_reset()
    desktop.act(Action(action_type="type", text="Zażółć"))
    desktop.act(Action(action_type="key", key="ctrl+s"))
    deadline = time.monotonic() + 10
    while not machine.read_file("/home/user/a.txt") and time.monotonic() < deadline:
        time.sleep(0.02)
    saved = machine.read_file("/home/user/a.txt")
    machine.launch(["chromium", "about:blank"], timeout=60)
    renderer = machine.run(["pgrep", "-f", "--", "--type=renderer"]).stdout.split()[0]
    seccomp = machine.run(["grep", "Seccomp:", f"/proc/{renderer}/status"]).stdout.split()[1]
    size = Image.fromarray(desktop.observe().rgb).size
    say(saved=saved.decode() if saved else None, seccomp=seccomp, size=size, uid=os.getuid())


def main() -> None:
    uid, mode = int(sys.argv[1]), sys.argv[2]
    if uid != os.getuid():
        Image.init()
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    check_requirements()
    desktops = [make_desktop(DesktopOptions(), i) for i in range(2)]
    # From threads that end: the sandboxes must not end with them.
    threads = [threading.Thread(target=d.prepare) for d in desktops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for desktop in desktops:
        desktop.check_health()
    keeper = desktops[0]._provider.keeper
    assert keeper is not None
    base: Path = keeper.base
    pids = [d._box.first_pid for d in desktops if d._box is not None]
    say(base=str(base), warden=keeper._process.pid, pids=pids)
    if mode == "episode":
        run_episode(desktops[0])
    elif mode == "fork":
        # A fork holds copies of all our descriptors, and lives on.
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        time.sleep(600)
    elif mode == "act":
        desktops[0].reset(ScriptedTask())
        desktops[0].act(Action(action_type="wait", seconds=60))
    elif mode == "exit":
        sys.stdin.readline()
        return  # without closing anything
    elif mode == "stop":
        sys.stdin.readline()
        os.kill(keeper._process.pid, signal.SIGSTOP)
    elif mode == "outlive":
        while keeper.alive:
            time.sleep(0.02)
        desktops[0].prepare()  # with a new warden
        desktops[0].check_health()
        assert desktops[0]._provider.keeper is not None
        say(base=str(desktops[0]._provider.keeper.base))
    for desktop in desktops:
        desktop.close()
    say(closed=True)


if __name__ == "__main__":
    main()
