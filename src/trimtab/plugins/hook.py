"""What a framework's hook can honour of a plan. The rest is refused by name, never approximated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from trimtab.config.correction import Correction
from trimtab.config.losses import Mode, Objective, Reduction
from trimtab.config.plan import Plan
from trimtab.errors import ConfigError

BY_ROWS_AND_TOKENS = frozenset(get_args(Mode)) - {"prompt-mean"}
"""Reductions that need no prompt ids."""


@dataclass(frozen=True)
class Hook:
    """One place where a framework calls us, as the facts a plan is held against."""

    place: str
    """How errors call it: the framework and the place."""
    keys: frozenset[str]
    """The keys of a plan it acts on."""
    policies: frozenset[str] = frozenset({"current", "proximal", "behavior"})
    """Whose log-probs arrive there."""
    elsewhere: Mapping[str, str] = field(default_factory=dict[str, str])
    """For a key it does not act on, or a policy that does not arrive: what to do instead."""
    reductions: frozenset[str] = BY_ROWS_AND_TOKENS
    counts_kept: str | None = None
    """Why tokens cannot be counted after rejection; None: they can."""
    whole_step: bool = True
    """Whether all rows of an optimiser step arrive together, for rules with statistics over them."""
    scaled_advantages: bool = False
    """Whether advantages arrive divided by counts, so that only a loss proportional to them comes out right."""
    sees_advantages: bool = True
    """Whether advantages are known when the rule is worked out."""

    def check(self, plan: Plan) -> Plan:
        """The plan, if the hook can honour all of it."""
        for key in plan.asked:
            if key not in self.keys:
                self._refuse(f"a plan without {key}", key, self.elsewhere.get(key, "This hook does not decide it."))
        self.check_parts(plan.correction, plan.loss, plan.reduction)
        return plan

    def check_parts(
        self, rule: Correction | None, loss: Objective | None = None, reduction: Reduction | None = None
    ) -> None:
        """The same for what will act, with what was left out filled in by the framework's own."""
        if rule is not None:
            self._check_rule(rule)
        if loss is not None and self.scaled_advantages and not loss.proportional_to_advantage:
            self._refuse(
                "a loss proportional to the advantage",
                f"loss {type(loss).__name__}",
                "Advantages arrive divided by the counts of the step, which a loss has to pass on.",
            )
        if reduction is not None and reduction.mode not in self.reductions:
            known = ", ".join(sorted(self.reductions))
            self._refuse(
                f"reduction {known}",
                f"reduction {reduction.mode}",
                self.elsewhere.get("reduction", "Counts for others are not known there."),
            )

    def _check_rule(self, rule: Correction) -> None:
        for policy in rule.needs:
            if policy not in self.policies:
                self._refuse(
                    f"a correction without {policy} log-probs",
                    f"one of {' and '.join(rule.pairs)}",
                    self.elsewhere.get(policy, "They do not arrive there."),
                )
        if rule.denominator == "kept" and self.counts_kept is not None and _rejects(rule):
            self._refuse("denominator trained", "denominator kept", self.counts_kept)
        if rule.needs_whole_step and not self.whole_step:
            self._refuse(
                "a correction of single sequences",
                "normalize, or a gate or bounds of the batch",
                "Only a part of the optimiser step arrives there at a time.",
            )
        if rule.needs_advantages and not self.sees_advantages:
            self._refuse(
                "a correction that does not look at the advantage",
                "a gate with `when`",
                "Advantages are worked out after it.",
            )
        if rule.applies_to == "policy+kl" and "kl" not in self.keys:
            self._refuse("applies_to policy", "policy+kl", "The KL term is the framework's own.")
        self._check_inputs(rule)

    def _check_inputs(self, rule: Correction) -> None:
        """What a rule looks at beside log-probs and advantages does not arrive anywhere."""
        if rule.centering is not None or rule.needs_head:
            self._refuse(
                "a correction of sampled tokens alone",
                "centering score" if rule.centering is not None else "a gate on head_tv or head_kl",
                "The head of the sampler's distribution does not arrive there.",
            )
        if rule.needs_age:
            self._refuse(
                "a correction without a gate on age", "one", "The version of each token does not arrive there."
            )
        if rule.needs_entropy:
            self._refuse(
                "a correction without bounds by entropy", "one", "The entropy of each token does not arrive there."
            )
        if rule.needs_group:
            self._refuse("normalize none or batch", "group", "Which responses belong to one prompt is not known there.")

    def _refuse(self, rule: str, got: str, remedy: str) -> None:
        raise ConfigError(f"{self.place} needs {rule}, got {got}. {remedy}")


def _rejects(rule: Correction) -> bool:
    return any(gate.action == "reject" for gate in rule.gates)
