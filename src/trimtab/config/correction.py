"""What a correction can say: Correction = policies + gates + weight + normalize + denominator + applies_to."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trimtab.config.base import Config
from trimtab.config.bounds import Limit as Limit
from trimtab.config.bounds import Scope as Scope
from trimtab.config.divergences import HEAD_METRICS
from trimtab.config.gate import Gate as Gate
from trimtab.config.gate import Metric as Metric
from trimtab.config.gate import Pair as Pair
from trimtab.config.weight import BY_PREFIX as BY_PREFIX
from trimtab.config.weight import BY_SEGMENT as BY_SEGMENT
from trimtab.config.weight import Weight as Weight
from trimtab.config.weight import WeightLevel as WeightLevel
from trimtab.errors import ConfigError

Policies = Literal["decoupled", "bypass"]


class Correction(Config):
    """What is done about the difference between the policy that sampled and the policy that trains."""

    policies: Policies = Field(
        default="decoupled",
        description="decoupled: log_r = log proximal − log behavior (three policies). bypass: log current − log behavior (two).",
    )
    gates: tuple[Gate, ...] = Field(default=(), description="Tests in order; each says which tokens or sequences stay.")
    weight: Weight | None = Field(
        default=None, description="The factor on each token's loss. If not set: every token weighs 1."
    )
    normalize: Literal["batch", "group"] | None = Field(
        default=None,
        description="batch: weights are divided by their mean over the whole batch (tokens for token, segment and prefix weights, "
        "sequences for the others), across ranks, never per micro-batch. group: by their mean over the responses to the same prompt "
        "(self-normalised per group); all of a group are on one rank.",
    )
    denominator: Literal["trained", "kept"] = Field(
        default="trained",
        description="What a loss reduction counts: tokens before rejection (a rejected token must not raise the others' step) or after.",
    )
    applies_to: Literal["policy", "policy+kl"] = Field(
        default="policy",
        description="What the weight multiplies: the policy-gradient term, or the KL-to-reference term too.",
    )
    centering: Literal["score"] | None = Field(
        default=None,
        description="score: each token's gradient less its mean under the sampler, over the head of its distribution, so that a constant "
        "advantage has no gradient on average (score centering). Needs a weight at level one or token, and the sampler's head.",
    )

    @model_validator(mode="after")
    def _possible(self) -> Correction:
        if self.normalize is not None and not self.weighs:
            raise ConfigError("Correction with normalize needs a weight, got none. Add one, or drop normalize.")
        clamps = [gate for gate in self.gates if gate.action == "clamp"]
        if clamps and not self.weighs:
            raise ConfigError(
                "Gate with action clamp needs a weight to hold, got none. Add a weight, or use action reject."
            )
        problem = None if self.centering is None else self._centering_problem()
        if problem:
            raise ConfigError(problem)
        return self

    def _centering_problem(self) -> str | None:
        """Why a mean over the ids of one token cannot be told: what a token weighs has to be a function of itself."""
        if self.weight is not None and self.weight.level not in ("one", "token"):
            return (
                f"Correction with centering score needs a weight at level one or token, got {self.weight.level!r}. "
                "The weight of another id is known for single tokens only."
            )
        if self.normalize is not None:
            return f"Correction with centering score needs normalize none, got {self.normalize}. The mean depends on the sampled ids."
        weight = self.weight
        if weight is not None and (weight.bounds is not None or weight.bound_scale == "entropy"):
            return (
                "Correction with centering score needs weight bounds of the token alone, got bounds of the batch or by entropy. "
                "Set lower and upper."
            )
        if any(gate.action == "clamp" and not gate.is_of_token for gate in self.gates):
            return (
                "Correction with centering score needs clamp gates at token level, got one above it. Use action reject."
            )
        return None

    def doubts(self) -> list[str]:
        """A correction that does nothing without saying so."""
        if not self.gates and self.weight is None and self.centering is None:
            return [
                "Correction with no gate and no weight corrects nothing. Use trimtab.preset('off') if that is intended."
            ]
        return []

    @property
    def pair(self) -> Pair:
        """The two policies log_r compares."""
        return "proximal/behavior" if self.policies == "decoupled" else "current/behavior"

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Every pair this correction looks at, its own first."""
        return tuple(dict.fromkeys([self.pair, *(gate.pair or self.pair for gate in self.gates)]))

    @property
    def needs(self) -> tuple[str, ...]:
        """The policies whose log-probs must be given."""
        named = {name for pair in self.pairs for name in pair.split("/")}
        return tuple(name for name in ("behavior", "proximal", "current") if name in named)

    @property
    def needs_advantages(self) -> bool:
        """Whether a gate looks at the advantage."""
        return any(gate.when != "always" for gate in self.gates)

    @property
    def needs_whole_step(self) -> bool:
        """Whether what is decided about one token depends on all the others of the step: a budget, bounds found in the batch, or
        weights over their mean.

        Such a rule is worked out once per step and handed to the micro-batches in parts.
        """
        from_batch = any(part.bounds is not None for part in (*self.gates, self.weight) if part is not None)
        return from_batch or self.normalize is not None or any(gate.level == "batch" for gate in self.gates)

    @property
    def needs_head(self) -> bool:
        """Whether a gate looks at more of the distributions than the sampled token."""
        return any(gate.metric in HEAD_METRICS for gate in self.gates)

    @property
    def needs_age(self) -> bool:
        """Whether a gate looks at the versions that sampled."""
        return any(gate.metric == "age" for gate in self.gates)

    @property
    def needs_entropy(self) -> bool:
        """Whether a bound is scaled by the entropy of each token."""
        return any(part.bound_scale == "entropy" for part in (*self.gates, self.weight) if part is not None)

    @property
    def needs_group(self) -> bool:
        """Whether weights are divided by the mean of their group."""
        return self.normalize == "group"

    @property
    def of_tokens(self) -> Correction:
        """What it decides about a token by itself, so that it can be asked about ids that were not sampled."""
        gates = tuple(gate for gate in self.gates if gate.is_of_token)
        return Correction(policies=self.policies, gates=gates, weight=self.weight or Weight(level="one"))

    @property
    def weighs(self) -> bool:
        """Whether tokens may weigh anything but 0 and 1."""
        return self.weight is not None and self.weight.level != "one"

    @property
    def has_segments(self) -> bool:
        """Whether a gate or the weight looks at turns or prefixes, which no rank may hold a part of only."""
        return any(part.level in (*BY_SEGMENT, *BY_PREFIX) for part in (*self.gates, self.weight) if part is not None)
