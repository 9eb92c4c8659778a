"""Waiting in OSWorld's process: for the screen, and in place of the fixed sleeps of its code."""

from __future__ import annotations

import inspect
import json
import time
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import requests

from legato.desktop.osworld.worker.faults import Fault
from legato.desktop.osworld.worker.server import GuestServer

GUEST_TIMEOUT_S = 100.0
"""Longest wait asked of the guest at once; its server ends any command after 120 s."""
LOCKED = (
    "import json, subprocess; d = 'org.gnome.ScreenSaver'; p = '/org/gnome/ScreenSaver'\n"
    "try:\n"
    "    r = subprocess.run(['gdbus', 'call', '--session', '--dest', d, '--object-path', p,\n"
    "        '--method', d + '.GetActive'], capture_output=True, text=True, timeout=10)\n"
    "    print(json.dumps('true' in r.stdout))\n"
    "except (OSError, subprocess.TimeoutExpired):\n"
    "    print('false')\n"
)
"""Asks GNOME's screen saver whether it is on; a guest without one is never locked."""


def wait_ready(server: GuestServer, rules: dict[str, float], timeout: float) -> tuple[str, float]:
    """Wait in the guest until its screen is ready; the reason and the seconds.

    Raises :class:`Fault` if the guest cannot tell.
    """
    limits = {**rules, "timeout": min(timeout, GUEST_TIMEOUT_S)}
    answer = server.python(
        (files("legato.desktop.osworld.guest") / "ready.py").read_text(),
        json.dumps(limits),
        (files("legato.desktop.guest") / "busy.py").read_text(),
        timeout=limits["timeout"] + 30.0,
    )
    return str(answer["reason"]), float(answer["seconds"])


def check_unlocked(server: GuestServer) -> None:
    if server.python(LOCKED, timeout=30.0):
        raise Fault("env", "the guest's screen is locked")


def shorten_sleeps(browser_port: Any) -> None:
    """Let the waits of OSWorld's set-up and docker provider end when what they wait for is there.

    None gets longer. The sleeps that a task asks for stay as they are: their length is the task's.
    ``browser_port()`` is the host port of the browser's devtools.
    """
    from desktop_env.controllers import setup
    from desktop_env.providers.docker import provider

    def sleep(seconds: float) -> None:
        frame = inspect.currentframe()
        caller = frame.f_back.f_code.co_name if frame and frame.f_back else ""
        if caller.startswith("_chrome_") or caller == "_login_setup":
            until_answers(f"http://localhost:{browser_port()}/json/version", seconds)
        else:
            time.sleep(seconds)

    setup.time = SimpleNamespace(sleep=sleep)
    provider.WAIT_TIME = 0  # the container is gone when remove() returns


def until_answers(url: str, seconds: float) -> bool:
    """Return as soon as an HTTP server answers, at the latest after ``seconds``."""
    ends = time.monotonic() + seconds
    plain = requests.Session()
    while (left := ends - time.monotonic()) > 0:
        try:
            plain.get(url, timeout=max(0.1, min(left, 5.0)))
        except requests.RequestException:
            time.sleep(min(left, 0.1))
        else:
            return True
    return False
