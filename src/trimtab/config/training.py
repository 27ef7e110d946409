"""What a training run can be asked to do: model, task, rollouts, learner, records. A run directory keeps it resolved."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from trimtab.config.advantages import AnyEstimator, Distillation, Grpo, Shaping
from trimtab.config.base import Config, Count, Number, Share, Whole, kind_of_name, term_of_coefficient
from trimtab.config.correction import Correction
from trimtab.config.learner import LearnerSettings as LearnerSettings
from trimtab.config.learner import Lora as Lora
from trimtab.config.learner import Model as Model
from trimtab.config.learner import Teacher as Teacher
from trimtab.config.learner import Tiny as Tiny
from trimtab.config.learner import WarmStart as WarmStart
from trimtab.config.losses import Clip, EntropyBonus, KlPenalty, Loss, Reduction, reduction_of_mode
from trimtab.config.presets import correction_of_name, preset
from trimtab.config.rollout import KvCache as KvCache
from trimtab.config.rollout import Precision as Precision
from trimtab.config.rollout import Ray as Ray
from trimtab.config.rollout import Rollout as Rollout
from trimtab.config.rollout import Vllm as Vllm
from trimtab.config.task import Reward as Reward
from trimtab.config.task import Task as Task
from trimtab.errors import ConfigError


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
