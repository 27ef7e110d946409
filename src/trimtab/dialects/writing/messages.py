"""What is said about settings that were written: what they cannot say, what they do in their own way, what to beware of there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trimtab.config.correction import Correction, Weight
from trimtab.dialects.bounds import bound_findings
from trimtab.dialects.fields import SOFT, Fields, Gravity, heads, in_words, rule_gravity
from trimtab.dialects.framework import Dialect
from trimtab.dialects.lookup import look_up
from trimtab.dialects.parts import OPEN
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Finding, Offer, Omission, PartName, Reading
from trimtab.dialects.sources.settings import flat_settings
from trimtab.dialects.writing.candidates import as_tree, gate_words, settings_for
from trimtab.dialects.writing.search import key_behind, kinds
from trimtab.errors import ConfigError
from trimtab.explain.gate_words import UNITS, metric_name, varying_bounds

# ── fields in words ───────────────────────────────────────────────────────────────────────────────────────────────────

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
    "advantage.singleton": "a group of one",
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


# ── what a framework cannot say ───────────────────────────────────────────────────────────────────────────────────────

OF_OTHERS = ("unbiased", "std_over", "eps", "eps_at", "about", "scope", "advantage")
"""Fields that only say how another is done: a division by a deviation, a ratio of a sequence."""


def first_unsupported(dialect: Dialect, rule: Correction) -> str:
    """The first piece of a correction that cannot be said by itself, else the combination."""
    varying = varying_bounds(rule)
    if varying is not None:
        return varying
    if rule.centering is not None and settings_for(dialect, rule.but(centering=None)):
        return f"centering {rule.centering}"
    for gate in rule.gates:
        if gate.action == "clamp":
            continue
        alone = Correction(policies=rule.policies, gates=(gate,))
        if any(settings_for(dialect, alone.but(weight=weight)) for weight in (None, rule.weight)):
            continue
        named = f"a {gate_words(gate)} with action {gate.action}"
        levels = ("geometric", "token", "sequence")
        forced = next((each for each in levels if settings_for(dialect, alone.but(weight=Weight(level=each)))), None)
        return named if forced is None else f"{named} unless what passes is weighted by its {forced} ratio"
    if rule.weight is not None and rule.weight.level != "one":
        alone = Correction(policies=rule.policies, weight=rule.weight, normalize=rule.normalize)
        if not settings_for(dialect, alone):
            normal = ", normalised" if rule.normalize else ""
            return f"a weight at level {rule.weight.level} with outside {rule.weight.outside}{normal}"
    if not rule.gates and rule.policies == "bypass" and (rule.weight is None or rule.weight.level == "one"):
        return "a ratio to behavior with nothing corrected (policies bypass)"
    names = [f"{metric_name(gate)} of {UNITS[gate.level]}" for gate in rule.gates]
    weight = rule.weight.level if rule.weight is not None else "one"
    return (
        f"this combination: gates on {', '.join(names) or 'nothing'} with a weight at level {weight} ({rule.policies})"
    )


def lost_kind(dialect: Dialect, part: PartName, wanted: str) -> Omission:
    """A loss or an estimator that is not there, or not beside the rest."""
    known = kinds(dialect, part)
    if not known:
        return Omission(part, "", f"no {part} of {dialect.title}'s is read here, so none can be written")
    if wanted in known:
        return Omission(part, "", f"{dialect.title} has {wanted}, but not together with the rest of these settings")
    return Omission(part, "", f"{dialect.title} has no {wanted}, only {', '.join(known)}")


def lost_fields(
    dialect: Dialect,
    part: PartName,
    settings: dict[str, Any],
    hard: Mapping[str, tuple[Any, Any]],
    goal: Fields,
    back: Fields,
) -> list[Omission]:
    """Each field that comes out otherwise: under which key, and what it becomes. One that idles there says nothing of its own."""
    seen = [path for path in heads(hard) if path in back or not _idles(path, back)] or [*heads(hard)]
    found: dict[str, Omission] = {}
    for path in seen:
        key, moves = key_behind(dialect, part, settings, path)
        there, wanted = amount(back, path), amount(goal, path)
        if moves:
            text = f"{thing(path)} becomes {there}, was {wanted}"
        elif goal.get(path) in (None, False):
            text = f"{dialect.title} has no key against {thing(path)} ({there})"
        elif back.get(path) in (None, False):
            text = f"{dialect.title} has no key for {thing(path)} ({wanted})"
        else:
            text = f"{dialect.title} has no key for {thing(path)}: {there}, was {wanted}"
        found.setdefault(text, Omission(part, key if moves else "", text, whole=False))
    return list(found.values())


def _idles(path: str, back: Fields) -> bool:
    """Whether a field that the target's form does not have is about something that is not there at all, which is listed for itself."""
    parent, _, name = path.rpartition(".")
    return back.get(parent) is not None and name in OF_OTHERS


def refusal_by_part(dialect: Dialect, lost: Sequence[Omission], rest: Sequence[str]) -> str:
    """Everything that is lost, part by part, what is near it, and what can be said without it."""
    clauses: dict[str, list[str]] = {}
    for each in lost:
        clauses.setdefault(each.part, []).append(_clause(dialect, each))
    named = "; nor ".join(
        " and ".join(texts) if part == "correction" else f"the {part}: {', '.join(texts)}"
        for part, texts in clauses.items()
    )
    near = [offer_words(offer) for each in lost for offer in each.offers[:1]]
    offered = f" --nearest writes {near[0]}." if near else ""
    without = f" The {' and the '.join(rest)} can be converted without it (--only {','.join(rest)})." if rest else ""
    return f"{dialect.title} does not support {named}.{offered}{without}"


def _clause(dialect: Dialect, lost: Omission) -> str:
    """What is lost, in a sentence whose subject is the framework."""
    own = lost.text.removeprefix(f"{dialect.title} has ")
    text = lost.text if own == lost.text else f"it has {own}"
    return f"{text} ({lost.key})" if lost.key else text


def offer_words(offer: Offer) -> str:
    """An offer in the framework's keys, and what it is in words."""
    keys = ", ".join(f"{name} {_value(value)}" for name, value in _leaves(offer.settings))
    return f"{keys or 'nothing'} ({offer.words})"


def _leaves(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        found += _leaves(value) if isinstance(value, Mapping) and value else [(name, value)]  # pyright: ignore[reportUnknownArgumentType]
    return found


def _value(value: Any) -> str:
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


# ── what it does in its own way ───────────────────────────────────────────────────────────────────────────────────────

Said = tuple[list[Omission], list[Finding]]
"""What comes out otherwise, and what is only worth knowing."""


def correction_remarks(dialect: Dialect, asked: Reading, back: Reading, settings: dict[str, Any]) -> Said:
    """What the target does in its own way with a correction whose weights it can say."""
    key, before = next(iter(settings), ""), asked.rule is not None and asked.rule.denominator == "trained"
    counts = ("before", "after") if before else ("after", "before")
    changed = {
        "kept": f"what leaves the mask: {dialect.title} and the source differ in whether rejected tokens leave it or stay with weight 0, "
        "which changes the KL and entropy terms",
        "limits": f"its limits on log-ratios: {dialect.title} has others, and numbers differ where |log_r| is beyond them",
        "denominator": f"a loss divided by the tokens {counts[0]} rejection: {dialect.title} divides by those {counts[1]} it",
        "applies_to": f"a weight on {_weighed(asked)}: in {dialect.title} it multiplies {_weighed(back)}",
    }
    notes = {
        "kept": f"{dialect.title} and the source differ in whether rejected tokens leave the mask or stay in it with weight 0; the "
        "policy loss is the same, KL and entropy terms may differ.",
        "limits": f"{dialect.title} clamps log-ratios at other safety limits; numbers differ only where |log_r| is beyond them.",
    }
    grave = rule_gravity(asked, back)
    lost = [Omission("correction", "", changed[name], whole=False) for name in changed if grave.get(name) == "differs"]
    return lost, [Finding(key, "note", notes[name]) for name in notes if grave.get(name) == "note"]


def _weighed(reading: Reading) -> str:
    rule = reading.rule
    return "the KL term too" if rule is not None and rule.applies_to == "policy+kl" else "the policy loss alone"


def field_remarks(
    dialect: Dialect, part: PartName, settings: dict[str, Any], off: Mapping[str, tuple[Gravity, tuple[Any, Any]]]
) -> Said:
    """What the target computes a little otherwise, each kind of difference once, on the key that it hangs on."""
    found: dict[tuple[Gravity, str], list[str]] = {}
    for path, (grave, _) in off.items():
        if grave:
            found.setdefault((grave, SOFT[path.rpartition(".")[2]]), []).append(path)
    lost: list[Omission] = []
    noted: list[Finding] = []
    for (grave, text), paths in found.items():
        key, moves = key_behind(dialect, part, settings, paths[0])
        ends = ((thing(path), *off[path][1]) for path in paths)
        named = ", ".join(f"{name}: {in_words(one)} becomes {in_words(other)}" for name, one, other in ends)
        if grave == "note":
            noted.append(Finding(key if moves else part, "note", f"{dialect.title} {text} ({named}.)"))
        else:
            lost.append(
                Omission(part, key if moves else "", f"{named}: {dialect.title} {text.rstrip('.')}", whole=False)
            )
    return lost, noted


def target_remarks(dialect: Dialect, settings: dict[str, Any], back: Reading) -> Iterator[Finding]:
    """The target's own traps. Notes are left out, and so is what speaks only of a number that stands for none.

    A defect that the numbers already allow for, since it is not in the documented meaning, needs no remedy.
    """
    tree = as_tree(settings)
    doubts = {each.text for each in bound_findings(look_up(dialect, flat_settings(tree)), back.correction)}
    open_keys = {path for path, value in settings.items() if _is_open(value)}
    promised = _documented_findings(dialect, tree)
    for each in back.findings:
        if each.level == "defect" and each not in promised:
            yield Finding(each.key, "note", f"The values written allow for it already: {_without_remedy(each.text)}.")
        elif each.level != "note" and each.text not in doubts and not _speaks_of_open(each, open_keys):
            yield each


def _speaks_of_open(finding: Finding, open_keys: set[str]) -> bool:
    return finding.key in open_keys or f"{OPEN:g}" in finding.text


def _documented_findings(dialect: Dialect, tree: dict[str, Any]) -> tuple[Finding, ...]:
    try:
        return read(dialect.name, tree, documented=True).findings
    except ConfigError:
        return ()


def _without_remedy(text: str) -> str:
    """The sentence up to its last semicolon, after which a remark says what to do."""
    said = text.rpartition("; ")[0] or text.rstrip(".")
    return said[0].lower() + said[1:] if said.startswith("The ") else said


def _is_open(value: Any) -> bool:
    """Whether a number, or a bound among several, stands for an open side."""
    if isinstance(value, list):
        return any(_is_open(each) for each in value)  # pyright: ignore[reportUnknownVariableType]
    return isinstance(value, int | float) and abs(value) >= OPEN
