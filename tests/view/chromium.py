"""A headless Chromium, driven over its devtools pipe: opens pages, runs scripts, takes pictures."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEADLINE_S = 30.0


class Browser:
    """One page of one browser."""

    def __init__(self, process: subprocess.Popen[bytes], commands: int, answers: int) -> None:
        self._process = process
        self._commands = commands
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._last = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        """Everything the page reported: exceptions, console messages, requests."""
        threading.Thread(target=self._read, args=(answers,), daemon=True).start()
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log", "Performance"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Run one command of the DevTools protocol and return its result."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self._answers.get(timeout=max(0.1, deadline - time.monotonic()))
            if answer.get("id") == self._last:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            if "method" in answer:
                self.events.append(answer)

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window size in pixels, and which colours the user prefers."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def open(self, url: str) -> None:
        """Go to an address; what a page of the viewer shows is there once ``main`` has it."""
        self.send("Page.navigate", url=url)

    def eval(self, script: str) -> Any:
        """The value of an expression, promises awaited."""
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.eval(f"!!({script})"):
            assert time.monotonic() < deadline, f"never true: {script}\n{self.text()[:2000]}"
            time.sleep(0.05)

    def text(self) -> str:
        return str(self.eval("document.body ? document.body.innerText : ''"))

    def press(self, key: str) -> None:
        """Press and release a key of one character, or one named as in ``KeyboardEvent.key``."""
        codes = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Enter": 13}
        text = {"text": key} if len(key) == 1 else {}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A screenshot of the window, or of the whole page."""
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(data["data"]))

    def complaints(self) -> list[str]:
        """Exceptions, errors on the console and refused loads, since the start."""
        self.eval("1")  # what was reported until now has been read after this
        found = [e for e in self.events if e["method"] == "Runtime.exceptionThrown"]
        logged = [
            e
            for e in self.events
            if e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error"
        ]
        return [json.dumps(e["params"]) for e in (*found, *logged)]

    def requests(self) -> list[str]:
        """Addresses that the page asked for, in order."""
        return [
            e["params"]["request"]["url"]
            for e in self.events
            if e["method"] == "Network.requestWillBeSent"
        ]

    def memory(self) -> int:
        """Bytes of physical memory that the browser's page processes hold."""
        total = 0
        for pid in _descendants(self._process.pid):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"--type=renderer" in command:
                    status = Path(f"/proc/{pid}/smaps_rollup").read_text()
                    total += int(status.split("Pss:")[1].split()[0]) * 1024
            except (FileNotFoundError, ProcessLookupError):
                continue
        return total

    def _read(self, fd: int) -> None:
        pending = b""
        with open(fd, "rb", buffering=0) as pipe:
            while part := pipe.read(1 << 16):
                *whole, pending = (pending + part).split(b"\0")
                for message in whole:
                    self._answers.put(json.loads(message))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a profile of its own; gone with everything it started at the end."""
    program = shutil.which("chromium")
    assert program, "these tests need Debian's chromium"
    with tempfile.TemporaryDirectory(prefix="legato-chromium-") as profile:
        theirs_in, ours_out = _pipe()
        ours_in, theirs_out = _pipe()

        def connect() -> None:
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        process = subprocess.Popen(
            [
                program,
                "--headless=new",
                "--remote-debugging-pipe",
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
                "--no-first-run",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                f"--user-data-dir={profile}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=connect,
            pass_fds=(3, 4),
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(process, ours_out, ours_in)
        finally:
            os.close(ours_out)
            try:
                process.wait(10)  # a browser whose pipe is gone ends by itself
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


def _pipe() -> tuple[int, int]:
    """A pipe, its ends above the numbers 3 and 4 that the browser is given."""
    low = os.pipe()
    ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in low]
    for fd in low:
        os.close(fd)
    return ends[0], ends[1]


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found
