"""What each rule would do to this batch: whom it keeps, what it weighs, how much of the step is left."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trimtab.config.correction import Correction, Gate
from trimtab.config.presets import BYPASS, PRESETS, preset
from trimtab.core.batch import batch as tensors_of
from trimtab.core.correct import correct, decide
from trimtab.core.inputs import checked_layout
from trimtab.core.metrics import rules_on_trial
from trimtab.core.ranks import ALONE
from trimtab.dialects.candidate import Candidate
from trimtab.errors import ConfigWarning, InputError
from trimtab.explain.thresholds import PRINTED_SHARES, SHARES, gate_distance, gate_sentence, gates_of, threshold_form
from trimtab.records.saved import SavedBatch

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class KeepCurve:
    """A gate and the thresholds that would keep some share of the tokens."""

    gate: str
    form: str
    """What a threshold t means."""
    points: tuple[tuple[float, float, float | None, float | None], ...]
    """Threshold, share of tokens kept, and that of right and of wrong answers; from lenient to strict."""
    keeping: Mapping[str, float]
    """The thresholds that keep 99, 90 and 50 %."""


@dataclass(frozen=True)
class RuleOutcome:
    """One rule on the batch; shares are of trained tokens that have both log-probs."""

    label: str
    correction: Correction
    kept: float
    sequences: float
    """Share of the sequences of which any token is left."""
    right: float | None
    """Share kept of the tokens of right answers; None without rewards."""
    wrong: float | None
    net_advantage: float | None
    """Mean advantage of what is kept."""
    short: float
    """Share kept of the tokens of the shortest third of the sequences, and of the longest."""
    long: float
    weight: float
    """Mean weight of what is kept."""
    ess: float
    """Effective sample size, as a share of the trained tokens."""
    step: float
    """What is left of the step: weights over the tokens that the loss divides by."""
    curves: tuple[KeepCurve, ...]
    tokens: int
    """Trained tokens with the log-probs that the rule needs: what it was worked out on."""


@dataclass(frozen=True, eq=False)
class WhatIf:
    """All rules on one batch."""

    outcomes: tuple[RuleOutcome, ...]
    agreement: NDArray[np.float64]
    """[rules, rules]: share of trained tokens on which two rules agree whether they count."""
    left_out: tuple[str, ...]
    """Rules that could not be worked out, or on fewer tokens than others, each with the reason."""


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The batch as `correct` takes it: packed."""

    log_probs: Mapping[str, torch.Tensor]
    trained: torch.Tensor
    bounds: torch.Tensor
    advantage: torch.Tensor | None
    right: Flags | None
    """By token; where there is no reward, neither right nor wrong."""
    wrong: Flags | None
    short: Flags
    long: Flags
    sequence: NDArray[np.int64]


def what_if(saved: SavedBatch, rules: Sequence[Candidate] = ()) -> WhatIf:
    """Every preset and these rules on the batch."""
    inputs = _inputs(saved)
    outcomes: list[RuleOutcome] = []
    counted: list[Flags] = []
    left_out: list[str] = []
    curves: dict[str, KeepCurve] = {}
    for each in [*_presets(inputs), *rules]:
        try:
            outcome, counts = _outcome(each, inputs, curves)
        except InputError as error:
            left_out.append(f"{each.label}: {error}")
            continue
        outcomes.append(outcome)
        counted.append(counts)
    return WhatIf(tuple(outcomes), _agreement(counted), (*left_out, *_partly(outcomes)))


def _partly(outcomes: Sequence[RuleOutcome]) -> list[str]:
    """A sentence for rules that saw fewer tokens than others did: their shares are of those alone."""
    most = max((each.tokens for each in outcomes), default=0)
    fewer: dict[int, list[str]] = {}
    for each in outcomes:
        if each.tokens < most:
            fewer.setdefault(each.tokens, []).append(each.label)
    return [
        f"{', '.join(labels)}: worked out on {count:,} of {most:,} tokens, as the others lack a log-prob that is needed."
        for count, labels in fewer.items()
    ]


def _presets(inputs: _Inputs) -> list[Candidate]:
    found: list[Candidate] = []
    with warnings.catch_warnings():  # that a preset hardly acts is what the table shows
        warnings.simplefilter("ignore", ConfigWarning)
        for name, each in PRESETS.items():
            bypass = "proximal" not in inputs.log_probs and each.two_policies
            label = f"{BYPASS}{name}" if bypass else name
            found.append(Candidate(label, preset(label)))
    return found


def _inputs(saved: SavedBatch) -> _Inputs:
    columns = {name: getattr(saved, name) for name in ("behavior", "proximal", "current")}
    present = {
        name: torch.from_numpy(np.asarray(values, np.float32)) for name, values in columns.items() if values is not None
    }
    if "proximal" in present and "current" not in present:
        present["current"] = present["proximal"]  # at the start of a step they are one
    sequence, trained = saved.sequence, saved.trained
    lengths = np.bincount(sequence[trained], minlength=len(saved))
    low, high = np.quantile(lengths[lengths > 0], [1 / 3, 2 / 3]) if (lengths > 0).any() else (0, 0)
    right = wrong = None
    given = np.empty(0) if saved.reward is None else saved.reward[np.isfinite(saved.reward)]
    if saved.reward is not None and len(given) and given.max() > given.min():
        middle = (given.max() + given.min()) / 2
        right, wrong = ((saved.reward > middle)[sequence], (saved.reward <= middle)[sequence])
    advantage = None if saved.advantage is None else torch.from_numpy(np.asarray(saved.advantage, np.float32))
    return _Inputs(
        present,
        torch.from_numpy(trained),
        torch.from_numpy(saved.offsets.astype(np.int64)),
        advantage,
        right,
        wrong,
        (lengths <= low)[sequence],
        (lengths >= high)[sequence],
        sequence,
    )


def _outcome(each: Candidate, inputs: _Inputs, curves: dict[str, KeepCurve]) -> tuple[RuleOutcome, Flags]:
    rule = each.correction
    needed = {name: inputs.log_probs.get(name) for name in ("behavior", "proximal", "current") if name in rule.needs}
    given: dict[str, Any] = {name: values for name, values in needed.items() if values is not None}
    if rule.needs_advantages and inputs.advantage is None:
        raise InputError("it acts by the sign of the advantage, and the batch has none.")
    if "behavior" not in given or len(given) < len(needed):
        raise InputError(f"it needs {', '.join(name for name in needed if name not in given)} log-probs.")
    advantages = inputs.advantage if rule.needs_advantages else None
    with rules_on_trial():
        found = correct(rule, mask=inputs.trained, cu_seqlens=inputs.bounds, advantages=advantages, **given)
    trained, kept, weight = (each.numpy() for each in (found.trained, found.kept, found.weight))
    counts = kept & (weight > 0)
    weighed, total = weight[trained].astype(np.float64), max(int(trained.sum()), 1)
    denominator = total if rule.denominator == "trained" else max(int(kept.sum()), 1)
    present = np.bincount(inputs.sequence[trained]) > 0
    alive = np.bincount(inputs.sequence[counts], minlength=len(present)) > 0
    net = None if inputs.advantage is None or not counts.any() else float(np.nanmean(inputs.advantage.numpy()[counts]))
    outcome = RuleOutcome(
        label=each.label,
        correction=rule,
        kept=float(counts.sum()) / total,
        sequences=float(alive.sum() / max(present.sum(), 1)),
        right=None if inputs.right is None else _share(counts, trained & inputs.right),
        wrong=None if inputs.wrong is None else _share(counts, trained & inputs.wrong),
        net_advantage=net,
        short=_share(counts, trained & inputs.short),
        long=_share(counts, trained & inputs.long),
        weight=float(weight[counts].mean()) if counts.any() else 0.0,
        ess=float(weighed.sum() ** 2 / max((weighed**2).sum(), 1e-300) / total),
        step=float(weighed.sum()) / denominator,
        curves=tuple(_curve(gate, inputs, curves) for gate in gates_of(rule)),
        tokens=int(trained.sum()),
    )
    return outcome, counts[
        inputs.trained.numpy()
    ]  # rules may lack different log-probs: all are compared over the same tokens


def _share(part: Flags, whole: Flags) -> float:
    return float((part & whole).sum() / max(whole.sum(), 1))


def _curve(gate: Gate, inputs: _Inputs, known: dict[str, KeepCurve]) -> KeepCurve:
    """What a gate on its own would keep at other thresholds; worked out once for each form of a gate."""
    key = (
        f"{gate.metric} {gate.direction} {gate.level} {gate.agg} {gate.lower is None} {gate.upper is None} {gate.limit}"
    )
    if key not in known:
        known[key] = _curve_of(gate, inputs)
    curve = known[key]
    return KeepCurve(gate_sentence(gate), curve.form, curve.points, curve.keeping)


def _curve_of(gate: Gate, inputs: _Inputs) -> KeepCurve:
    rule = Correction(gates=(gate,))
    target = inputs.log_probs.get("proximal", inputs.log_probs["current"])
    given = {"behavior": inputs.log_probs["behavior"], "proximal": target, "current": target}
    layout = checked_layout(given, inputs.trained, inputs.bounds, ALONE)
    tensors = tensors_of(given, rule.pairs, inputs.trained, layout, advantages=None)
    found = decide(rule, tensors).results[0]
    real = (found.counted > 0).flatten().numpy()
    low, high, tokens = (each.flatten().double().numpy()[real] for each in (found.low, found.high, found.counted))
    distance = gate_distance(gate, low, high)
    right, wrong = (_by_unit(flags, found, inputs, real) for flags in (inputs.right, inputs.wrong))
    order = np.argsort(distance, kind="stable")
    reached = np.cumsum(tokens[order]) / max(tokens.sum(), 1e-300)

    def threshold(share: float) -> float:
        return (
            float(distance[order][min(int(np.searchsorted(reached, share - 1e-12)), len(order) - 1)])
            if len(order)
            else 1.0
        )

    points: list[tuple[float, float, float | None, float | None]] = []
    for share in SHARES:
        bound = threshold(share)
        stays = tokens * (distance <= bound)
        of_right, of_wrong = (
            None if which is None else float(stays[which].sum() / max(tokens[which].sum(), 1e-300))
            for which in (right, wrong)
        )
        points.append((bound, float(stays.sum() / max(tokens.sum(), 1e-300)), of_right, of_wrong))
    keeping = {f"{share:.0%}": threshold(share) for share in PRINTED_SHARES}
    return KeepCurve(gate_sentence(gate), threshold_form(gate), tuple(points), keeping)


def _by_unit(flags: Flags | None, found: Any, inputs: _Inputs, real: Flags) -> Flags | None:
    """The flag of each unit of a gate; None where units are neither tokens nor sequences."""
    if flags is None:
        return None
    if found.units is None:
        return flags[real] if len(real) == len(flags) else None
    rows = len(inputs.bounds) - 1
    if len(real) != rows:
        return None
    by_row = np.zeros(rows, np.bool_)
    by_row[inputs.sequence] = flags
    return by_row[real]


def _agreement(counted: Sequence[Flags]) -> NDArray[np.float64]:
    many = len(counted)
    found = np.ones((many, many))
    for one in range(many):
        for other in range(one):
            found[one, other] = found[other, one] = (
                float((counted[one] == counted[other]).mean()) if len(counted[one]) else 1.0
            )
    return found
