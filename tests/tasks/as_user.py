"""One web task as root or as an ordinary user: ``as_user.py UID``; prints one JSON object.

With a UID other than ours it becomes that user first, after all imports: an interpreter in a
home directory of root may not be readable to them later, so confined processes get the system's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from PIL import Image

from legato.desktop.actions import Done
from legato.desktop.contract import DesktopOptions
from legato.desktop.local import check_requirements, make_desktop
from legato.tasks import load_task
from legato.tasks.qa.attacks import post
from legato.tasks.qa.stage import Stage
from legato.tasks.verifier import run_judge
from legato.tasks.web.app_server import read_log

WHO = """
import json, os
def judge(evidence):
    said = {"uid": os.getuid(), "net": os.readlink("/proc/self/ns/net")}
    return [{"name": "who", "kind": "progress", "passed": True, "detail": json.dumps(said)}]
"""


def uid_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("\nUid:\t")[1].split()[0])


def main() -> None:
    uid = int(sys.argv[1])
    if uid != os.getuid():
        Image.init()
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        sys.executable = "/usr/bin/python3"
    check_requirements()
    told: dict[str, object] = {"driver": os.getuid(), "net": os.readlink("/proc/self/ns/net")}
    with tempfile.TemporaryDirectory() as folder:
        judge = Path(folder, "who.py")
        judge.write_text(WHO)
        told["judge"] = json.loads(run_judge(judge, {})[0].detail)
    desktop = make_desktop(DesktopOptions(), 0)
    try:
        stage = Stage(desktop, load_task("settings_tabs", 1))
        machine = stage.start()
        score = stage.verdict(stage.task.reference_actions(machine))
        told["solved"] = score.reward
        requests = [
            e["request"] for e in read_log(machine.scratch / "app")[0] if e["event"] == "do"
        ]
        machine = stage.start()
        app = machine.scratch / "app"
        look = machine.run(["/bin/sh", "-c", f"cat {app}/* {app}; ls {app}; ps -ef"])
        told["seen"] = "settings" in look.stdout or "confined" in look.stdout
        server = next(r for r in machine._owned)._process.pid  # type: ignore[attr-defined]
        told["server"] = uid_of(server)
        told["agent"] = uid_of(desktop._box.first_pid)  # type: ignore[union-attr]
        told["answers"] = post(machine, "", requests)
        told["forged"] = stage.verdict([Done()]).reward
    finally:
        desktop.close()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
