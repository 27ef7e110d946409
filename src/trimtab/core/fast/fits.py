"""Which calls the fast pass takes: whether this process has it, which tensors it can read, and which rules it can run.

A rule's words are codes here: what has none is left to the plain form.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache

import torch
from torch import Tensor

from trimtab.config.base import Config
from trimtab.config.correction import Correction, Gate, Limit, Weight
from trimtab.core.cached import cache_by_identity
from trimtab.core.layout import Layout, Packed, Padded

VARIABLE = "TRIMTAB_FAST"
"""Set to 0, every call takes the plain form."""
RATIO, K1_FORWARD, K1_REVERSE, K2, SECOND_MOMENT, ABS_LOG_RATIO = range(6)
K3_FORWARD, K3_REVERSE, K3_MAX, RATIO_DEVIATION, MULT_PROB_ERROR = range(6, 11)
DIVERGENCES: dict[tuple[str, str | None], tuple[int, int, bool]] = {
    ("ratio", None): (RATIO, 1, False),
    ("k1", "forward"): (K1_FORWARD, -1, False),
    ("k1", "reverse"): (K1_REVERSE, 1, False),
    ("k2", None): (K2, 0, False),
    ("second_moment", None): (SECOND_MOMENT, 0, False),
    ("abs_log_ratio", None): (ABS_LOG_RATIO, 0, False),
    ("k3", "forward"): (K3_FORWARD, 0, True),
    ("k3", "reverse"): (K3_REVERSE, 0, True),
    ("k3", "max"): (K3_MAX, 0, True),
    ("ratio_deviation", None): (RATIO_DEVIATION, 0, True),
    ("mult_prob_error", None): (MULT_PROB_ERROR, 0, True),
}
"""The code of each divergence (its branch is in `gate.divergence`); 1 or −1 where it is the log-ratio times that; whether it is an
exponential, which two programs round differently: a token at a bound could go either way."""
MEAN, SUM, MAX, MIN, EVERY = range(5)
AGGS = {"mean": MEAN, "sum": SUM, "max": MAX, "min": MIN, "every": EVERY}
REJECT, ZERO_OUT, OBSERVE = range(3)
ACTIONS = {"reject": REJECT, "zero": ZERO_OUT, "observe": OBSERVE}
ONE, TOKEN, GEOMETRIC, SEQUENCE = range(4)
LEVELS = {"one": ONE, "token": TOKEN, "geometric": GEOMETRIC, "sequence": SEQUENCE}
UNLIMITED, ON_TOKENS, ON_GATHERED = range(3)
LIMITS = {None: UNLIMITED, "token": ON_TOKENS, "gathered": ON_GATHERED}
MOST_GATES = 8
_KNOWN: dict[type[Config], frozenset[str]] = {
    Correction: frozenset(["policies", "gates", "weight", "denominator", "applies_to"]),
    Gate: frozenset(
        [
            "metric",
            "level",
            "agg",
            "lower",
            "upper",
            "action",
            "when",
            "advantage_of",
            "strict",
            "pair",
            "direction",
            "scope",
            "limit",
        ]
    ),
    Weight: frozenset(["level", "lower", "upper", "outside", "scope", "limit"]),
    Limit: frozenset(["bound", "at"]),
}
"""The settings the pass was written for. Another one has to be left at its default: what it asks for, only the plain form can know."""


@cache
def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def has_pass() -> bool:
    """Whether tensors on a CPU have a pass in this process."""
    return _has_numba() and os.environ.get(VARIABLE) != "0"


def form_in_use() -> str:
    """Which form calls on a CPU take in this process, in words."""
    if has_pass():
        return "one pass over the tokens, by numba; the plain form where it does not fit"
    return "the plain form: numba is not installed" if not _has_numba() else f"the plain form: {VARIABLE}=0"


def pass_fits(rule: Correction, policies: tuple[Tensor, ...], mask: Tensor, layout: Layout) -> bool:
    """Whether a pass gives the numbers of the plain form for this call: a rule it can run, and tensors it can read, whole and eager."""
    if torch.compiler.is_compiling() or not has_pass():
        return False
    is_readable = is_bare(mask) and mask.numel() > 0 and _is_whole(layout)
    return (
        is_readable and all(is_bare(each) and each.dtype == torch.float32 for each in policies) and misfit(rule) is None
    )


def _is_whole(layout: Layout) -> bool:
    """Whether every sequence lies here from end to end."""
    return isinstance(layout, Padded | Packed) and layout.ranks.context is None


def is_bare(tensor: Tensor) -> bool:
    """Numbers in memory that stand where they seem to: no subclass, no transform of torch.func, nothing strided or conjugate."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
    is_plain = type(tensor) in (Tensor, torch.nn.Parameter) and not wrapped
    return is_plain and tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_neg()


@cache_by_identity
def misfit(rule: Correction) -> str | None:
    """What of a rule the pass cannot do, in one word or two; None: nothing."""
    unknown = next((problem for part in _parts(rule) if (problem := _unknown_setting(part)) is not None), None)
    if unknown is not None:
        return unknown
    if len(rule.gates) > MOST_GATES:
        return "more gates"
    if rule.weight is not None and rule.weight.level not in LEVELS:
        return "a segment weight"
    return next((problem for gate in rule.gates if (problem := _gate_misfit(gate, rule)) is not None), None)


def _parts(rule: Correction) -> list[Config]:
    """A rule and every setting within it."""
    inner = [*rule.gates, *([] if rule.weight is None else [rule.weight])]
    limits = [part.limit for part in inner if part.limit is not None]
    return [rule, *inner, *limits]


def _unknown_setting(part: Config) -> str | None:
    """A setting that the pass knows nothing of and that was set."""
    known, fields = _KNOWN.get(type(part), frozenset[str]()), type(part).model_fields
    return next((name for name in fields if name not in known and getattr(part, name) != fields[name].default), None)


def _gate_misfit(gate: Gate, rule: Correction) -> str | None:
    code = DIVERGENCES.get((gate.metric, gate.direction))
    if gate.level not in ("token", "sequence"):
        return f"a {gate.level} gate"
    if code is None:
        return "a gate on probabilities"
    _, _, is_exponential = code
    if is_exponential and gate.level == "token":
        return "a token gate on an exponential"
    if gate.action not in ACTIONS:
        return "a clamp gate"
    if gate.when != "always":
        return "a gate by the advantage"
    return None if gate.pair in (None, rule.pair) else "a gate on another pair"
