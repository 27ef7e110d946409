"""Whether the values are real and of tokens that were sampled: prompt or padding in the mask, numbers that stand for none."""

from __future__ import annotations

import numpy as np

from trimtab.audit.causes.evidence import CauseResult, inconclusive
from trimtab.audit.gap import FLOOR, Bools, Floats, Gap, Ints
from trimtab.records.saved import SavedBatch

SURE_SHARED = 12.0
"""−log of the chance of an accident, in all groups together and beyond twice their number."""
USUAL = 4.0
"""The same in one group, from which it is counted as sharing its beginning."""
UNLIKELY = float(np.log(0.4))
RUN = 3
"""Equal tokens at the end of a sequence from which it is padding."""
MOST_FILLERS = 50


def mask(gap: Gap, batch: SavedBatch) -> CauseResult:
    """The mask holds tokens that nobody sampled: a beginning that all samples of a group share, an end of one repeated token."""
    if batch.tokens is None:
        return inconclusive("token ids")
    prompt, groups, shared = _prompt(gap, batch)
    padding, ends = _padding(gap, batch)
    bad = np.zeros(len(batch.trained), np.bool_)
    bad[prompt] = bad[padding] = True
    inside = bad[gap.at]
    share = float((bad & batch.trained).sum() / max(batch.trained.sum(), 1))
    statistic = (
        f"In {shared:,} of {groups:,} groups all samples start with the same trained tokens, beyond chance; {ends:,} of {len(batch):,} "
        f"sequences end in {RUN} or more identical trained tokens."
    )
    if not share:
        if not groups:
            return inconclusive("groups of at least two samples", statistic)
        return CauseResult(verdict="ruled out", statistic=statistic)
    rest = gap.where(~inside)
    what = " and ".join(name for name, there in (("the prompt", len(prompt)), ("padding", len(padding))) if there)
    return CauseResult(
        verdict="found",
        statistic=statistic,
        rest=rest,
        share=_share(gap, rest),
        remedy=f"Take {what} out of the mask: {share:.1%} of its tokens were never sampled.",
    )


def _both_sides(gap: Gap, batch: SavedBatch) -> tuple[Floats, Floats]:
    """The log-probs of every token of the batch, of those too that lack one side."""
    return np.asarray(getattr(batch, gap.target), np.float64), np.asarray(batch.behavior, np.float64)


def _share(gap: Gap, rest: Gap) -> float:
    total = gap.size * len(gap)
    return 1 - rest.size * len(rest) / total if total else 0.0


def _prompt(gap: Gap, batch: SavedBatch) -> tuple[Ints, int, int]:
    """Trained tokens shared by all samples of their group, the groups that could be judged, and those that share any."""
    if batch.group is None or batch.tokens is None:
        return np.empty(0, np.int64), 0, 0
    scored, behavior = _both_sides(gap, batch)
    # The likelier of the two sides, lest a sharper sampler pass for a prompt; an exact 0, or none, says nothing.
    likely = np.nan_to_num(np.where(behavior < 0, np.fmax(scored, behavior), scored), nan=0.0, neginf=-20.0)
    order = np.argsort(batch.group, kind="stable")
    changes = np.flatnonzero(np.diff(batch.group[order])) + 1
    bounds = np.array([0, *changes.tolist(), len(order)]) if len(order) else np.zeros(1, np.int64)
    found: list[Ints] = []
    judged = shared = 0
    surprise = 0.0
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        members = order[low:high]
        if len(members) < 2 or batch.group[members[0]] < 0:
            continue
        judged += 1
        same = _common(batch, members)
        starts = batch.offsets[members]
        own = [np.flatnonzero(batch.trained[start : start + same]) + start for start in starts.tolist()]
        first = likely[own[0]]
        # −log of the chance that the others repeat unlikely tokens; likely ones anybody repeats. Sampled freely, its mean is at most 1.
        surprisal = -(len(members) - 1) * float(first[first < UNLIKELY].sum())
        surprise += surprisal
        shared += surprisal > USUAL
        found += own
    if surprise < 2 * judged + SURE_SHARED:
        return np.empty(0, np.int64), judged, shared
    return np.concatenate(found), judged, shared


def _common(batch: SavedBatch, members: Ints) -> int:
    """Tokens with which all of them begin."""
    assert batch.tokens is not None
    parts = [batch.tokens[batch.offsets[each] : batch.offsets[each + 1]] for each in members]
    length = min(len(part) for part in parts)
    for part in parts[1:]:
        differ = np.flatnonzero(part[:length] != parts[0][:length])
        length = int(differ[0]) if len(differ) else length
    return length


def _padding(gap: Gap, batch: SavedBatch) -> tuple[Ints, int]:
    """Trained tokens in runs of one id at the end of many sequences, an id that stands nowhere else."""
    assert batch.tokens is not None
    tokens, sequence = batch.tokens, batch.sequence
    ends = batch.offsets[1:] - 1
    real = batch.lengths > 0
    last = (
        np.where(real, tokens[np.clip(ends, 0, max(len(tokens) - 1, 0))], -1) if len(tokens) else np.empty(0, np.int64)
    )
    other = (tokens != last[sequence]) | ~batch.trained if len(tokens) else np.empty(0, np.bool_)
    index = np.where(other, np.arange(len(tokens)), -1)
    nearest_other = np.full(len(batch), -1)
    np.maximum.at(nearest_other, sequence, index)
    nearest_other = np.maximum(nearest_other, batch.offsets[:-1] - 1)
    run = np.where(real, ends - nearest_other, 0)
    long = run >= RUN
    if long.sum() < max(2, 0.05 * len(batch)):
        return np.empty(0, np.int64), int(long.sum())
    ids, counts = np.unique(last[long], return_counts=True)
    pad = ids[np.argmax(counts)]
    inner = int(((tokens == pad) & batch.trained).sum()) - int(run[long & (last == pad)].sum())
    whole = long & (last == pad)
    scored, _ = _both_sides(gap, batch)
    tail = np.arange(len(tokens)) > nearest_other[sequence] + 1
    tail_scores = scored[tail & whole[sequence]]
    if np.isfinite(tail_scores).any() and np.nanmean(tail_scores) > np.log(
        0.5
    ):  # a text that repeats itself is likely; padding is not
        return np.empty(0, np.int64), int(long.sum())
    if inner > 0.05 * run[whole].sum() + len(batch) or counts.max() < 0.8 * long.sum():
        return np.empty(0, np.int64), int(long.sum())
    chosen = np.arange(len(tokens)) > nearest_other[sequence]
    return np.flatnonzero(chosen & (last == pad)[sequence] & batch.trained), int(long.sum())


def filled(gap: Gap) -> Bools:
    """Tokens whose log-prob is one exact number that many share, though the other side tells them apart."""
    found = np.zeros(len(gap), np.bool_)
    for own, other in ((gap.behavior, gap.scored), (gap.scored, gap.behavior)):
        found |= own > 1e-3  # no log-prob is above 0
        for value in _common_values(own):
            here = own == value
            far = here & (np.abs(other - value) > 0.7)
            # A fill meets any token; an honest value has the other side near it.
            least = 0.05 if value == 0.0 else 0.2
            if far.sum() >= 5 and far.sum() > least * here.sum() and np.ptp(other[far]) > 0.7:
                found |= here & (np.abs(other - value) > FLOOR)
    return found


def _common_values(values: Floats) -> Floats:
    """Exact values that occur often, the commonest first."""
    known, counts = np.unique(values, return_counts=True)
    often = np.flatnonzero(counts >= max(5, 5e-4 * len(values)))
    return known[often[np.argsort(-counts[often])]][:MOST_FILLERS]


def missing(gap: Gap) -> CauseResult:
    """Log-probs that were never returned, as NaN or as a number that stands for one."""
    absent = filled(gap)
    every = len(gap) + gap.missing
    values = sorted(set(np.round(gap.behavior[absent][:10_000], 4).tolist()), key=abs)[:3]
    statistic = (
        f"{gap.missing:,} of {every:,} trained tokens have no log-prob; {int(absent.sum()):,} have one value in common"
        f"{' (' + ', '.join(f'{value:g}' for value in values) + ')' if absent.any() else ''}."
    )
    rest = gap.where(~absent)
    if absent.mean() > 5e-4 if len(gap) else False:
        return CauseResult(verdict="found", statistic=statistic, share=_share(gap, rest), rest=rest)
    if gap.missing > 0.001 * every:
        return CauseResult(verdict="found", statistic=statistic, share=0.0)
    return CauseResult(verdict="suspected" if absent.any() or gap.missing else "ruled out", statistic=statistic)
