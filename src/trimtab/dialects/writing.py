"""`write`: our values in a framework's keys, or a refusal that says what is lost."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trimtab.config.advantages import Estimator
from trimtab.config.algebra import Correction, Weight
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.config.words import UNITS, metric_name, statistic
from trimtab.dialects.frameworks import dialect, read
from trimtab.dialects.inverse import inverse, kinds
from trimtab.dialects.keys import Dialect, given
from trimtab.dialects.leaves import AFTER_GATES, SOFT, Leaves, differences, is_soft, plain, turns_away, wanted
from trimtab.dialects.reading import Finding, Level, Reading, Writing
from trimtab.dialects.same import Same, as_gate, compared, plainest, rejecting, zeroing
from trimtab.dialects.settings import flat
from trimtab.errors import ConfigError, ConfigWarning

MOST = 6
"""Ways of saying a correction that are tried with a loss beside it."""


def write(
    framework: str,
    correction: Correction | Reading | None = None,
    loss: Objective | None = None,
    advantage: Estimator | None = None,
    reduction: Reduction | None = None,
    *,
    kl: KlPenalty | None = None,
) -> Writing:
    """The settings under which a framework computes these; refused, part by part, where none does.

    A Reading in place of the correction stands for all it holds. What the framework handles in its own way without changing the
    formula (safety limits, eps, groups of one, a denominator) is a finding.
    """
    speech = dialect(framework)
    if isinstance(correction, Reading):
        asked = correction
    else:
        asked = Reading("trimtab", correction, loss=loss, reduction=reduction, kl=kl, advantage=advantage)
    goals = wanted(asked)
    if asked.correction is None and not goals:
        raise ConfigError(
            f"Writing {speech.title} settings needs a correction, a loss, a reduction or an advantage, got none of them."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        attempt = _attempt(speech, asked, goals)
    if attempt.lost:
        raise ConfigError(_refusal(speech, asked, goals, attempt))
    return Writing(speech.name, nested(attempt.settings), attempt.findings)


@dataclass(frozen=True)
class Attempt:
    """Settings, what each part of them loses, and what is to be said about the rest."""

    settings: dict[str, Any]
    lost: dict[str, str]
    findings: tuple[Finding, ...] = ()


def _attempt(speech: Dialect, asked: Reading, goals: dict[str, Leaves]) -> Attempt:
    """The attempt that loses least: each way of saying the correction, with the loss and the advantage beside it."""
    if asked.correction is None:
        return _beside(speech, asked, goals, {})
    ways = _best(speech, asked.correction)
    if not ways and "loss" in goals:  # some corrections come only with their loss
        ways = [{}, *_candidates(speech, asked.correction)]
        ways = [way for way in ways if not _beside(speech, asked, {"loss": goals["loss"]}, way).lost]
    if not ways:
        rest = _beside(speech, replace(asked, correction=None), goals, {}) if goals else Attempt({}, {})
        return Attempt(rest.settings, {"correction": _obstacle(speech, asked.correction), **rest.lost})
    tried: list[Attempt] = []
    for settings in ways[:MOST]:
        tried.append(_beside(speech, asked, goals, settings))
        if not tried[-1].lost:
            break
    return min(tried, key=lambda each: len(each.lost))


def _beside(speech: Dialect, asked: Reading, goals: dict[str, Leaves], start: dict[str, Any]) -> Attempt:
    """A correction's settings completed by those of the loss and the advantage, read back and judged."""
    settings, paths = dict(start), {key.label: key.path for key in speech.keys}
    for part, goal in goals.items():
        pinned = given(speech, flat(nested(settings))).values if settings else {}
        settings |= {paths[label]: _plainly(value) for label, value in inverse(speech, part, goal, pinned).items()}
    if not settings:
        return Attempt({}, {part: _missing(speech, part) for part in goals})
    lost: dict[str, str] = {}
    try:
        back = read(speech.name, nested(settings))
    except ConfigError as error:
        return Attempt(settings, dict.fromkeys(goals, f"this beside the rest: {str(error).rstrip('.')}"))
    found: list[Finding] = []
    anchor = _anchor(speech, asked, back, bool(goals.get("loss")))
    if anchor:
        lost["correction" if asked.correction is not None else "loss"] = anchor
    elif asked.correction is not None and back.correction is not None:
        found += _losses(speech, asked.correction, compared(asked.correction, back.correction), settings)
    for part, goal in goals.items():
        there = plain(back)
        off = differences(goal, there)
        hard = {path: off.pop(path) for path in list(off) if not is_soft(path)}
        if hard:
            lost[part] = _lost(speech, part, hard, there)
        key = next((path for path in settings if path not in start), next(iter(settings)))
        found += _soft(speech, asked, key, off)
    return Attempt(settings, lost, (*found, *back.findings))


def _plainly(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _anchor(speech: Dialect, asked: Reading, back: Reading, has_loss: bool) -> str | None:
    """What becomes of the correction, and of the policy that the loss divides by, once all is said together."""
    if asked.correction is not None:
        if back.correction is None or not compared(asked.correction, back.correction).weights:
            return f"{_obstacle(speech, asked.correction)} beside this loss"
        return None
    bypass = has_loss and back.correction is not None and back.correction.policies == "bypass"
    return "a ratio to proximal: its ratio would be current/behavior (policies bypass)" if bypass else None


def _best(speech: Dialect, rule: Correction) -> list[dict[str, Any]]:
    """Settings that read back to the same decisions; those that agree in everything go first."""
    found: list[tuple[dict[str, Any], Same]] = []
    for settings in _candidates(speech, rule):
        try:
            back = read(speech.name, nested(settings))
        except ConfigError:
            continue
        if back.correction is None:
            continue
        agreement = compared(rule, back.correction)
        if agreement.weights and settings not in [each for each, _ in found]:
            found.append((settings, agreement))
    found.sort(key=lambda each: -sum((each[1].kept, each[1].limits, each[1].denominator, each[1].applies_to)))
    return [settings for settings, _ in found]


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
        if any(_best(speech, alone.but(weight=weight)) for weight in (None, rule.weight)):
            continue
        where = "" if gate.when == "always" else f" that acts on {gate.when.replace('_', ' ')}"
        tested = metric_name(gate) if gate.agg is None else f"{metric_name(gate)} ({statistic(gate)})"
        named = f"a gate on {tested} of {UNITS[gate.level]} with action {gate.action}{where}"
        levels = ("geometric", "token", "sequence")
        forced = next((each for each in levels if _best(speech, alone.but(weight=Weight(level=each)))), None)
        return named if forced is None else f"{named} without weighing what passes by its {forced} ratio"
    if rule.weight is not None and rule.weight.level != "one":
        alone = Correction(policies=rule.policies, weight=rule.weight, normalize=rule.normalize)
        if not _best(speech, alone):
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


def _soft(speech: Dialect, asked: Reading, key: str, off: dict[str, tuple[Any, Any]]) -> list[Finding]:
    """What the target computes a little differently, each kind of difference once."""
    rejects = turns_away(asked.correction)
    found: dict[tuple[Level, str], list[str]] = {}
    for path, (want, there) in off.items():
        name = path.rpartition(".")[2]
        if name not in AFTER_GATES or rejects:
            found.setdefault(SOFT[name], []).append(f"{path}: {_told(want)} becomes {_told(there)}")
    return [Finding(key, level, f"{speech.title} {text} ({', '.join(said)}.)") for (level, text), said in found.items()]


def _missing(speech: Dialect, part: str) -> str:
    return f"no {part} of {speech.title}'s is read here, so none can be written"


def _lost(speech: Dialect, part: str, hard: dict[str, tuple[Any, Any]], back: Leaves) -> str:
    """The fields that would change, with what would become of them."""
    if part in hard:
        known = kinds(speech, part)
        return f"it has no {hard[part][0]}, only {', '.join(known)}" if known else _missing(speech, part)
    told = {path: ends for path, ends in hard.items() if path in back} or hard
    return ", ".join(f"{path} {_told(want)} would become {_told(there)}" for path, (want, there) in told.items())


def _told(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _refusal(speech: Dialect, asked: Reading, goals: dict[str, Leaves], attempt: Attempt) -> str:
    """Every part that is lost and how, then what can be said without it."""
    told = "; nor ".join(text if part == "correction" else f"the {part}: {text}" for part, text in attempt.lost.items())
    parts = [*(["correction"] if asked.correction is not None else []), *goals]
    rest = [part for part in parts if part not in attempt.lost]
    offer = f" Without it the {' and the '.join(rest)} can be said (--only {','.join(rest)})." if rest else ""
    return f"{speech.title} cannot say {told}.{offer}"


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
