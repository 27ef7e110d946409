"""`write`: our values in a framework's keys, whole or, where that is asked for, as far as it goes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace

from trimtab.config.advantages import Estimator
from trimtab.config.algebra import Correction
from trimtab.config.losses import EntropyBonus, KlPenalty, Objective, Reduction
from trimtab.dialects.fields import Fields, goal_fields
from trimtab.dialects.framework import Dialect
from trimtab.dialects.reading import Omission, Reading, Writing
from trimtab.dialects.registry import dialect_of
from trimtab.dialects.writing.attempt import Attempt, attempt, largest_attempt
from trimtab.dialects.writing.idle_clip import with_idle_clip
from trimtab.dialects.writing.plain_rewards import with_plain_rewards
from trimtab.dialects.writing.proposals import as_tree
from trimtab.dialects.writing.refusals import refusal_by_part
from trimtab.errors import ConfigError, ConfigWarning

_How = Callable[[Dialect, Reading, Mapping[str, Fields]], Attempt]


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
            text = f"{dialect.title} cannot say {lost.text}; taken: {offer.words}"
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
