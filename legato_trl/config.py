"""What a user decides: TRL's own fields, and the few that say which tasks run on which desktops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from trl import GRPOConfig

from legato.errors import ConfigError
from legato.rl.config import DesktopConfig, HarnessConfig, RolloutConfig, SamplingConfig
from legato.rl.policy import PolicyConfig
from legato.rl.settings import Settings, build

WeightSync = Literal["trl", "file"]

_UNTOUCHED = {
    # an advantage other than the driver's
    "scale_rewards": "advantages are scaled within their group",
    "reward_weights": "the verdict is the only reward",
    "multi_objective_aggregation": "the verdict is the only reward",
    "mask_truncated_completions": "a rollout that hit a limit is graded, and counts",
    # a distribution other than the one the trainer computes logprobs of
    "top_p": "the trainer's logprobs are of the whole vocabulary",
    "top_k": "the trainer's logprobs are of the whole vocabulary",
    "min_p": "the trainer's logprobs are of the whole vocabulary",
    "repetition_penalty": "the trainer's logprobs know no penalty",
    "generation_kwargs": "sampling is temperature, max_completion_length and banned_tokens",
    "vllm_structured_outputs_regex": "the trainer's logprobs know no grammar",
    # what the harness or the driver does
    "chat_template_kwargs": "the harness renders prompts; it has harness options",
    "max_tool_calling_iterations": "max_turns limits a rollout",
    "cache_implementation": "rollouts are sampled by vLLM",
    "use_transformers_continuous_batching": "rollouts are sampled by vLLM",
    "transformers_continuous_batching_config": "rollouts are sampled by vLLM",
    "vllm_enable_sleep_mode": "the desktops' policy stays awake",
    "remove_unused_columns": "the dataset's task_id column says which task to run",
}
"""Fields of ``GRPOConfig`` that must keep their default, and why."""


@dataclass
class LegatoGRPOConfig(GRPOConfig):
    """``GRPOConfig`` for desktop rollouts.

    ``num_generations`` is the group, ``max_completion_length`` the longest reply of one turn in
    tokens, ``seed`` also seeds every request. The server's address is ``vllm_server_base_url``.
    Raises :class:`~legato.errors.ConfigError` naming the field, before anything is started.
    """

    _VALID_DICT_FIELDS = [*GRPOConfig._VALID_DICT_FIELDS, "desktop", "harness"]  # noqa: RUF012

    use_vllm: bool = field(default=True, metadata={"help": "Must stay true."})
    vllm_mode: str = field(
        default="server", metadata={"help": "server, or colocate: vLLM inside the processes."}
    )
    max_completion_length: int = field(
        default=512, metadata={"help": "Longest reply of one turn, in tokens."}
    )
    tasks: str | None = field(
        default=None, metadata={"help": "A tasks.json; each entry is one prompt of the dataset."}
    )
    infeasible: bool = field(
        default=True,
        metadata={"help": "Train on OSWorld's tasks that cannot be done, too: see README.md."},
    )
    suite: str | None = field(
        default=None,
        metadata={"help": "Instead of tasks: a suite of seeded tasks, or one of it, SUITE/TASK."},
    )
    seeds: int = field(
        default=1000, metadata={"help": "Variants of each of the suite's tasks to train on."}
    )
    eval_seeds: int = field(
        default=0, metadata={"help": "Further, held-out variants of each, for evaluation."}
    )
    desktop: dict[str, Any] | str = field(
        default="local",
        metadata={"help": "A backend, or a mapping of legato.rl.DesktopConfig's fields."},
    )
    harness: dict[str, Any] | str = field(
        default="qwen3_vl",
        metadata={"help": "A harness, or a mapping of legato.rl.HarnessConfig's fields."},
    )
    desktops: int = field(default=4, metadata={"help": "Desktops that work at the same time."})
    oversample: float = field(
        default=0.0, metadata={"help": "Extra attempts per group, a fraction of num_generations."}
    )
    max_inflight: int | None = field(
        default=None, metadata={"help": "Cap on model requests at any time, over all desktops."}
    )
    max_turns: int = field(default=15, metadata={"help": "Policy calls per rollout."})
    rollout_timeout: float | None = field(
        default=None, metadata={"help": "Seconds per rollout; one that hits it is graded."}
    )
    step_timeout: float = field(default=60.0, metadata={"help": "Seconds per policy call."})
    env_retries: int = field(
        default=1, metadata={"help": "Further desktops for an attempt after a desktop failure."}
    )
    min_group: int = field(
        default=2, metadata={"help": "Verdicts below which a group is not trained on."}
    )
    banned_tokens: list[str] = field(
        default_factory=lambda: list(SamplingConfig().banned_tokens),
        metadata={"help": "Special tokens that are never sampled."},
    )
    rollout_dir: str | None = field(
        default=None, metadata={"help": "Where rollouts are recorded. [output_dir/rollouts]"}
    )
    probe: bool = field(
        default=True,
        metadata={"help": "Ask the server what it can do first; refuse one not fit to train on."},
    )
    sheet_steps: int = field(
        default=10,
        metadata={
            "help": "Steps between two contact sheets of rollouts in tensorboard, wandb or "
            "trackio, whichever report_to names; 0: none."
        },
    )
    live: bool = field(
        default=True,
        metadata={
            "help": "Show what every desktop is doing instead of tqdm's bar; where output is no "
            "terminal, a line now and then."
        },
    )
    weight_sync: str = field(
        default="trl",
        metadata={
            "help": "trl: by TRL's own vllm_mode, on GPUs. file: by files that a server on this "
            "machine reads, which works on a CPU, too."
        },
    )

    def __post_init__(self) -> None:
        if self.weight_sync not in get_args(WeightSync):
            raise ConfigError(
                f"weight_sync must be one of {', '.join(get_args(WeightSync))}, "
                f"got {self.weight_sync!r}"
            )
        if not self.use_vllm:
            raise ConfigError("use_vllm must be true: rollouts are sampled by a vLLM server")
        if (self.tasks is None) == (self.suite is None):
            raise ConfigError("give either tasks (a tasks.json) or suite (seeded tasks)")
        if not isinstance(self.num_generations, int) or self.num_generations < 2:
            raise ConfigError(
                f"num_generations must be at least 2, got {self.num_generations!r}: it is the "
                "group that advantages are taken over"
            )
        if self.min_group > self.num_generations:
            raise ConfigError(
                f"min_group ({self.min_group}) must not exceed num_generations "
                f"({self.num_generations}): no group would ever be trained on"
            )
        if not self.temperature > 0:
            raise ConfigError(f"temperature must be above 0 to explore, got {self.temperature!r}")
        least_of = {
            "seeds": 1,
            "eval_seeds": 0,
            "max_turns": 1,
            "max_completion_length": 1,
            "sheet_steps": 0,
        }
        for name, least in least_of.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name} must be a whole number of at least {least}")
        self._refuse_what_would_be_ignored()
        if self.vllm_mode == "colocate":
            self._refuse_what_needs_a_server()
        self._settings("http://server/v1", "model", None)
        super().__post_init__()

    @property
    def record_dir(self) -> Path:
        """Run directory of the rollouts that are trained on."""
        return Path(self.rollout_dir or Path(self.output_dir or "trainer_output") / "rollouts")

    @property
    def server(self) -> str:
        """Root of the vLLM server, without ``/v1``."""
        url = self.vllm_server_base_url or f"http://{self.vllm_server_host}:{self.vllm_server_port}"
        return url.rstrip("/").removesuffix("/v1")

    @property
    def colocated(self) -> bool:
        """vLLM runs inside the training processes."""
        return self.weight_sync == "trl" and self.vllm_mode == "colocate"

    def settings(self, model: str, tokenizer: str) -> Settings:
        """The driver's settings, for the served name ``model`` and a tokenizer's place."""
        return self._settings(f"{self.server}/v1", model, tokenizer)

    def _settings(self, url: str, model: str, tokenizer: str | None) -> Settings:
        return Settings(
            policy=PolicyConfig(
                url,
                model,
                tokenizer=tokenizer,
                step_timeout=self.step_timeout,
                max_inflight=self.max_inflight,
            ),
            sampling=SamplingConfig(
                temperature=self.temperature,
                max_tokens=self.max_completion_length,
                banned_tokens=tuple(self.banned_tokens),
            ),
            desktop=_named(DesktopConfig, "backend", self.desktop, "desktop"),
            harness=_named(HarnessConfig, "name", self.harness, "harness"),
            rollout=build(
                RolloutConfig,
                {
                    "desktops": self.desktops,
                    "group": self.num_generations,
                    "oversample": self.oversample,
                    "max_steps": self.max_turns,
                    "rollout_timeout": self.rollout_timeout,
                    "env_retries": self.env_retries,
                    "min_group": self.min_group,
                    "seed": self.seed,
                    "infeasible": self.infeasible,
                },
                "rollout",
            ),
        )

    def _refuse_what_would_be_ignored(self) -> None:
        defaults = {f.name: f.default for f in fields(GRPOConfig)}
        same = {"scale_rewards": ("group", True), "remove_unused_columns": (False, None)}
        for name, why in _UNTOUCHED.items():
            if getattr(self, name) not in same.get(name, (defaults[name],)):
                raise ConfigError(f"{name} must be left at its default: {why}")

    def _refuse_what_needs_a_server(self) -> None:
        if self.weight_sync == "file":
            raise ConfigError(
                "weight_sync=file gives weights to a server; vllm_mode=colocate has none"
            )
        defaults = {f.name: f.default for f in fields(LegatoGRPOConfig)}
        for name in ("step_timeout", "max_inflight"):
            if getattr(self, name) != defaults[name]:
                raise ConfigError(
                    f"{name} is about requests to a server; leave it out with vllm_mode=colocate, "
                    "which answers in rounds, one request of each desktop at the most"
                )


def _named(cls: type[Any], key: str, value: Mapping[str, Any] | str, where: str) -> Any:
    """A settings dataclass from its mapping, or from the one name that matters most."""
    if isinstance(value, str):
        return build(cls, {key: value}, where)
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a name or a mapping, got {value!r}")
    return build(cls, value, where)
