"""verl without a GPU: for development and tests on a laptop, never imported by a run on GPUs.

``VERL_PLATFORM=cpu`` in the environment turns it on. verl 0.9 knows CUDA and NPU devices only, and
vLLM's CPU build has its own ideas of what becomes of weights; each module here removes one
obstacle, and names it.
"""

from __future__ import annotations

import os

ENVIRONMENT = {
    # verl looks its training engine up by device, and none is registered for "cpu"
    "VERL_ENGINE_DEVICE": "cuda",
    # Ray hides accelerators from actors that asked for none: here "GPU" is only a name
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray runs its workers at the lowest priority: beside other work they would hardly start
    "RAY_worker_niceness": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # twenty seconds of compiling for the first request of a tiny model
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Set where nothing else is; Ray's processes inherit it."""


def enable() -> None:
    """Prepare this process. Idempotent."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from legato_verl.cpu import gloo, pageable, platform, vllm_weights

    platform.register()
    gloo.use()
    pageable.use()
    vllm_weights.keep()
