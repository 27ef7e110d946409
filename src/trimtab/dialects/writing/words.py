"""Fields of losses and advantages in the words of those who use them."""

from __future__ import annotations

import re
from typing import Any

from trimtab.dialects.fields import Fields, in_words

THINGS = {
    "reduction.mode": "the reduction",
    "reduction.constant": "the divisor of the sum",
    "kl": "the KL term",
    "kl.coefficient": "the coefficient of the KL term",
    "kl.estimator": "the estimate of the KL term",
    "kl.importance": "the importance ratio on the KL term",
    "kl.reduction": "the KL term's own reduction",
    "kl_to": "the policy that the KL term compares with",
    "entropy": "the entropy bonus",
    "entropy.coefficient": "the coefficient of the entropy bonus",
    "entropy.reduction": "the entropy bonus's own reduction",
    "advantage_scale": "the factor on advantages",
    "loss": "the loss",
    "loss.low": "the lower clip",
    "loss.high": "the upper clip",
    "loss.lower": "the least ratio",
    "loss.upper": "the greatest ratio",
    "loss.dual": "the dual clip",
    "loss.ratio_cap": "the cap on the ratio",
    "loss.level": "the level of the ratio",
    "loss.advantage": "the advantage under the sequence ratio",
    "loss.gradient": "the path of the gradient",
    "advantage": "the estimator",
    "advantage.std": "the division by the standard deviation",
    "advantage.std_over": "the standard deviation",
    "advantage.unbiased": "the standard deviation",
    "advantage.eps": "eps",
    "advantage.lower": "the least advantage",
    "advantage.upper": "the greatest advantage",
    "advantage.gamma": "the discount",
    "advantage.lam": "λ",
    "advantage.value_lam": "λ of the critic",
    "advantage.gaps": "a token between turns",
    "advantage.leave_one_out": "leave-one-out",
    "advantage.group_mean": "the group's mean as baseline",
    "advantage.normalise.unbiased": "the standard deviation of the normalisation",
    "advantage.normalise.eps": "eps of the normalisation",
    "advantage.normalise.eps_at": "where eps is added",
    "advantage.normalise": "the normalisation of advantages",
    "advantage_norm": "the normalisation of advantages",
    "advantage_clip": "the clip of advantages",
    "reward_kl": "the KL penalty in the reward",
    "shaping": "the shaping of rewards",
    "shaping.bias": "the bias on rewards",
    "shaping.scale": "the factor on rewards",
    "shaping.lower": "the least reward",
    "shaping.upper": "the greatest reward",
    "shaping.overlong": "the penalty on length",
    "shaping.no_eos": "a row without EOS",
    "shaping.normalise": "the normalisation of rewards",
    "rows": "rows without tokens",
}
"""A field → what its users call it."""
ENDS = {
    "unbiased": {True: "over n − 1", False: "over n"},
    "std_over": {"group": "of the group", "batch": "of the batch"},
    "unit": {"token": "by token", "sequence": "by sequence"},
}
"""The end of a field's name → what its values mean."""
TOLD = ("coefficient", "estimator", "mean", "std", "max_length", "scale", "bias", "lower", "upper", "mode")
"""What says most about a part that is there or not, in the order in which it is said."""

IDLE = {"scale": 1.0, "bias": 0.0}
"""What says nothing."""


def thing(path: str) -> str:
    """What a field is called; one of no name of its own by its own name and that of what holds it."""
    plain = re.sub(r"\.\d+", "", path)
    if plain in THINGS:
        return THINGS[plain]
    parent, _, name = plain.rpartition(".")
    return f"{name.replace('_', ' ')} of {thing(parent)}" if parent else name.replace("_", " ")


def amount(fields: Fields, path: str) -> str:
    """What a field holds; of a part that is there, what says most about it."""
    value: Any = fields.get(path)
    if value != "on":
        words = ENDS.get(path.rpartition(".")[2], {})
        return words.get(value, {True: "yes", False: "no"}.get(value) if isinstance(value, bool) else None) or in_words(
            value
        )
    inside = {name: fields.get(f"{path}.{name}") for name in TOLD}
    held = [f"{name} {in_words(each)}" for name, each in inside.items() if each is not None and each != IDLE.get(name)]
    return ", ".join(held[:3]) or "on"
