"""Runs OSWorld's own Qwen agents in OSWorld's environment, with the model call taken out.

``python -m legato.desktop.osworld.agent FD`` answers, in the frames of
:mod:`legato.desktop.guest.wire`: ``start`` (an agent under an id), ``prompt`` (a screenshot in, the
agent's messages out), ``reply`` (the model's text in, pyautogui code out) and ``drop``. Images
travel once: messages name them by SHA-256, and the blob is the one that is new.

The agents come from the checkout the process runs in, or, if it has none, from the ``desktop-env``
package. Clients of model services that they import are not needed and stood in for.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.util
import logging
import math
import os
import queue
import socket
import sys
import threading
import time
from types import ModuleType
from typing import Any

from legato.desktop.guest import wire

AGENTS = {
    "qwen3_vl": ("mm_agents.qwen3vl_agent", "Qwen3VLAgent"),
    "qwen2_5_vl": ("mm_agents.qwen25vl_agent", "Qwen25VLAgent"),
}
ANSWER_S = 60.0
IDLE_S = 3600.0
_DATA_URL = "data:image/png;base64,"


class Unread(Exception):  # noqa: N818 - the agent's word on a reply, not a fault of ours
    """The agent fell over the model's reply."""


class Agent:
    """One rollout's agent. ``predict`` runs on a thread that stops where the model is called."""

    def __init__(self, kind: str, instruction: str, options: dict[str, Any]) -> None:
        module, name = AGENTS[kind]
        self._agent = getattr(importlib.import_module(module), name)(**options)
        self._agent.call_llm = self._call
        self._agent.reset(logging.getLogger("agent"))
        self._instruction = instruction
        self._asked: queue.SimpleQueue[list[dict[str, Any]]] = queue.SimpleQueue()
        self._replied: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()

    def prompt(self, png: bytes) -> tuple[list[dict[str, Any]], bytes]:
        threading.Thread(target=self._predict, args=(png,), daemon=True).start()
        messages, newest = [], b""
        for message in self._asked.get(timeout=ANSWER_S):
            parts = []
            for part in message["content"]:
                if part["type"] == "text":
                    parts.append({"text": part["text"]})
                    continue
                newest = base64.b64decode(part["image_url"]["url"].removeprefix(_DATA_URL))
                parts.append({"image": hashlib.sha256(newest).hexdigest()})
            messages.append({"role": message["role"], "parts": parts})
        return messages, newest

    def reply(self, text: str) -> list[str]:
        self._replied.put(text)
        done = self._done.get(timeout=ANSWER_S)
        if isinstance(done, Exception):
            raise Unread(f"{type(done).__name__}: {done}")
        return done

    def _predict(self, png: bytes) -> None:
        try:
            _, code = self._agent.predict(self._instruction, {"screenshot": png})
        except Exception as e:
            self._done.put(e)
        else:
            self._done.put(list(code))

    def _call(self, payload: dict[str, Any], _model: str) -> str:
        self._asked.put(payload["messages"])
        return self._replied.get()


def serve(channel: socket.socket) -> None:
    agents: dict[str, Agent] = {}
    while True:
        try:
            request, png, _ = wire.receive(channel, deadline=time.monotonic() + IDLE_S)
        except TimeoutError:
            continue
        except (OSError, ValueError):
            return
        reply, blob = dict[str, Any](), b""
        try:
            match request["op"]:
                case "start":
                    agents[request["id"]] = Agent(
                        request["agent"], request["instruction"], request["options"]
                    )
                case "prompt":
                    reply["result"], blob = agents[request["id"]].prompt(png)
                case "reply":
                    reply["result"] = agents[request["id"]].reply(request["text"])
                case "drop":
                    agents.pop(request["id"], None)
            reply.setdefault("result", None)
        except Unread as e:
            reply["error"] = {"kind": "action", "message": str(e), "transient": False}
        except Exception as e:
            said = f"OSWorld's agent does not run: {type(e).__name__}: {e}"
            reply["error"] = {"kind": "config", "message": said, "transient": False}
        wire.send(channel, reply, blob, deadline=time.monotonic() + ANSWER_S)


def stand_in() -> None:
    """For what the agents import to call a model service."""
    for name in ("backoff", "openai", "dashscope", "google.api_core.exceptions"):
        top = name.partition(".")[0]
        if name.count(".") and importlib.util.find_spec(top):
            continue
        if not name.count(".") and importlib.util.find_spec(name):
            continue
        _stub(name)
    if _absent("mm_agents.utils.qwen_vl_utils"):
        _stub("mm_agents.utils.qwen_vl_utils").smart_resize = smart_resize  # type: ignore[attr-defined]


def _absent(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        return True


def _stub(name: str) -> ModuleType:
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        partial = ".".join(parts[:depth])
        if partial in sys.modules:
            continue
        module = ModuleType(partial)
        module.__path__ = []
        module.__getattr__ = lambda attr: type(attr, (Exception,), {})  # type: ignore[method-assign]
        sys.modules[partial] = module
    module = sys.modules[name]
    if name == "backoff":
        module.on_exception = lambda *_, **__: lambda call: call  # type: ignore[attr-defined]
        module.constant = None  # type: ignore[attr-defined]
    return module


def smart_resize(
    height: int,
    width: int,
    factor: int = 28,
    min_pixels: int = 56 * 56,
    max_pixels: int = 14 * 14 * 4 * 1280,
) -> tuple[int, int]:
    """Qwen's rule for (height, width), with the limits of OSWorld's ``qwen_vl_utils``.

    Only for the ``desktop-env`` package, which lacks that module.
    """
    high = max(factor, round(height / factor) * factor)
    wide = max(factor, round(width / factor) * factor)
    if high * wide > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        high = math.floor(height / shrink / factor) * factor
        wide = math.floor(width / shrink / factor) * factor
    elif high * wide < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        high = math.ceil(height * grow / factor) * factor
        wide = math.ceil(width * grow / factor) * factor
    return high, wide


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.dup2(2, 1)  # the agents print
    if os.path.isdir("mm_agents"):
        sys.path.insert(0, os.getcwd())
    # The agents leave every prompt in ./draft of where they run.
    os.chdir(sys.argv[2])
    stand_in()
    serve(channel)


if __name__ == "__main__":
    main()
