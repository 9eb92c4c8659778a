"""A CPU as one of verl's platforms: one device, whose memory nobody counts."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

MEMORY = 1 << 34
"""Bytes that the device pretends to have."""


def register() -> None:
    """As ``VERL_PLATFORM=cpu``; the decorator below did it."""


def _device_module() -> types.ModuleType:
    """What ``torch.cuda`` is to a GPU."""
    module: Any = types.ModuleType("torch_cpu_device")
    for name in ("set_device", "synchronize", "empty_cache", "ipc_collect"):
        setattr(module, name, _nothing)
    for name in ("memory_allocated", "memory_reserved"):
        setattr(module, name, _zero)
        setattr(module, f"max_{name}", _zero)
    module.reset_peak_memory_stats = _nothing
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: "cpu"
    module.manual_seed = module.manual_seed_all = torch.manual_seed
    module.get_rng_state = lambda *_, **__: torch.get_rng_state()
    module.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    module.mem_get_info = lambda *_, **__: (MEMORY, MEMORY)
    module.get_device_name = lambda *_, **__: "cpu"
    return module  # type: ignore[no-any-return]


def _nothing(*_: Any, **__: Any) -> None:
    return


def _zero(*_: Any, **__: Any) -> int:
    return 0


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = "cpu"
    vendor_name = "cpu"
    _module = _device_module()

    @property
    def device_module(self) -> Any:
        return self._module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # never found by itself

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: Any) -> None:
        return

    def synchronize(self, device_index: Any = None) -> None:
        return

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: Any) -> None:
        return

    def empty_cache(self) -> None:
        return

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        return

    def profiler_stop(self) -> None:
        return

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None
