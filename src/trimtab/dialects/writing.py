"""`write`: our values in a framework's keys, or a refusal that says what is lost."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Weight
from trimtab.config.words import UNITS, metric_name, statistic
from trimtab.dialects.frameworks import dialect, read
from trimtab.dialects.keys import Dialect
from trimtab.dialects.reading import Finding, Reading, Writing
from trimtab.dialects.same import Same, as_gate, compared, plainest, rejecting, zeroing
from trimtab.errors import ConfigError, ConfigWarning


def write(framework: str, value: Correction | Reading) -> Writing:
    """The settings under which a framework computes this correction; refused where none does.

    A safety limit, a denominator or a weighted KL term that the framework handles in its own way is a finding.
    """
    speech = dialect(framework)
    rule = value.correction if isinstance(value, Reading) else value
    if rule is None:
        raise ConfigError(f"Writing {speech.title} settings needs a correction, got a reading without one.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        found = _best(speech, rule)
        if found is None:
            raise ConfigError(f"{speech.title} cannot say {_obstacle(speech, rule)}.")
    settings, agreement, back = found
    return Writing(
        framework=speech.name,
        settings=nested(settings),
        findings=(*_losses(speech, rule, agreement, settings), *back.findings),
    )


def _best(speech: Dialect, rule: Correction) -> tuple[dict[str, Any], Same, Reading] | None:
    """The first settings that read back to the same decisions; those that agree in everything go first."""
    found: list[tuple[dict[str, Any], Same, Reading]] = []
    for settings in _candidates(speech, rule):
        try:
            back = read(speech.name, nested(settings))
        except ConfigError:
            continue
        if back.correction is None:
            continue
        agreement = compared(rule, back.correction)
        if agreement.weights:
            found.append((settings, agreement, back))
    found.sort(key=lambda each: -sum((each[1].kept, each[1].limits, each[1].denominator, each[1].applies_to)))
    return found[0] if found else None


def _candidates(speech: Dialect, rule: Correction) -> Iterator[dict[str, Any]]:
    """Proposals for each way of writing the same correction."""
    plain = plainest(rule)
    forms = [rule, plain, as_gate(rule), as_gate(plain), zeroing(plain), as_gate(zeroing(plain)), rejecting(plain)]
    for form in forms:
        if form is not None:
            yield from speech.candidates(form)


def _obstacle(speech: Dialect, rule: Correction) -> str:
    """The first part that cannot be said by itself, else the combination."""
    for gate in rule.gates:
        if gate.action == "clamp":
            continue
        alone = Correction(policies=rule.policies, gates=(gate,))
        if any(_best(speech, alone.but(weight=weight)) is not None for weight in (None, rule.weight)):
            continue
        where = "" if gate.when == "always" else f" that acts on {gate.when.replace('_', ' ')}"
        tested = metric_name(gate) if gate.agg is None else f"{metric_name(gate)} ({statistic(gate)})"
        named = f"a gate on {tested} of {UNITS[gate.level]} with action {gate.action}{where}"
        levels = ("geometric", "token", "sequence")
        forced = next(
            (each for each in levels if _best(speech, alone.but(weight=Weight(level=each))) is not None), None
        )
        return named if forced is None else f"{named} without weighing what passes by its {forced} ratio"
    if rule.weight is not None and rule.weight.level != "one":
        alone = Correction(policies=rule.policies, weight=rule.weight, normalize=rule.normalize)
        if _best(speech, alone) is None:
            normal = ", normalised" if rule.normalize else ""
            return f"a weight at level {rule.weight.level} with outside {rule.weight.outside}{normal}"
    names = [f"{metric_name(gate)} of {UNITS[gate.level]}" for gate in rule.gates]
    weight = rule.weight.level if rule.weight is not None else "one"
    return (
        f"this combination: gates on {', '.join(names) or 'nothing'} with a weight at level {weight} ({rule.policies})"
    )


def _losses(speech: Dialect, rule: Correction, agreement: Same, settings: dict[str, Any]) -> list[Finding]:
    """What the target does in its own way."""
    key = next(iter(settings))
    found: list[Finding] = []
    if not agreement.kept:
        text = (
            f"{speech.title} and the source differ in whether tokens turned away leave the mask or stay in it with weight 0; the "
            "policy loss is the same, KL and entropy terms may not be."
        )
        found.append(Finding(key, "note", text))
    if not agreement.limits:
        text = f"{speech.title} holds log-ratios within other safety limits; numbers differ only where |log_r| is beyond them."
        found.append(Finding(key, "note", text))
    if not agreement.denominator:
        counted = "after" if rule.denominator == "trained" else "before"
        text = f"{speech.title} divides the loss by the tokens {counted} rejection; the source counts the other way."
        found.append(Finding(key, "surprise", text))
    if not agreement.applies_to:
        text = "The source and the target differ in whether the weight also multiplies the KL term; check beta."
        found.append(Finding(key, "surprise", text))
    return found


def nested(settings: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys as a tree."""
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        *parents, name = path.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = value
    return tree
