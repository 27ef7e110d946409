"""Losses and advantages field by field: what two of them differ in, and which differences are no more than a remark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from trimtab.config.advantages import Shaping
from trimtab.config.base import Config
from trimtab.config.correction import Correction
from trimtab.dialects.equivalence import FAR, agreement, canonical, leaves_whole, nearest_limit
from trimtab.dialects.parts import OPEN, AdvantagePart, LossPart
from trimtab.dialects.reading import PartName, Reading

Fields = dict[str, Any]
"""Dotted field → value; the name of a part itself → its kind, None where it is absent."""

PARTS: dict[str, tuple[str, ...]] = {
    "loss": ("loss", "reduction", "kl", "kl_to", "entropy", "advantage_scale", "rows"),
    "advantage": ("advantage", "shaping", "advantage_norm", "reward_kl", "advantage_clip"),
}
"""What is written together → the fields of a Reading it holds."""

LIMITS = ("log_limit", "log_upper", "input_limit", "output_limit")
RARELY = 10.0
"""A log-ratio, or an estimate, beyond which numbers are those of a broken run."""
SMALL = 1e-2
"""What is added to a divisor only to keep it from 0 is no more."""
_LIMITED = "holds log-ratios or estimates within other safety limits; numbers differ only beyond them."
SOFT: dict[str, str] = {
    **dict.fromkeys(LIMITS, _LIMITED),
    "eps": "adds another eps to the divisor; advantages differ by about that fraction.",
    "eps_at": "adds eps elsewhere in the divisor; advantages differ by about eps.",
    "singleton": "handles a group of one differently; larger groups are the same.",
    "rows": "counts rows without tokens differently in means over sequences; batches without such rows agree.",
    "scope": "gathers over other tokens once a gate has rejected some.",
    "mask": "takes the KL or entropy term over other tokens once a gate has rejected some.",
    "baseline": "computes baselines over other rows once a gate has rejected some.",
}
"""The end of a field's name → what a difference in it means where it is less than another formula. All others are refused."""
Gravity = Literal["", "note", "differs"]
"""What a difference changes: nothing, numbers that hardly anybody meets, or the step."""
OPENING = ("dual", "ratio_cap", "upper")
"""Bounds that a number beyond all ratios leaves open."""


def goal_fields(value: Reading) -> dict[str, Fields]:
    """The fields that a writing of each part has to reproduce; parts the reading does not speak of are left out."""
    found: dict[str, Fields] = {}
    if value.loss is not None or value.reduction is not None:
        spoken = {"loss": value.loss, "reduction": value.reduction}
        said = {name: each for name, each in spoken.items() if each is not None}
        beside = {name: getattr(value, name) for name in PARTS["loss"][2:]} if value.loss is not None else {}
        if value.reduction is None:
            beside.pop("rows", None)
        found["loss"] = fields_of(said | beside)
    if value.advantage is not None:
        found["advantage"] = fields_of({name: getattr(value, name) for name in PARTS["advantage"]})
    return found


def fields_of(value: Mapping[str, Any] | LossPart | AdvantagePart | Reading) -> Fields:
    """Every field of some parts in one mapping, what makes no difference left out."""
    parts = (
        value
        if isinstance(value, Mapping)
        else {name: getattr(value, name) for names in PARTS.values() for name in names if hasattr(value, name)}
    )
    found: Fields = {}
    for name, each in parts.items():
        _add_fields(found, name, _acting(each) if name == "shaping" else each)
    for path in list(found):
        _use_one_spelling(found, path)
    if found.get("kl", True) is None:
        found.pop("kl_to", None)
    if str(found.get("reduction.mode", "")).startswith("token"):
        found.pop("rows", None)
    for term in ("kl", "entropy"):
        _share_reduction(found, term)
    if found.get("advantage.value_lam") == found.get("advantage.lam"):
        found.pop("advantage.value_lam", None)
    if (
        found.get("advantage.gaps") == "step"
        and found.get("advantage.gamma") == 1
        and found.get("advantage.lam", 1) == 1
    ):
        found["advantage.gaps"] = "skip"  # what does not discount does not see them
    return found


def _acting(steps: tuple[Shaping, ...]) -> tuple[Shaping, ...]:
    """Without the steps that change nothing."""
    opened = [
        step.but(
            lower=None if step.lower is not None and step.lower <= -OPEN else step.lower,
            upper=None if step.upper is not None and step.upper >= OPEN else step.upper,
        )
        for step in steps
    ]
    return tuple(step for step in opened if step != Shaping())


def _share_reduction(found: Fields, term: str) -> None:
    """A reduction of a term's own that is the policy term's is none of its own."""
    own = f"{term}.reduction"
    if found.get(f"{own}.mode") is not None and found[f"{own}.mode"] == found.get("reduction.mode"):
        for path in [path for path in found if path.startswith(own)]:
            del found[path]
        found[own] = None


def _add_fields(found: Fields, name: str, value: Any) -> None:
    if isinstance(value, Config):
        fields = value.model_dump()
        found[name] = fields.pop("kind", "on")
        for field in fields:
            _add_fields(found, f"{name}.{field}", getattr(value, field))
    elif isinstance(value, tuple) and any(isinstance(each, Config) for each in cast("tuple[Any, ...]", value)):
        for place, each in enumerate(cast("tuple[Any, ...]", value)):
            _add_fields(found, f"{name}.{place}", each)
    else:
        found[name] = None if value == () else value


def _use_one_spelling(found: Fields, path: str) -> None:
    """One spelling for what computes the same."""
    if path not in found:
        return
    parent, _, name = path.rpartition(".")
    value = found[path]
    if is_number(value) and ((name in OPENING and value >= OPEN) or (name == "lower" and value <= -OPEN)):
        found[path] = None
    if name == "lower" and value == 0 and found.get(parent) == "cispo":
        found[path] = None
    if name == "std" and value in (False, None):
        for idle in ("eps", "unbiased", "std_over", "eps_at", "about"):
            found.pop(f"{parent}.{idle}", None)
        if found.get(parent) == "leave-one-out":  # without a deviation it is RLOO
            found[parent] = "rloo"
            del found[path]
    if (
        name == "about"
        and found.get(f"{parent}.mean") == found.get(f"{parent}.std")
        and not found.get(f"{parent}.leave_one_out")
    ):
        found[path] = "own"  # what was subtracted is the mean of that level
    if name == "level" and value == "token":
        found.pop(f"{parent}.scope", None)
        found.pop(f"{parent}.advantage", None)


def compared(one: Reading, other: Reading) -> Iterator[tuple[PartName, str, Gravity, tuple[Any, Any]]]:
    """Every difference between two readings: its part, its field, what it changes, and the two values.

    What a loss is next to depends on both corrections. A part that only one of them speaks of is not compared.
    """
    for name, grave in rule_gravity(one, other).items():
        yield "correction", name, grave, (one.rule, other.rule)
    rule = next((each.rule for each in (one, other) if turns_away(each.rule)), None)
    a, b = goal_fields(one), goal_fields(other)
    parts: tuple[PartName, ...] = ("loss", "advantage")
    for part in parts:
        if part in a and part in b:
            for path, (grave, ends) in part_gravity(a[part], b[part], rule).items():
                if grave:
                    yield part, path, grave, ends


def is_number(value: Any) -> bool:
    """Whether a field is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def agrees(one: Any, other: Any) -> bool:
    """The same value, up to the rounding of 1 + (x − 1)."""
    if is_number(one) and is_number(other):
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-15)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return list(cast("list[Any]", one)) == list(cast("list[Any]", other))
    return bool(one == other)


def differences(goal: Fields, found: Fields) -> dict[str, tuple[Any, Any]]:
    """Field → what was wanted and what was found, where they do not agree; what the goal does not speak of is free."""
    tops = {path.partition(".")[0] for path in goal}
    paths = [*goal, *(path for path in found if path not in goal and path.partition(".")[0] in tops)]
    return {path: (goal.get(path), found.get(path)) for path in paths if not agrees(goal.get(path), found.get(path))}


def heads(off: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Differences without the fields of what differs as a whole: another kind, or there on one side only."""
    return {path: ends for path, ends in off.items() if not any(path.startswith(f"{other}.") for other in off)}


def in_words(value: Any) -> str:
    """The value of a field in words."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def is_soft(path: str) -> bool:
    """Whether a difference in this field is no more than a remark."""
    return path.rpartition(".")[2] in SOFT


def turns_away(rule: Correction | None) -> bool:
    """Whether a correction takes tokens out of the mask."""
    return rule is not None and any(gate.action == "reject" for gate in canonical(rule).gates)


def gravity(path: str, ends: tuple[Any, Any], rule: Correction | None) -> Gravity:
    """What a difference in a field changes beside a correction."""
    name = path.rpartition(".")[2]
    if name not in SOFT:
        return "differs"
    if name in LIMITS:
        return _of_limits(name, ends)
    if name in ("mask", "baseline"):
        return "differs" if turns_away(rule) else ""
    if name == "scope":  # what is left of a sequence is all of it where rejection takes whole sequences
        return "differs" if rule is not None and turns_away(rule) and not leaves_whole(rule) else ""
    if name == "eps":
        return "note" if all(end is None or abs(end) <= SMALL for end in ends) else "differs"
    return "note"


def _of_limits(name: str, ends: tuple[Any, Any]) -> Gravity:
    bounds = [end for end in ends if end is not None]
    if name != "output_limit" and all(bound >= FAR for bound in bounds):
        return ""
    return "note" if all(bound >= RARELY for bound in bounds) else "differs"


def part_gravity(goal: Fields, found: Fields, rule: Correction | None) -> dict[str, tuple[Gravity, tuple[Any, Any]]]:
    """Field → what its difference changes, and its two values; fields of what differs as a whole are left out."""
    off = differences(goal, found)
    named: dict[str, tuple[Gravity, tuple[Any, Any]]] = {
        path: (gravity(path, ends, rule), ends) for path, ends in off.items()
    }
    whole = {path for path, (grave, _) in named.items() if grave == "differs"}
    return {path: each for path, each in named.items() if not any(path.startswith(f"{other}.") for other in whole)}


def rule_gravity(one: Reading, other: Reading) -> dict[str, Gravity]:
    """What differs between two corrections, by the fields of `Agreement`; nothing where one of them is not known."""
    first, second = one.rule, other.rule
    if first is None or second is None:
        return {}
    same = agreement(first, second)
    if not same.weights:
        return {"weights": "differs"}
    says = [each for each in (one, other) if each.loss is not None]
    has_kl = any(each.kl is not None for each in says)
    has_terms = has_kl or any(each.entropy is not None for each in says)
    found: dict[str, Gravity] = {
        "kept": "" if same.kept else "differs" if has_terms else "note",
        "limits": "" if same.limits else "note" if nearest_limit(first, second) >= RARELY else "differs",
        "denominator": "" if same.denominator else "differs",
        "applies_to": "" if same.applies_to else "differs" if has_kl or not says else "",
    }
    return {name: grave for name, grave in found.items() if grave}
