"""What a training run can be asked to do: model, task, rollouts, learner, records. A run directory keeps it resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from trimtab.config.advantages import AnyEstimator, Distillation, Grpo, Shaping
from trimtab.config.algebra import Correction
from trimtab.config.base import Config, Number, excerpt
from trimtab.config.losses import Clip, EntropyBonus, KlPenalty, Loss, Reduction
from trimtab.config.presets import preset
from trimtab.config.ray import Ray
from trimtab.config.short import correction_of_name, kind_of_name, reduction_of_mode, term_of_coefficient
from trimtab.config.vllm import Vllm
from trimtab.errors import ConfigError

Count = Annotated[int, Field(strict=True, ge=1)]
Whole = Annotated[int, Field(strict=True, ge=0)]
Share = Annotated[Number, Field(ge=0, le=1)]
Positive = Annotated[Number, Field(gt=0)]
Flag = Annotated[bool, Field(strict=True)]
Precision = Literal["fp32", "bf16", "fp8", "int8", "int4"]
KvCache = Literal["auto", "fp8"]


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


class Reward(Config):
    """One reward: a verifier, or a function of the user's own."""

    verifier: Literal["exact", "numeric", "regex", "math"] | None = Field(
        default=None,
        description="exact: the response is the answer. numeric: its last number is. regex: `pattern` finds it. math: math-verify.",
    )
    function: str | None = Field(
        default=None,
        description="`module:function`, called with prompt, response, answer and the row's other fields; returns a number.",
    )
    executes: Flag = Field(
        default=False,
        description="Whether the function runs code from the response. Then each call has a process of its own, forked for it, without "
        "the network, and ended with all it began; what a call changes or keeps, the next does not see.",
    )
    pattern: str | None = Field(default=None, description="Regular expression whose first group is compared (regex).")
    weight: Number = Field(default=1.0, description="What it counts in the sum of rewards.")
    name: str | None = Field(default=None, description="How metrics call it. If not set: the verifier or function.")

    @model_validator(mode="after")
    def _possible(self) -> Reward:
        if (self.verifier is None) == (self.function is None):
            raise ConfigError("Reward needs either verifier or function, got both or neither. Name one.")
        if (self.verifier == "regex") != (self.pattern is not None):
            raise ConfigError("Reward needs pattern with verifier regex, and only with it. Add or drop it.")
        if self.executes and self.function is None:
            raise ConfigError("Reward needs function with executes, got a verifier. Verifiers run no code; drop it.")
        if self.function is not None and self.function.count(":") != 1:
            raise ConfigError(f"Reward needs function as module:function, got {excerpt(self.function)}.")
        return self

    @property
    def called(self) -> str:
        """How metrics call it."""
        return self.name or self.verifier or str(self.function).partition(":")[2]


class Task(Config):
    """Where prompts come from and what an answer is worth."""

    name: str = Field(
        default="chain",
        description="chain, sort, reverse, arithmetic; `gym:NAME`, a task of reasoning-gym; or `file`, with `path`.",
    )
    options: Mapping[str, Any] = Field(
        default={},
        description="Options of the task itself, such as `size: 24` (chain) or those of a reasoning-gym task.",
    )
    path: str | None = Field(
        default=None, description="JSONL, JSON, CSV or parquet file, or hub dataset id (name: file)."
    )
    split: str = Field(default="train", description="Split of a hub dataset.")
    held_out: str | None = Field(
        default=None, description="File of held-out problems. If not set: the last ones of `path`, never trained on."
    )
    prompt: str = Field(default="question", description="Field of the file that holds the prompt.")
    answer: str = Field(default="answer", description="Field of the file that holds the answer.")
    template: str | None = Field(
        default=None, description="Text with `{prompt}` around each prompt. If not set: the prompt as it stands."
    )
    chat: Flag = Field(default=False, description="Whether prompts go through the tokenizer's chat template.")
    system: str | None = Field(default=None, description="System message of the chat template.")
    rewards: tuple[Reward, ...] = Field(
        default=(), description="Their weighted sum is the reward; none: the task's own."
    )
    timeout: Positive = Field(
        default=10.0,
        description="Seconds a verifier may take for one sample before it counts as failed; a function of yours has five times as "
        "many more in all, for what its first calls load.",
    )
    workers: Count = Field(
        default=1,
        description="Responses scored at once by verifiers that have processes of their own (functions of yours, tasks that run code): "
        "each worker has its own processes. The learner does not wait for them.",
    )
    allow_eval: Flag = Field(
        default=False,
        description="Whether a task of reasoning-gym may run responses as Python code, which some do to score them: in a process forked "
        "for each, without the environment and the network, but with your rights to files.",
    )


class Rollout(Config):
    """How samples are made, and how old they may be."""

    groups: Count = Field(default=16, description="Prompts per learner step.")
    samples: Count = Field(default=8, description="Responses per prompt.")
    max_tokens: Count | None = Field(default=None, description="Longest response. If not set: what the task needs.")
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
    engine: Literal["hf", "vllm", "vllm-server"] = Field(
        default="hf",
        description="What samples. hf: transformers, in the sampler. vllm: vLLM, in the sampler. vllm-server: vLLM as a server, started "
        "by the run or at `servers`.",
    )
    servers: tuple[str, ...] = Field(
        default=(), description="Addresses of running vLLM servers (vllm-server); none: `samplers` of them are started."
    )
    vllm: Vllm = Field(default=Vllm(), description="Settings of vLLM, where it is the engine.")
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
        if self.servers and self.engine != "vllm-server":
            raise ConfigError(
                f"rollout.servers needs rollout.engine vllm-server, got {self.engine}. Set it, or drop them."
            )
        return self

    @property
    def is_cut(self) -> bool:
        """Whether top_k or top_p takes ids away."""
        return self.top_k is not None or (self.top_p is not None and self.top_p < 1)


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


class Evaluate(Config):
    """Accuracy on held-out problems, by the learner's own weights."""

    every: Count = Field(default=20, description="Steps between evaluations.")
    problems: Count = Field(default=256, description="Held-out problems; fixed for the run.")
    temperature: Annotated[Number, Field(ge=0)] = Field(default=1.0, description="Of sampling; 0: the likeliest token.")
    top_k: Count | None = Field(default=None, description="Sample from the k likeliest tokens only.")
    top_p: Share | None = Field(
        default=None,
        description="Sample from the likeliest tokens that hold this probability. Training under rollout.top_p trains that policy, not the "
        "whole distribution: say the same here to evaluate what is trained.",
    )


class Checkpoint(Config):
    """When the run is saved."""

    every: Count = Field(default=40, description="Steps between checkpoints.")
    keep: Count = Field(default=2, description="How many to keep; the newest and those before it.")


class Record(Config):
    """What the run directory keeps."""

    rollouts: Share = Field(default=1.0, description="Share of groups written to parquet, chosen by group number.")
    every: Count = Field(default=10, description="Steps between rollout files.")
    loggers: tuple[Literal["tensorboard", "wandb", "trackio", "mlflow"], ...] = Field(
        default=(), description="Further loggers beside metrics.jsonl; each is an extra of the package."
    )
    project: str = Field(default="trimtab", description="Project name for those loggers.")


NEED_MORE = {
    "gae": "a critic's values",
    "remax": "the reward of a greedy answer",
    "optimal-token": "Σπ² of every token",
}
"""Estimators that a run here has nothing for."""


class Train(Config):
    """One training run."""

    steps: Count = Field(default=250, description="Learner steps.")
    seed: Whole = Field(default=0, description="Of everything random in the run.")
    backend: Literal["local", "lockstep", "ray"] = Field(
        default="local",
        description="local: a learner and sampler processes side by side. lockstep: one process, deterministic, staleness exact. "
        "ray: samplers as actors of a Ray cluster.",
    )
    ray: Ray = Field(default=Ray(), description="The cluster, where samplers run on one.")
    model: Model = Field(default=Model(), description="The policy.")
    task: Task = Field(default=Task(), description="Prompts and rewards.")
    rollout: Rollout = Field(default=Rollout(), description="Sampling and staleness.")
    correction: Correction = Field(
        default=preset("seq-tis"),
        description="Off-policy correction: a preset's name, `preset: NAME` with its parameters, `off`, or its fields.",
    )
    loss: Loss = Field(default=Clip(), description="The policy loss.")
    reduction: Reduction = Field(default=Reduction(mode="token-mean"), description="From tokens to one number.")
    advantage: AnyEstimator = Field(default=Grpo(), description="The advantage estimator.")
    teacher: Teacher | None = Field(
        default=None,
        description="Whom `advantage: distillation` follows; `teacher: {}`: the policy as it was at the start.",
    )
    shaping: Shaping = Field(default=Shaping(), description="From rewards to trained rewards; truncated rows.")
    kl: KlPenalty | None = Field(default=None, description="KL to the policy at the start of the run; none if not set.")
    entropy_bonus: EntropyBonus | None = Field(default=None, description="Entropy bonus; none if not set.")
    learner: LearnerSettings = Field(default=LearnerSettings(), description="Optimiser and batches.")
    evaluate: Evaluate | None = Field(default=Evaluate(), description="Held-out accuracy; null: none.")
    checkpoint: Checkpoint = Field(default=Checkpoint(), description="Saving.")
    record: Record = Field(default=Record(), description="Run directory and loggers.")
    threads: Count = Field(
        default=1, description="Intra-op threads per process. Two can be 40 times slower beside a busy neighbour."
    )

    @model_validator(mode="after")
    def _possible(self) -> Train:
        if self.learner.proximal == "none" and "proximal" in self.correction.needs:
            raise ConfigError(
                "learner.proximal none needs a correction without proximal log-probs, got a decoupled one. "
                "Take a bypass preset, or recompute."
            )
        problem = self._head_problem() or self._teacher_problem()
        if problem:
            raise ConfigError(problem)
        if self.correction.needs_entropy and self.learner.proximal != "recompute":
            raise ConfigError(
                f"A correction with bound_scale entropy needs learner.proximal recompute, got {self.learner.proximal}. "
                "The pass ahead of the step is where entropies are worked out."
            )
        if self.ray.verifiers and self.backend != "ray":
            raise ConfigError(
                f"ray.verifiers needs backend ray, got {self.backend}. Elsewhere task.workers says how many score at once."
            )
        if self.learner.autocast == "bf16" and self.model.dtype == "bf16":
            raise ConfigError("learner.autocast bf16 needs model.dtype fp32, got bf16. Weights in bf16 need no cast.")
        return self

    def _head_problem(self) -> str | None:
        """Why a correction that looks at the head of the distributions cannot have it, or cannot go with the loss."""
        rule, rollout = self.correction, self.rollout
        if rule.centering is None and not rule.needs_head:
            return None
        what = "centering score" if rule.centering is not None else "a gate on head_tv or head_kl"
        if rollout.head == "none" or (rollout.head == "mask" and not rollout.is_cut):
            return (
                f"A correction with {what} needs the head of the sampler's distribution, got rollout.head {rollout.head} without a cut. "
                "Set rollout.head=top-k, or sample with top_p."
            )
        if self.learner.proximal != "recompute" and (rule.needs_head or "proximal" in rule.needs):
            return (
                f"A correction with {what} needs learner.proximal recompute, got {self.learner.proximal}. "
                "What the learner said of other ids is not guessed."
            )
        if rule.centering is not None and not self.loss.is_of_token:
            return (
                f"centering score needs a loss whose slope is a token's own, got {self.loss.kind} as it is set. "
                "Take reinforce, cispo, clip or importance-pg at token level."
            )
        return None

    def _teacher_problem(self) -> str | None:
        """Why a teacher cannot be followed, or is not."""
        rule = self.advantage
        if not isinstance(rule, Distillation):
            return (
                None
                if self.teacher is None
                else (
                    f"teacher needs advantage distillation, got {rule.kind}. Nothing else reads it: drop it, or set advantage=distillation."
                )
            )
        if rule.student == "proximal" and self.learner.proximal != "recompute":
            return (
                f"Distillation of student proximal needs learner.proximal recompute, got {self.learner.proximal}. "
                "Take advantage.student=current, which needs no pass ahead of the step."
            )
        return None

    def runnable(self) -> Train:
        """This run, if it can be run here; what can be said, read and compared is more than that."""
        rule = self.advantage
        if isinstance(rule, Distillation) and self.teacher is None:
            raise ConfigError(
                "advantage distillation needs a teacher, got none. Set teacher.path=FOLDER, or `teacher: {}` for the policy as it begins."
            )
        read = rule.base or rule if isinstance(rule, Distillation) else rule
        if read.kind in NEED_MORE:
            raise ConfigError(
                f"trimtab train needs an advantage from rewards alone, got {read.kind}, which needs "
                f"{NEED_MORE[read.kind]}. Take grpo, rloo or reinforce++."
            )
        return self

    def doubts(self) -> list[str]:
        """A loss beside a correction or a reduction that it does not go with."""
        return self.loss.doubts_beside(self.correction, self.reduction)

    @field_validator("loss", "advantage", mode="before")
    @classmethod
    def _of_the_default_kind(cls, given: object, about: ValidationInfo) -> object:
        """A kind by its name alone; settings without a kind change the default's."""
        return kind_of_name(given, cls.model_fields[str(about.field_name)].default.kind)

    _short_correction = field_validator("correction", mode="before")(correction_of_name)
    _short_terms = field_validator("kl", "entropy_bonus", mode="before")(term_of_coefficient)
    _short_reduction = field_validator("reduction", mode="before")(reduction_of_mode)
