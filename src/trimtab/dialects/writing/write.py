"""`write`: our values in a framework's keys, or a refusal that says what is lost."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from trimtab.config.advantages import Estimator
from trimtab.config.algebra import Correction
from trimtab.config.losses import EntropyBonus, KlPenalty, Objective, Reduction
from trimtab.dialects.bounds import bound_findings
from trimtab.dialects.dialect import Dialect
from trimtab.dialects.fields import (
    AFTER_GATES,
    SOFT,
    Fields,
    differences,
    fields_of,
    goal_fields,
    in_words,
    is_soft,
    turns_away,
)
from trimtab.dialects.frameworks import dialect_of
from trimtab.dialects.lookup import look_up
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Finding, Level, Reading, Writing
from trimtab.dialects.same import Same, sameness
from trimtab.dialects.settings import flat_settings
from trimtab.dialects.writing.inverse import inverse
from trimtab.dialects.writing.proposals import as_tree, proposals, settings_for
from trimtab.dialects.writing.refusals import Lost, lost_fields, obstacle, part_not_read, refusal_by_part
from trimtab.errors import ConfigError, ConfigWarning

MOST_WAYS = 6
"""Ways of saying a correction that are tried with a loss beside it."""


def write(
    framework: str,
    correction: Correction | Reading | None = None,
    loss: Objective | None = None,
    advantage: Estimator | None = None,
    reduction: Reduction | None = None,
    *,
    kl: KlPenalty | None = None,
    entropy: EntropyBonus | None = None,
) -> Writing:
    """The settings under which a framework computes these; refused, part by part, where none does.

    A Reading in place of the correction stands for all it holds. What the framework handles in its own way without changing the
    formula (safety limits, eps, groups of one, a denominator) is a finding.
    """
    dialect = dialect_of(framework)
    if isinstance(correction, Reading):
        asked = correction
    else:
        said = {"loss": loss, "reduction": reduction, "kl": kl, "entropy": entropy, "advantage": advantage}
        asked = Reading("trimtab", correction, **said)  # pyright: ignore[reportArgumentType]
    goals = goal_fields(asked)
    if asked.correction is None and not goals:
        raise ConfigError(
            f"Writing {dialect.title} settings needs a correction, a loss, a reduction or an advantage, got none of them."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        attempt = _attempt(dialect, asked, goals)
        if attempt.lost:
            raise ConfigError(
                refusal_by_part(dialect, [*(["correction"] if asked.correction else []), *goals], attempt.lost)
            )
    return Writing(dialect.name, as_tree(attempt.settings), attempt.findings)


@dataclass(frozen=True)
class Attempt:
    """Settings, what each part of them loses, and what is to be said about the rest."""

    settings: dict[str, Any]
    lost: dict[str, Lost]
    findings: tuple[Finding, ...] = ()


def _attempt(dialect: Dialect, asked: Reading, goals: dict[str, Fields]) -> Attempt:
    """The attempt that loses least: each way of saying the correction, with the loss and the advantage beside it."""
    if asked.correction is None:
        return _beside(dialect, asked, goals, {})
    ways = settings_for(dialect, asked.correction)
    if not ways and "loss" in goals:  # some corrections come only with their loss
        ways = [{}, *proposals(dialect, asked.correction)]
        ways = [way for way in ways if not _beside(dialect, asked, {"loss": goals["loss"]}, way).lost]
    if not ways:
        rest = _beside(dialect, replace(asked, correction=None), goals, {}) if goals else Attempt({}, {})
        return Attempt(rest.settings, {"correction": partial(obstacle, dialect, asked.correction), **rest.lost})
    tried: list[Attempt] = []
    for settings in ways[:MOST_WAYS]:
        tried.append(_beside(dialect, asked, goals, settings))
        if not tried[-1].lost:
            break
    return min(tried, key=lambda each: len(each.lost))


def _beside(dialect: Dialect, asked: Reading, goals: dict[str, Fields], start: dict[str, Any]) -> Attempt:
    """A correction's settings completed by those of the loss and the advantage, read back and judged."""
    settings = dict(start)
    try:
        for part, goal in goals.items():
            settings |= _part_settings(dialect, part, goal, settings)
        if not settings:
            return Attempt({}, {part: part_not_read(dialect, part) for part in goals})
        back = read(dialect.name, as_tree(settings))
    except ConfigError as error:
        return Attempt(settings, dict.fromkeys(goals, f"this beside the rest: {str(error).rstrip('.')}"))
    lost: dict[str, Lost] = {}
    found: list[Finding] = []
    anchor = _anchor(dialect, asked, back, bool(goals.get("loss")))
    if anchor:
        lost["correction" if asked.correction is not None else "loss"] = anchor
    elif asked.correction is not None and back.correction is not None:
        found += _correction_findings(dialect, asked.correction, sameness(asked.correction, back.correction), settings)
    for part, goal in goals.items():
        there = fields_of(back)
        off = differences(goal, there)
        hard = {path: off.pop(path) for path in list(off) if not is_soft(path)}
        if hard:
            lost[part] = lost_fields(dialect, part, hard, there)
        key = next((path for path in settings if path not in start), next(iter(settings)))
        found += _field_findings(dialect, asked, key, off)
    return Attempt(settings, lost, (*found, *_target_findings(dialect, settings, back)))


def _target_findings(dialect: Dialect, settings: dict[str, Any], back: Reading) -> Iterator[Finding]:
    """The target's own findings. What it computes is what was wanted, so a defect needs no remedy; doubts are the source's."""
    doubted = {
        each.text for each in bound_findings(look_up(dialect, flat_settings(as_tree(settings))), back.correction)
    }
    for each in back.findings:
        if each.level == "defect":
            yield Finding(each.key, "note", f"Taken into account in these settings, change nothing: {each.text}")
        elif each.text not in doubted:
            yield each


def _part_settings(dialect: Dialect, part: str, goal: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """One part by full names, beside what is said already."""
    pinned = look_up(dialect, flat_settings(as_tree(settings))).values if settings else {}
    paths = {key.label: key.path for key in dialect.keys}
    found = inverse(dialect, part, goal, pinned)
    return {paths[label]: value for label, value in {**found, **dialect.hints.beside(found)}.items()}


def _anchor(dialect: Dialect, asked: Reading, back: Reading, has_loss: bool) -> Lost | None:
    """What becomes of the correction, and of the policy that the loss divides by, once all is said together."""
    if asked.correction is not None:
        if back.correction is None or not sameness(asked.correction, back.correction).weights:
            rule = asked.correction
            return lambda: f"{obstacle(dialect, rule)} beside this loss"
        return None
    bypass = has_loss and back.correction is not None and back.correction.policies == "bypass"
    return "a ratio to proximal: its ratio would be current/behavior (policies bypass)" if bypass else None


def _correction_findings(
    dialect: Dialect, rule: Correction, agreement: Same, settings: dict[str, Any]
) -> list[Finding]:
    """What the target does in its own way."""
    key = next(iter(settings))
    found: list[Finding] = []
    if not agreement.kept:
        text = (
            f"{dialect.title} and the source differ in whether tokens turned away leave the mask or stay in it with weight 0; the "
            "policy loss is the same, KL and entropy terms may not be."
        )
        found.append(Finding(key, "note", text))
    if not agreement.limits:
        text = f"{dialect.title} holds log-ratios within other safety limits; numbers differ only where |log_r| is beyond them."
        found.append(Finding(key, "note", text))
    if not agreement.denominator:
        counted = "after" if rule.denominator == "trained" else "before"
        text = f"{dialect.title} divides the loss by the tokens {counted} rejection; the source counts the other way."
        found.append(Finding(key, "surprise", text))
    if not agreement.applies_to:
        text = "The source and the target differ in whether the weight also multiplies the KL term; check beta."
        found.append(Finding(key, "surprise", text))
    return found


def _field_findings(dialect: Dialect, asked: Reading, key: str, off: dict[str, tuple[Any, Any]]) -> list[Finding]:
    """What the target computes a little differently, each kind of difference once."""
    rejects = turns_away(asked.correction)
    found: dict[tuple[Level, str], list[str]] = {}
    for path, (want, there) in off.items():
        name = path.rpartition(".")[2]
        if name not in AFTER_GATES or rejects:
            found.setdefault(SOFT[name], []).append(f"{path}: {in_words(want)} becomes {in_words(there)}")
    return [
        Finding(key, level, f"{dialect.title} {text} ({', '.join(said)}.)") for (level, text), said in found.items()
    ]
