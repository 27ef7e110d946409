"""How the policy is trained on a batch: optimiser, minibatches, ranks, adapters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trimtab.config.base import Config, Count, Flag, Number, Positive, Share, Whole
from trimtab.errors import ConfigError


class Lora(Config):
    """Low-rank adapters (peft). Samplers and checkpoints get the merged weights."""

    rank: Count = Field(default=16, description="Inner size r of an adapter.")
    alpha: Positive = Field(default=32.0, description="The adapters' product counts alpha / rank.")
    targets: str | tuple[str, ...] = Field(
        default="all-linear", description="Names of the linear layers that get one; all-linear: all but the head."
    )


class LearnerSettings(Config):
    """How the policy is trained on a batch."""

    lr: Positive = Field(default=3e-4, description="Learning rate of AdamW after warm-up.")
    warmup: Whole = Field(default=10, description="Steps over which it rises from 0.")
    betas: tuple[Share, Share] = Field(default=(0.9, 0.95), description="AdamW's decay rates.")
    weight_decay: Annotated[Number, Field(ge=0)] = Field(default=0.0, description="AdamW's weight decay.")
    clip_norm: Positive | None = Field(default=1.0, description="Greatest gradient norm; null: not clipped.")
    step_scale: Literal["none", "ess"] = Field(
        default="none",
        description="What the learning rate of each update is multiplied by. ess: the effective share of the tokens with an advantage in "
        "its minibatch, (Σw)² / (n·Σw²), rejected ones as weight 0, so that a batch of which little is left moves the policy little.",
    )
    gradient_cosine: Flag = Field(
        default=False,
        description="Whether the cosine of each update's gradient with the one before is recorded (train/grad_cosine); keeps a copy of the "
        "gradient.",
    )
    minibatches: Count = Field(default=4, description="Optimiser updates per step, each on a part of the batch.")
    minibatch_of: Literal["groups", "rows"] = Field(
        default="rows",
        description="What a minibatch is drawn of: single responses, whichever group they belong to; or whole groups, whose advantages "
        "cancel and whose prompts are worked out once, which pays where prompts are long.",
    )
    micro_tokens: Count = Field(
        default=16384, description="Most tokens, padding included, in one forward pass; a longer row goes alone."
    )
    proximal: Literal["recompute", "loglinear", "none"] = Field(
        default="recompute",
        description="Log-probs of the weights at the start of the step: worked out by a forward pass; guessed between behavior and "
        "current by version (AReaL); or none, for a correction that needs none. Without the pass all rows vote in baselines, "
        "whatever `advantage.baseline` says.",
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda|cuda:\d+)$",
        description="Where the policy is trained: cpu, cuda, cuda:N; auto: a GPU if torch can use one. On ranks, cuda is a GPU for each.",
    )
    ranks: Count = Field(
        default=1,
        description="Processes that train together, all started by the run on this machine. Under torchrun they are those it started.",
    )
    shard: Literal["none", "ddp", "fsdp"] = Field(
        default="none",
        description="How ranks share the work. ddp: each has the whole policy. fsdp: each has a part of every weight and of the "
        "optimiser's state (FSDP2).",
    )
    autocast: Literal["none", "bf16"] = Field(
        default="none",
        description="bf16: matrix products of forward and backward in bf16 over fp32 weights; log-probs and optimiser stay fp32.",
    )
    gradient_checkpointing: Flag = Field(
        default=False,
        description="Whether each layer's states are worked out again on the way back: less memory, more time.",
    )
    compile: Flag = Field(default=False, description="Whether decoder layers go through torch.compile.")
    lora: Lora | None = Field(
        default=None,
        description="Low-rank adapters on frozen weights in place of training all; needs the extra `lora`.",
    )
    patience: Count = Field(
        default=20,
        description="Steps in a row without a usable update (nothing kept, no signal, not finite) before the run stops.",
    )

    @model_validator(mode="after")
    def _together(self) -> LearnerSettings:
        """Settings that cannot be combined."""
        if self.ranks > 1 and self.shard == "none":
            raise ConfigError(
                f"learner.ranks {self.ranks} needs learner.shard ddp or fsdp, got none. Name one of them."
            )
        if self.lora is not None and self.shard == "fsdp":
            raise ConfigError(
                "learner.lora needs learner.shard none or ddp, got fsdp. Adapters are small: replicate them with ddp."
            )
        if self.lora is not None and self.compile:
            raise ConfigError("learner.lora needs learner.compile false, got true. Leave one of them out.")
        if self.compile and self.gradient_checkpointing:
            raise ConfigError(
                "learner.compile needs learner.gradient_checkpointing false, got true. Leave one of them out."
            )
        return self
