"""Giving the trainer's weights to the vLLM server, and naming them there.

After every update the server's prefix, multimodal and encoder caches are emptied: all three hold
what older weights computed. (TRL's own modes empty the first one only.)
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import httpx
from accelerate import Accelerator
from accelerate.utils import is_peft_model

from legato.errors import ConfigError, PolicyFailure
from legato.rl.policy import KEY_VARIABLE
from legato_trl.ranks import on_main

REQUEST_S = 60.0
"""Deadline of an ordinary request, in seconds."""
LOAD_S = 600.0
"""Deadline for the server to read new weights."""
BACK_S = 600.0
"""Longest that a server which was lost is waited for."""
LOOK_S = 1.0
"""How often it is looked for."""


class Weights(Protocol):
    """A way for weights to get to the server. All processes push, or revive, together."""

    def push(self, version: str) -> None:
        """Make the server sample from the trainer's present weights, under this name.

        No request of ours may be under way. Raises :class:`~legato.errors.PolicyFailure`.
        """
        ...

    def revive(self) -> None:
        """Wait for a server that was lost; it has to be pushed to before it is used."""
        ...

    def holds(self, version: str) -> bool:
        """Whether the server still has the weights of that name: a restart loses them."""
        ...


class Server:
    """The administrative side of a vLLM server (``VLLM_SERVER_DEV_MODE=1``)."""

    def __init__(self, root: str) -> None:
        key = os.environ.get(KEY_VARIABLE, "").strip()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.root = root
        self._http = httpx.Client(base_url=root, headers=headers, timeout=REQUEST_S)

    def model(self) -> str:
        """The name it serves."""
        return str(self._ask("GET", "/v1/models")["data"][0]["id"])

    def version(self) -> str:
        """The name of the weights it holds."""
        return str(self._ask("GET", "/weight_info")["weight_version"])

    def name_weights(self, version: str) -> None:
        self._ask("POST", "/update_weight_version", json={"new_version": version})

    def load(self, checkpoint: Path) -> None:
        """Replace its weights by those of a checkpoint directory that it can read."""
        # Nothing of ours is under way; what is, belongs to attempts that were cancelled.
        self._ask("POST", "/pause", params={"mode": "abort"})
        try:
            call = {"method": "reload_weights", "kwargs": {"weights_path": str(checkpoint)}}
            self._ask("POST", "/collective_rpc", json=call, timeout=LOAD_S)
            self.empty_caches()
        finally:
            self._ask("POST", "/resume")

    def empty_caches(self) -> None:
        for cache in ("prefix", "mm", "encoder"):
            self._ask("POST", f"/reset_{cache}_cache")

    def wait_until_up(self, deadline: float = BACK_S) -> None:
        """Raises :class:`~legato.errors.PolicyFailure` if it is not there by then."""
        until = time.monotonic() + deadline
        while True:
            try:
                response = self._http.get("/health", timeout=5.0)
                if response.is_success:
                    return
                said = f"HTTP {response.status_code}"
            except httpx.TransportError as e:
                said = str(e)
            if time.monotonic() > until:
                raise PolicyFailure(
                    f"the vLLM server at {self.root} did not come back in {deadline:g} s: {said}",
                    transient=False,
                )
            time.sleep(LOOK_S)

    def _ask(self, method: str, path: str, **fields: Any) -> Any:
        try:
            response = self._http.request(method, path, **fields)
        except httpx.TransportError as e:
            raise PolicyFailure(f"the vLLM server at {self.root} does not answer: {e}") from None
        if response.status_code == 404:
            raise ConfigError(
                f"the vLLM server at {self.root} has no {path}: start it with "
                "VLLM_SERVER_DEV_MODE=1 in its environment"
            )
        if not response.is_success:
            raise PolicyFailure(f"{self.root}{path}: {response.status_code} {response.text[:300]}")
        return response.json() if response.content else None


class FileWeights:
    """By a checkpoint directory on a disk that trainer and server share. Needs no GPU."""

    def __init__(self, server: Server, accelerator: Accelerator, model: Any, folder: Path) -> None:
        self._server = server
        self._accelerator = accelerator
        self._model = model
        self._folder = folder.resolve()

    def push(self, version: str) -> None:
        bare = self._accelerator.unwrap_model(self._model)
        adapted = is_peft_model(bare)
        with merged_adapter(bare) if adapted else contextlib.nullcontext():
            state = self._accelerator.get_state_dict(self._model)
            if adapted:  # what is kept must not change when the adapter comes apart again
                state = {k: v.detach().clone() for k, v in without_adapter(state).items()}

        def give() -> None:
            whole = bare.get_base_model() if adapted else bare
            whole.save_pretrained(self._folder, state_dict=state)
            self._server.load(self._folder)
            self._server.name_weights(version)

        on_main(give)

    def revive(self) -> None:
        on_main(self._server.wait_until_up)

    def holds(self, version: str) -> bool:
        return self._server.version() == version


@contextlib.contextmanager
def merged_adapter(model: Any) -> Iterator[None]:
    """The adapter's share added to the weights below it, for a while."""
    model.merge_adapter()
    try:
        yield
    finally:
        model.unmerge_adapter()


def without_adapter(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a PEFT model whose adapter is merged, under the names of the model it adapts.

    PEFT keeps a layer it adapts as ``base_layer``, and of one it trains whole a copy for each
    adapter in ``modules_to_save``, beside the ``original_module``.
    """
    found = {}
    for name, value in state.items():
        if ".lora_" in name or ".original_module." in name:
            continue
        plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
        found[re.sub(r"\.modules_to_save\.[^.]+", "", plain)] = value
    return found


class ColocatedWeights:
    """Into the vLLM that runs inside the training processes."""

    def __init__(self, generation: Any) -> None:
        self._generation = generation

    def push(self, version: str) -> None:
        self._generation.sync_weights()
        engine = self._generation.llm.llm_engine
        engine.reset_mm_cache()
        engine.reset_encoder_cache()

    def revive(self) -> None:
        raise PolicyFailure("the vLLM inside this process failed, and cannot be restarted")

    def holds(self, version: str) -> bool:
        return True


class TrlWeights:
    """By TRL's own vLLM server mode: NCCL between GPUs."""

    def __init__(self, server: Server, generation: Any, device: Any) -> None:
        self._server = server
        self._generation = generation
        self._device = device

    def push(self, version: str) -> None:
        self._generation.sync_weights()

        def finish() -> None:
            self._server.empty_caches()
            self._server.name_weights(version)

        on_main(finish)

    def revive(self) -> None:
        def meet_again() -> None:
            self._server.wait_until_up()
            # The server that came back is another process: the old communicator leads nowhere.
            self._generation.vllm_client.init_communicator(device=self._device)

        on_main(meet_again)

    def holds(self, version: str) -> bool:
        return self._server.version() == version
