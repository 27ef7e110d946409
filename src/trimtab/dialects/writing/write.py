"""`write`: our values in a framework's keys, whole or, where that is asked for, as far as it goes."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from trimtab.config.advantages import Estimator
from trimtab.config.correction import Correction
from trimtab.config.losses import EntropyBonus, KlPenalty, Objective, Reduction
from trimtab.dialects.equivalence import agreement, with_idle_clip, with_plain_rewards
from trimtab.dialects.fields import Fields, fields_of, goal_fields, is_soft, part_gravity
from trimtab.dialects.framework import Dialect
from trimtab.dialects.lookup import look_up
from trimtab.dialects.parts import OFF
from trimtab.dialects.reading import NOTHING, Finding, Omission, PartName, Reading, Writing
from trimtab.dialects.registry import dialect_of
from trimtab.dialects.sources.settings import flat_settings
from trimtab.dialects.writing.candidates import as_tree, offers, proposals, read_back, settings_for
from trimtab.dialects.writing.messages import (
    correction_remarks,
    field_remarks,
    first_unsupported,
    lost_fields,
    lost_kind,
    refusal_by_part,
    target_remarks,
)
from trimtab.dialects.writing.search import inverse
from trimtab.errors import ConfigError, ConfigWarning

_How = Callable[[Dialect, Reading, Mapping[str, Fields]], "Attempt"]


def write(
    framework: str,
    correction: Correction | Reading | None = None,
    loss: Objective | None = None,
    advantage: Estimator | None = None,
    reduction: Reduction | None = None,
    *,
    kl: KlPenalty | None = None,
    entropy: EntropyBonus | None = None,
    strict: bool = True,
    nearest: bool = False,
) -> Writing:
    """The settings under which a framework computes these.

    A Reading in place of the correction stands for all it holds, the absence of a correction included. The settings are read back as
    those of a whole run, with the framework's defaults for the rest, and compared with what was asked for. What the framework handles
    in its own way where hardly any number meets it (safety limits, eps, groups of one) is a finding. What it cannot say is refused;
    with `strict` off it is left out or written as near as the framework comes, and listed (`Writing.omissions`), and with `nearest` a
    correction that it cannot say is exchanged for the first that is offered.
    """
    dialect = dialect_of(framework)
    if isinstance(correction, Reading):
        asked = correction
    else:
        said = {"loss": loss, "reduction": reduction, "kl": kl, "entropy": entropy, "advantage": advantage}
        asked = Reading("trimtab", correction, **said)  # pyright: ignore[reportArgumentType]
    if asked.correction is None and not goal_fields(asked):
        raise ConfigError(
            f"Writing {dialect.title} settings needs a correction, a loss, a reduction or an advantage, got none of them."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        found = _whole(dialect, asked) if strict and not nearest else _as_far_as_it_goes(dialect, asked, nearest)
    return Writing(dialect.name, as_tree(found.settings), found.findings, found.lost)


def _whole(dialect: Dialect, asked: Reading) -> Attempt:
    found = _best(dialect, asked, attempt)
    if found.lost:
        raise ConfigError(_refusal(dialect, asked, found))
    return found


def _as_far_as_it_goes(dialect: Dialect, asked: Reading, nearest: bool) -> Attempt:
    exchanged: tuple[Omission, ...] = ()
    if nearest and asked.correction is not None:
        first = attempt(dialect, asked, goal_fields(asked))
        lost = next((each for each in first.lost if each.part == "correction"), None)
        if lost is not None and lost.offers:
            offer = lost.offers[0]
            text = f"{dialect.title} does not support {lost.text}; written instead: {offer.words}"
            exchanged = (Omission("correction", "", text, whole=False),)
            asked = replace(asked, correction=offer.correction)
    found = _best(dialect, asked, largest_attempt)
    if found.lost_parts >= {*(["correction"] if asked.correction is not None else []), *goal_fields(asked)}:
        raise ConfigError(_refusal(dialect, asked, found))
    return replace(found, lost=(*exchanged, *found.lost))


def _best(dialect: Dialect, asked: Reading, how: _How) -> Attempt:
    """The attempt, or that of the same rewards or the same loss said in other words where it loses less."""
    found = how(dialect, asked, goal_fields(asked))
    for part, in_other_words in (("advantage", with_plain_rewards), ("loss", with_idle_clip)):
        other = in_other_words(asked)
        if other != asked and any(each.part == part for each in found.lost):
            tried = how(dialect, other, goal_fields(other))
            found = min(found, tried, key=lambda each: (len(each.lost_parts), len(each.lost)))
    return found


def _refusal(dialect: Dialect, asked: Reading, found: Attempt) -> str:
    parts: dict[str, Fields | None] = {"correction": None} if asked.correction is not None else {}
    lost = {each.part for each in found.lost}
    return refusal_by_part(dialect, found.lost, [part for part in (*parts, *goal_fields(asked)) if part not in lost])


# ── one attempt ───────────────────────────────────────────────────────────────────────────────────────────────────────
# A correction, a loss and an advantage said together: settings, read back and judged.

MOST_WAYS = 6
"""Ways of saying a correction that are tried with a loss beside it."""


@dataclass(frozen=True)
class Attempt:
    """Settings by full name, what they miss, and what is to be said about the rest."""

    settings: dict[str, Any]
    lost: tuple[Omission, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def lost_parts(self) -> set[str]:
        """The parts of which nothing can be said."""
        return {each.part for each in self.lost if each.whole}


def attempt(dialect: Dialect, asked: Reading, goals: Mapping[str, Fields]) -> Attempt:
    """The attempt that loses least: each way of saying the correction, with the loss and the advantage beside it."""
    if asked.correction is None:
        return _without_correction(dialect, asked, goals)
    tried: list[Attempt] = []
    for settings in itertools.islice(_ways(dialect, asked, goals), MOST_WAYS):
        tried.append(_beside(dialect, asked, goals, settings))
        if not tried[-1].lost:
            break
    if tried:
        return min(tried, key=lambda each: (len(each.lost_parts), len(each.lost)))
    lost = Omission("correction", "", first_unsupported(dialect, asked.correction), offers(dialect, asked.correction))
    rest = _without_correction(dialect, _uncorrected(asked), goals) if goals else Attempt({})
    return replace(rest, lost=(lost, *rest.lost))


def _without_correction(dialect: Dialect, asked: Reading, goals: Mapping[str, Fields]) -> Attempt:
    """Without a correction: as the framework begins, or with its correction switched off where that loses less."""
    found = _beside(dialect, asked, goals, {})
    if not found.lost:
        return found
    others = [_beside(dialect, asked, goals, way) for way in settings_for(dialect, OFF)]
    return min([found, *others], key=lambda each: (len(each.lost_parts), len(each.lost)))


def largest_attempt(dialect: Dialect, asked: Reading, goals: Mapping[str, Fields]) -> Attempt:
    """As many parts as can be said together, and what keeps out the others."""
    whole = attempt(dialect, asked, goals)
    parts = [*(["correction"] if asked.correction is not None else []), *goals]
    for count in range(len(parts) - 1, 0, -1):
        if not whole.lost_parts:
            break
        for kept in itertools.combinations(parts, count):
            found = attempt(dialect, _only(asked, kept), {part: goals[part] for part in kept if part in goals})
            if not found.lost_parts:
                missing = [_missing(whole, dialect, cast("PartName", part)) for part in parts if part not in kept]
                return replace(found, lost=(*missing, *found.lost))
    return whole


def _missing(whole: Attempt, dialect: Dialect, part: PartName) -> Omission:
    """Why a part is not among those that can be said together."""
    named = next((each for each in whole.lost if each.part == part and each.whole), None)
    return named or Omission(part, "", f"{dialect.title} does not support it together with the rest")


def _only(asked: Reading, kept: tuple[str, ...]) -> Reading:
    return asked if "correction" in kept else _uncorrected(asked)


def _uncorrected(asked: Reading) -> Reading:
    """The rest of what was asked for: what stands in for a correction that cannot be said is none, not the target's own."""
    return replace(asked, correction=None, uncorrected=asked.uncorrected or asked.correction is not None)


def _ways(dialect: Dialect, asked: Reading, goals: Mapping[str, Fields]) -> Iterator[dict[str, Any]]:
    """Settings for the correction; some corrections come only with their loss."""
    assert asked.correction is not None
    ways = settings_for(dialect, asked.correction)
    if ways or "loss" not in goals:
        return iter(ways)
    more = [{}, *proposals(dialect, asked.correction)]
    return (way for way in more if not _beside(dialect, asked, {"loss": goals["loss"]}, way).lost)


def _beside(dialect: Dialect, asked: Reading, goals: Mapping[str, Fields], start: dict[str, Any]) -> Attempt:
    """A correction's settings completed by those of the loss and the advantage, read back and judged."""
    settings = dict(start)
    try:
        for part, goal in goals.items():
            settings |= _part_settings(dialect, part, goal, settings, asked)
        if not settings:
            return Attempt({}, tuple(lost_kind(dialect, cast("PartName", part), str(goals[part])) for part in goals))
        back, *others = read_back(dialect, settings)
    except ConfigError as error:
        why = f"{dialect.title} does not support this together with the rest: {str(error).rstrip('.')}"
        return Attempt(settings, tuple(Omission(cast("PartName", part), "", why) for part in goals))
    lost = [*_anchor(dialect, asked, [back, *others], bool(goals.get("loss")))]
    found: list[Finding] = []
    if not lost:
        missed, noted = correction_remarks(dialect, asked, back, settings)
        lost += missed
        found += noted
    for part, goal in goals.items():
        missed, noted = _judge(dialect, asked, cast("PartName", part), goal, settings, back)
        lost += missed
        found += noted
    return Attempt(settings, tuple(lost), (*found, *target_remarks(dialect, settings, back)))


def _judge(
    dialect: Dialect, asked: Reading, part: PartName, goal: Fields, settings: dict[str, Any], back: Reading
) -> tuple[list[Omission], list[Finding]]:
    """What of a part is lost, and what comes out a little otherwise."""
    there = fields_of(back)
    off = part_gravity(goal, there, asked.rule)
    hard = {path: ends for path, (grave, ends) in off.items() if grave == "differs" and not is_soft(path)}
    if part in hard:
        return [lost_kind(dialect, part, str(hard[part][0]))], []
    missed = lost_fields(dialect, part, settings, hard, goal, there) if hard else []
    soft = {path: each for path, each in off.items() if is_soft(path)}
    changed, noted = field_remarks(dialect, part, settings, soft)
    return [*missed, *changed], noted


def _part_settings(
    dialect: Dialect, part: str, goal: Fields, settings: dict[str, Any], asked: Reading
) -> dict[str, Any]:
    """One part by full names, beside what is said already."""
    pinned = look_up(dialect, flat_settings(as_tree(settings))).values if settings else {}
    paths = {key.label: key.path for key in dialect.keys}
    found = inverse(dialect, part, goal, pinned, asked.values if asked.framework == dialect.name else None)
    return {paths[label]: value for label, value in {**found, **dialect.beside(found)}.items()}


def _anchor(dialect: Dialect, asked: Reading, backs: Sequence[Reading], has_loss: bool) -> Iterator[Omission]:
    """What becomes of the correction, and of the policy that the loss divides by, once all is said together."""
    rules = [back.rule for back in backs]
    is_bypass = any(rule is not None and rule.policies == "bypass" for rule in rules)
    if asked.correction is not None:
        if not all(rule is not None and agreement(asked.correction, rule).weights for rule in rules):
            text = f"{first_unsupported(dialect, asked.correction)} beside this loss"
            yield Omission("correction", "", text, offers(dialect, asked.correction))
    elif has_loss and is_bypass:
        yield Omission("loss", "", "a ratio to proximal: its ratio would be current/behavior (policies bypass)")
    elif asked.uncorrected and not all(rule is None or agreement(NOTHING, rule).weights for rule in rules):
        there = "the ratio would be current/behavior (policies bypass)" if is_bypass else "it has one here"
        yield Omission("correction", "", f"a step without a correction: {there}", whole=False)
