"""How samples are made, by what engine, on which machines, and how old they may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trimtab.config.base import Config, Count, Number, Positive, Share, Whole
from trimtab.errors import ConfigError


class Vllm(Config):
    """The engine vLLM (`rollout.engine: vllm` or `vllm-server`)."""

    transfer: Literal["host", "nccl", "ipc"] = Field(
        default="host",
        description="How new weights reach it. host: through memory or a file, on any machine. nccl, ipc: between GPUs, for vllm-server.",
    )
    cache: Annotated[Number, Field(gt=0)] = Field(
        default=1.0, description="GB for keys and values, on a CPU, of each engine."
    )
    gpu_share: Annotated[Number, Field(gt=0, le=1)] = Field(
        default=0.9, description="Share of a GPU's memory that an engine takes."
    )
    tensor_parallel: Annotated[int, Field(strict=True, ge=1)] = Field(
        default=1, description="GPUs over which one engine is split."
    )
    graphs: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="Whether vLLM compiles the model and captures CUDA graphs: slower to start, faster after.",
    )


class Sglang(Config):
    """The engine SGLang (`rollout.engine: sglang-server`)."""

    python: str | None = Field(
        default=None,
        description="The interpreter of SGLang's own environment, such as `.venv-sglang/bin/python`, where the run starts the servers.",
    )
    options: Mapping[str, str | int | float | bool] = Field(
        default={},
        description="Further options of servers that the run starts, as SGLang's command line calls them, such as `tp-size: 2`.",
    )


Amount = Annotated[Number, Field(ge=0)]


class Ray(Config):
    """Samplers on a cluster (`backend: ray`)."""

    address: str | None = Field(
        default=None,
        description="Of a running cluster, HOST:PORT or `auto`. If not set: the run starts one on this machine, and ends it.",
    )
    cpus: Amount = Field(default=1.0, description="CPUs that Ray sets aside for a sampler.")
    gpus: Amount = Field(default=0.0, description="GPUs that Ray sets aside for a sampler, and lets it see.")
    resources: Mapping[str, Amount] = Field(
        default={}, description="Further resources that the node of a sampler has to have, such as `big: 1`."
    )
    verifiers: Annotated[int, Field(strict=True, ge=0)] = Field(
        default=0,
        description="Actors of one CPU that score responses, each one group at a time, with the verifiers' processes on its own node. "
        "0: `task.workers` on the learner's machine.",
    )
    store: Annotated[Number, Field(gt=0)] | None = Field(
        default=None,
        description="GB of shared memory for weights and results, on a cluster that the run starts. If not set: what Ray takes.",
    )


Precision = Literal["fp32", "bf16", "fp8", "int8", "int4"]
KvCache = Literal["auto", "fp8"]


class Rollout(Config):
    """How samples are made, and how old they may be."""

    groups: Count = Field(default=16, description="Prompts per learner step.")
    samples: Count = Field(default=8, description="Responses per prompt.")
    max_tokens: Count | None = Field(
        default=None,
        description="Longest response, replies of the environment included. If not set: what the task needs.",
    )
    temperature: Positive = Field(default=1.0, description="Of sampling and of every log-prob the learner works out.")
    top_k: Count | None = Field(default=None, description="Sample from the k likeliest tokens only.")
    top_p: Share | None = Field(
        default=None, description="Sample from the likeliest tokens that hold this probability."
    )
    head: Literal["none", "mask", "top-k"] = Field(
        default="mask",
        description="What is recorded of the distribution that each token was drawn from. mask: where top_k or top_p cuts, the ids that "
        "were left, and the learner's log-probs run over the same ids, so that a ratio compares policies and not what the cut kept. "
        "top-k: the `head_size` likeliest ids with their log-probs, for score centering and gates over the head. none: nothing.",
    )
    head_size: Count = Field(default=128, description="How many of the likeliest ids are recorded (head top-k).")
    engine: Literal["hf", "vllm", "vllm-server", "sglang-server"] = Field(
        default="hf",
        description="What samples. hf: transformers, in the sampler. vllm: vLLM, in the sampler. vllm-server, sglang-server: servers of "
        "vLLM or SGLang, started by the run or at `servers`.",
    )
    servers: tuple[str, ...] = Field(
        default=(),
        description="Addresses of running servers (vllm-server, sglang-server); none: `samplers` of them are started.",
    )
    longest: Annotated[int, Field(strict=True, ge=2)] | None = Field(
        default=None,
        description="Most tokens of prompt and response together that vLLM or SGLang is built for; left out: what the model has "
        "positions for.",
    )
    verify: Annotated[int, Field(strict=True, ge=1)] = Field(
        default=1,
        description="After every how many weight updates of vLLM or SGLang a probe is scored on both sides. The first update is always "
        "verified.",
    )
    tolerance: Annotated[Number, Field(gt=0)] | None = Field(
        default=None,
        description="Mean difference of log-probs up to which a probe agrees; left out: 0.0001 in fp32, 0.1 in bf16.",
    )
    vllm: Vllm = Field(default=Vllm(), description="Settings of vLLM, where it is the engine.")
    sglang: Sglang = Field(default=Sglang(), description="Settings of SGLang, where it is the engine.")
    precision: Precision = Field(default="fp32", description="Number type of the sampler's weights.")
    kv_cache: KvCache = Field(
        default="auto",
        description="How keys and values wait for later tokens (engine hf). auto: as they were worked out. fp8: rounded to 8-bit floats, "
        "e4m3 with scale 1.",
    )
    max_staleness: Whole = Field(
        default=2, description="η: no trained sequence was begun more than so many versions ago. 0: synchronous."
    )
    late: Literal["drop", "train"] = Field(
        default="drop", description="What happens to a group older than that when its turn comes."
    )
    max_dropped: Share = Field(
        default=0.02,
        description="Share of groups that may be dropped as late. Before there are more, the learner waits for those that would be late "
        "after its next step. 1: it never waits.",
    )
    in_flight: Literal["finish", "keep_cache", "recompute"] = Field(
        default="keep_cache",
        description="New weights while a response is half done: finish it first; go on with the cache; or recompute the cache.",
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda|cuda:\d+)$",
        description="Where the engine hf samples: cpu, cuda, cuda:N; auto: a GPU if torch can use one. Samplers of backend local take "
        "the GPUs in turn, those that no learner rank has first.",
    )
    slots: Count = Field(default=128, description="Responses sampled side by side in one sampler.")
    samplers: Count = Field(default=1, description="Sampler processes (backend local) or actors (backend ray).")

    @model_validator(mode="before")
    @classmethod
    def _from_vllm(cls, settings: Any) -> Any:
        """`vllm.longest`, `vllm.verify` and `vllm.tolerance`, as they were called while vLLM was the only such engine."""
        vllm = settings.get("vllm") if isinstance(settings, Mapping) else None
        if not isinstance(vllm, Mapping):
            return settings
        former = {name: value for name, value in vllm.items() if name in ("longest", "verify", "tolerance")}
        rest = {name: value for name, value in vllm.items() if name not in former}
        twice = next((name for name in former if settings.get(name, former[name]) != former[name]), None)
        if twice is not None:
            raise ConfigError(
                f"Rollout needs {twice} once, got {settings[twice]} and vllm.{twice} {former[twice]}. Drop the latter."
            )
        return {**settings, **former, "vllm": rest}

    @model_validator(mode="after")
    def _possible(self) -> Rollout:
        if self.head == "top-k" and self.is_cut:
            raise ConfigError(
                "rollout.head top-k needs sampling from the whole vocabulary, got top_k or top_p beside it. Set head to mask: it holds "
                "every id that could be drawn, so that nothing is left to a tail."
            )
        if self.kv_cache != "auto" and self.engine != "hf":
            raise ConfigError(
                f"rollout.kv_cache {self.kv_cache} needs rollout.engine hf, got {self.engine}. Set it to auto, or the engine to hf."
            )
        if self.servers and not self.engine.endswith("-server"):
            raise ConfigError(
                f"rollout.servers needs rollout.engine vllm-server or sglang-server, got {self.engine}. Set it, or drop them."
            )
        return self

    @property
    def is_cut(self) -> bool:
        """Whether top_k or top_p takes ids away."""
        return self.top_k is not None or (self.top_p is not None and self.top_p < 1)
