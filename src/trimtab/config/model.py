"""The policies of a run: the one that is trained, and the teacher it may follow."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trimtab.config.base import Config, Count, Flag, Positive, Share


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
