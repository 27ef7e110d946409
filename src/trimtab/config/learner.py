"""The policy that is trained, the teacher it may follow, and how the learner takes its steps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trimtab.config.base import Config, Count, Flag, Number, Positive, Share, Whole
from trimtab.errors import ConfigError


class Tiny(Config):
    """A small Qwen2-architecture policy made on the spot, with a tokenizer of the task's own characters."""

    layers: Count = Field(default=2, description="Decoder layers.")
    width: Count = Field(default=64, description="Size of the hidden state.")
    heads: Count = Field(default=4, description="Attention heads; they divide the width.")
    mlp: Count = Field(default=176, description="Inner size of the gated MLP.")
    tied: Flag = Field(default=False, description="Whether the head shares the embedding's weights.")


class WarmStart(Config):
    """Supervised learning on demonstrations before the run; its result is cached by settings, seed, code and library versions."""

    slips: Share = Field(
        default=0.05,
        description="Chance of a slip at each step of a demonstration, carried on. Clean demonstrations jump from chance to 0.8 "
        "within 25 steps, so that no start in between could be hit.",
    )
    target: Share = Field(default=0.25, description="Sampled accuracy at which it stops.")
    batch: Count = Field(default=128, description="Demonstrations per step.")
    lr: Positive = Field(default=2e-3, description="Learning rate of Adam.")
    max_steps: Count = Field(default=2000, description="Give up, with an error, after so many steps.")


class Model(Config):
    """The policy to be trained."""

    path: str | None = Field(
        default=None,
        description="Folder or hub id of a Hugging Face causal LM. If not set: a tiny one is made (see `tiny`).",
    )
    random: Flag = Field(
        default=False, description="Take only architecture and tokenizer from `path`, with random weights."
    )
    dtype: Literal["fp32", "bf16"] = Field(default="fp32", description="Number type of the learner's weights.")
    tiny: Tiny = Field(default=Tiny(), description="The tiny policy, where no `path` is given.")
    warm_start: WarmStart | None = Field(
        default=WarmStart(), description="Supervised start of the tiny policy; null: none. Not used with a `path`."
    )


class Teacher(Config):
    """The frozen policy that `advantage: distillation` follows. The learner's own scorer asks it, at the temperature of sampling."""

    path: str | None = Field(
        default=None,
        description="Folder or hub id of a Hugging Face causal LM with the policy's own tokens. If not set: the policy as it is at the "
        "start of the run.",
    )
    dtype: Literal["fp32", "bf16"] = Field(default="fp32", description="Number type of its weights.")


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
