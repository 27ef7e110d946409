"""What vLLM can be asked beyond what every engine is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trimtab.config.base import Config, Number


class Vllm(Config):
    """The engine vLLM (`rollout.engine: vllm` or `vllm-server`)."""

    transfer: Literal["host", "nccl", "ipc"] = Field(
        default="host",
        description="How new weights reach it. host: through memory or a file, on any machine. nccl, ipc: between GPUs, for vllm-server.",
    )
    longest: Annotated[int, Field(strict=True, ge=2)] | None = Field(
        default=None,
        description="Most tokens of prompt and response together; left out: what the model has positions for.",
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
    verify: Annotated[int, Field(strict=True, ge=1)] = Field(
        default=1,
        description="After every how many weight updates a probe is scored on both sides. The first update is always verified.",
    )
    tolerance: Annotated[Number, Field(gt=0)] | None = Field(
        default=None,
        description="Mean difference of log-probs up to which a probe agrees; left out: 0.0001 in fp32, 0.1 in bf16.",
    )
