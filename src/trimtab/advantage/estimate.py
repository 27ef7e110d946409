"""`advantages`: an estimator and rewards in; one number per token out.

rewards ──► episodes (failed, no-EOS, shaped, votes) ──► group baseline or returns ──► normalised ──► advantages
                                                              ▲
                                        only rows that vote: with a task reward (baseline kept: and kept)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributed import ProcessGroup

from trimtab.advantage.episodes import Episodes, RawEpisodes, episodes, shaping_of
from trimtab.advantage.gae import gae, path, to_go, token_rewards
from trimtab.advantage.inputs import check_given, check_unread, row_count
from trimtab.advantage.metrics import reward_metrics
from trimtab.advantage.normalise import Votes, standardise
from trimtab.advantage.optimal import optimal_token
from trimtab.advantage.outcome import OUTCOMES, Scores, group_centred, rounding_of, within_bounds
from trimtab.advantage.teacher import teacher_signal
from trimtab.config.advantages import (
    Distillation,
    Estimator,
    Gae,
    Gdpo,
    Normalise,
    OptimalToken,
    ReinforcePlusPlus,
    ReMax,
    Shaping,
)
from trimtab.config.advantages.named import estimator_from
from trimtab.core.arrays import takes_arrays
from trimtab.core.batch import layout_of
from trimtab.core.ranks import ALONE
from trimtab.errors import InputError

AS_GIVEN = Shaping()
"""Rewards as they come."""

READS: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Gae: (("values",), ("bootstrap",)),
    ReMax: (("baselines",), ()),
    OptimalToken: (("proximal", "squares"), ("weight",)),
}
"""What an estimator needs besides rewards and groups, and what it can use."""

OPTIONAL = ("values", "bootstrap", "baselines", "teacher", "proximal", "behavior", "current", "squares", "weight")
"""What only some estimators read; given to another, it is refused and not ignored."""


@dataclass(frozen=True, eq=False)
class Advantages:
    """What each token is worth; everything detached."""

    advantages: Float[Tensor, "*tokens"]
    """0 outside `trained`."""
    trained: Bool[Tensor, "*tokens"]
    """The mask less the rows that failed (a NaN or infinite reward, value…) or were dropped; train on no more than this."""
    rows: Float[Tensor, " rows"] | None
    """The advantage of each sequence, where all its tokens share one."""
    returns: Float[Tensor, "*tokens"] | None
    """The returns a critic learns (GAE), or the discounted reward to come (REINFORCE++, ReMax)."""
    rewards: Float[Tensor, " rows *columns"]
    """The task reward of each sequence as shaped."""
    votes: Bool[Tensor, " rows"]
    """The rows that counted in means and deviations."""
    metrics: Mapping[str, Float[Tensor, ""]]
    """0-d tensors by name, over the whole batch."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """What an estimator found, before the advantages are normalised over tokens."""

    tokens: Float[Tensor, "*tokens"]
    rows: Float[Tensor, " rows"] | None = None
    returns: Float[Tensor, "*tokens"] | None = None
    whiten: Normalise | None = None
    size: Float[Tensor, "*tokens"] | None = None
    """The sizes of what each number is a difference of: their last digits are what it is off by."""


@takes_arrays()
@torch.no_grad()
def advantages(
    estimator: Estimator | str,
    *,
    mask: Tensor,
    rewards: Tensor | None = None,
    group: Tensor | None = None,
    groups: int | None = None,
    kept: Tensor | None = None,
    votes: Tensor | None = None,
    shaping: Shaping | None = None,
    ended: Tensor | None = None,
    values: Tensor | None = None,
    bootstrap: Tensor | None = None,
    baselines: Tensor | None = None,
    token_rewards: Tensor | None = None,
    teacher: Tensor | None = None,
    proximal: Tensor | None = None,
    behavior: Tensor | None = None,
    current: Tensor | None = None,
    squares: Tensor | None = None,
    weight: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    process_group: ProcessGroup | None = None,
) -> Advantages:
    """The advantage of each token, by an estimator or its name. Tokens are padded `[rows, width]`, or packed `[tokens]` with `cu_seqlens`.

    rewards: one per sequence, or one per token (GDPO: `[rows, rewards]`). Packed, with as many tokens as sequences: per sequence.
        Left out only where a teacher alone is followed.
    group: one id per sequence, of the prompt it answers; its members may sit on several ranks. `groups`: their number, if
        the ids are indices below it already; saves a synchronisation.
    kept: what a correction left, per token or per sequence (as `[rows, 1]` where both fit). Read with baseline kept: a row that lost
        all its tokens then neither votes nor gets anything. With baseline all it votes and gets its number; `kept` in the loss is
        what spares it the gradient.
    votes: rows that have a task reward, one per sequence (`Shaped.votes`); left out: all. The others neither vote nor are rewarded,
        whatever the baseline: as rows cut off under no_eos zero.
    ended: whether each sequence ended with EOS (`trimtab.ended`). For shaping with `no_eos`, and for `bootstrap`.
    values, bootstrap: GAE's value of the state before each token, and after the last token of sequences that did not end.
    baselines: ReMax's reward of the greedy answer, one per sequence.
    token_rewards: rewards per token besides the task reward (a KL penalty), on which no group votes; each token gets
        their sum to come.
    teacher: its log-prob of each sampled token, for Distillation, with those of the student it names: `proximal`, `behavior` or
        `current`. A token that lacks one of the two is as if it had never been trained.
    squares, weight: OptimalToken's Σπ² over the vocabulary at each token, of the policy of `proximal`, and the correction's weight
        where there is one.
    process_group: the ranks that hold the batch together. Sequences are whole; split them over context ranks afterwards.
    """
    estimator = estimator_from(estimator)
    shaping = AS_GIVEN if shaping is None else shaping_of(shaping)
    log_probs = {"proximal": proximal, "behavior": behavior, "current": current}
    optional = {"values": values, "bootstrap": bootstrap, "baselines": baselines, "teacher": teacher} | log_probs
    optional |= {"squares": squares, "weight": weight}
    _check(estimator, shaping, {"rewards": rewards, "group": group, "ended": ended} | optional)
    of_rewards = _of_rewards(estimator)
    given = RawEpisodes(
        rewards=_no_rewards(mask, cu_seqlens) if rewards is None else rewards,
        mask=mask,
        group=group,
        groups=groups,
        kept=kept,
        votes=votes,
        values=values,
        bootstrap=bootstrap,
        baselines=baselines,
        token_rewards=token_rewards,
        teacher=teacher,
        student=log_probs[estimator.student] if isinstance(estimator, Distillation) else proximal,
        squares=squares,
        weight=weight,
        ended=ended,
        cu_seqlens=cu_seqlens,
        process_group=process_group,
    )
    columns = len(of_rewards.weights) if isinstance(of_rewards, Gdpo) else None
    batch = episodes(given, shaping, estimator.baseline, columns)
    found = _estimate(estimator, shaping, batch)
    tokens = _whitened(found, batch)
    kind = batch.trained.dtype
    return Advantages(
        advantages=tokens * batch.trained,
        trained=batch.trained.bool(),
        rows=None if found.rows is None else found.rows.to(kind),
        returns=found.returns,
        rewards=batch.reward.to(kind),
        votes=batch.votes.bool(),
        metrics=reward_metrics(batch, rewarded=rewards is not None),
    )


def _of_rewards(estimator: Estimator) -> Estimator:
    """The part of an estimator that looks at rewards and votes on them; the estimator itself where it has no parts."""
    return estimator.base or estimator if isinstance(estimator, Distillation) else estimator


def _no_rewards(mask: Tensor, cu_seqlens: Tensor | None) -> Float[Tensor, " rows"]:
    """A reward of 0 for each sequence, where nothing reads one."""
    return torch.zeros(row_count(layout_of(mask, cu_seqlens, ALONE), mask), device=mask.device)


def _check(estimator: Estimator, shaping: Shaping, given: Mapping[str, Tensor | None]) -> None:
    who, read = type(estimator).__name__, _of_rewards(estimator)
    needed, welcome = READS.get(type(read), ((), ()))
    if isinstance(estimator, Distillation):
        needed = (*needed, "teacher", estimator.student)
    for name in needed:
        check_given(who, name, given[name])
    for name in set(OPTIONAL).difference(needed, welcome):
        check_unread(who, name, given[name])
    if isinstance(read, Distillation):
        check_unread(who, "rewards", given["rewards"])
    else:
        check_given(who, "rewards", given["rewards"])
    norms = [each.normalise for each in (estimator, read) if each.normalise is not None]
    levels = [level for norm in norms for level in (norm.mean, norm.std)]
    centred = isinstance(read, ReinforcePlusPlus) and read.group_mean
    if type(read) in OUTCOMES or isinstance(read, OptimalToken) or "group" in levels or centred:
        check_given(who, "group", given["group"])
    if given["bootstrap"] is not None:
        check_given("A value after the end (bootstrap)", "ended", given["ended"])
    if shaping.no_eos == "bootstrap":
        if not isinstance(read, Gae):
            raise InputError(
                f"Shaping with no_eos bootstrap needs Gae, got {who}. Only a critic knows what would follow."
            )
        check_given("Shaping with no_eos bootstrap", "bootstrap", given["bootstrap"])


def _estimate(estimator: Estimator, shaping: Shaping, batch: Episodes) -> Estimate:
    if isinstance(estimator, Distillation):
        return _distillation(estimator, shaping, batch)
    task = batch.reward if batch.per_token is None else None
    if isinstance(estimator, Gae):
        tokens, returns = gae(estimator, batch, task, _bootstrap(shaping, batch))
        values = batch.given.values
        assert values is not None
        size = batch.clean(values).abs() + returns.abs()
        return Estimate(tokens, returns=returns, whiten=estimator.normalise, size=size)
    if isinstance(estimator, ReMax):
        way, greedy = path(batch, "skip"), batch.given.baselines
        assert greedy is not None
        returns = to_go(way, token_rewards(batch, way, task), 1.0)
        less = batch.spread(torch.nan_to_num(greedy.detach().double(), posinf=0.0, neginf=0.0) * batch.tasked)
        size = returns.abs() + less.abs()
        return Estimate(returns - less, returns=returns, whiten=estimator.normalise, size=size)
    if isinstance(estimator, OptimalToken):
        way = path(batch, "skip")
        returns = to_go(way, token_rewards(batch, way, task), 1.0)
        found = optimal_token(estimator, batch, returns)
        return Estimate(found, returns=returns, whiten=estimator.normalise, size=returns.abs())
    if isinstance(estimator, ReinforcePlusPlus):
        way = path(batch, estimator.gaps)
        if estimator.group_mean:
            task = (
                within_bounds(estimator, group_centred(estimator.singleton, batch.sample(batch.reward))) * batch.votes
            )
        elif task is not None:
            task = within_bounds(estimator, task) * batch.tasked
        elif (estimator.lower, estimator.upper) != (None, None):
            raise InputError(
                "ReinforcePlusPlus with lower or upper needs one reward per sequence, got one per token. Bound them before."
            )
        returns = to_go(way, token_rewards(batch, way, task), estimator.gamma)
        return Estimate(returns, returns=returns, whiten=estimator.normalise)
    return _outcome(estimator, batch)


def _distillation(estimator: Distillation, shaping: Shaping, batch: Episodes) -> Estimate:
    """The teacher's log-ratio on every token, and on top of it what rewards say, normalised by their own settings."""
    teacher, student = batch.given.teacher, batch.given.student
    assert teacher is not None
    assert student is not None
    own = teacher_signal(estimator, teacher, student, batch.trained)
    size = (batch.clean(teacher).abs() + batch.clean(student).abs()) * estimator.coefficient
    if estimator.base is None:
        return Estimate(own, whiten=estimator.normalise, size=size)
    found = _estimate(estimator.base, shaping, batch)
    rewarded = _whitened(found, batch)
    return Estimate(rewarded + own, returns=found.returns, whiten=estimator.normalise, size=size + rewarded.abs())


def _outcome(estimator: Estimator, batch: Episodes) -> Estimate:
    """One advantage per row, over its tokens; rewards per token come on top."""
    lengths = batch.layout.total(batch.voting.double())
    columns = batch.reward if batch.reward.ndim == 2 else None
    sample = batch.sample(batch.reward if columns is None else columns[:, 0])
    scores = Scores(sample, lengths, columns, rounding_of(batch.given.rewards.dtype))
    found = OUTCOMES[type(estimator)](estimator, scores)
    parts = (found if found.ndim == 2 else found.unsqueeze(-1)) * batch.votes.unsqueeze(-1)
    rows, rounding = parts.sum(-1), parts.abs().sum(-1) * torch.finfo(batch.trained.dtype).eps
    norm, extra = estimator.normalise, batch.given.token_rewards
    if norm is not None and (norm.unit == "sequence" or extra is None):
        weight = batch.votes if norm.unit == "sequence" else batch.votes * lengths
        sample = Votes(rows, weight, batch.levels, rounding=rounding if found.ndim == 2 else None)
        rows, norm = standardise(norm, sample) * batch.votes, None
    tokens = batch.spread(rows)
    if extra is None:
        return Estimate(tokens, rows=rows)
    return Estimate(tokens + to_go(path(batch, "skip"), batch.clean(extra).flatten(), 1.0), whiten=norm)


def _bootstrap(shaping: Shaping, batch: Episodes) -> Float[Tensor, " rows"] | None:
    """The value after each row's end where it did not end there; with no_eos zero, a row without EOS ends at 0."""
    after, truncated = batch.given.bootstrap, batch.truncated
    if after is None or truncated is None or shaping.no_eos == "zero":
        return None
    return torch.where(truncated & (batch.not_dropped > 0), after.detach().double(), 0.0)


def _whitened(found: Estimate, batch: Episodes) -> Float[Tensor, "*tokens"]:
    """What an estimator found, normalised over tokens where that is asked for."""
    tokens = found.tokens
    if found.whiten is None:
        return tokens
    size = tokens.abs() if found.size is None else tokens.abs() + found.size
    rounding = (size * batch.trained).double() * torch.finfo(tokens.dtype).eps
    values, votes = (tokens * batch.trained).double(), batch.voting.double()
    sample = Votes(values, votes, batch.levels, batch.layout, rounding)
    return standardise(found.whiten, sample).to(tokens.dtype)
