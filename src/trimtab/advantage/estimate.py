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
from trimtab.advantage.inputs import check_given, check_unread, row_count
from trimtab.advantage.normalise import Votes, moments, standardise
from trimtab.advantage.outcome import OUTCOMES, Scores, rounding_of
from trimtab.advantage.teacher import log_gap, teacher_signal, teacher_sums
from trimtab.advantage.token_level import TOKEN_LEVEL, Estimate, path, to_go
from trimtab.config.advantages import ESTIMATORS, Distillation, Estimator, Gae, Gdpo, Shaping
from trimtab.config.advantages import estimator as estimator_of_kind
from trimtab.config.base import of_kind
from trimtab.core.inputs import layout_of, takes_arrays
from trimtab.core.ranks import ALONE
from trimtab.core.ratio import indicator
from trimtab.core.sums import as_metric
from trimtab.errors import InputError

AS_GIVEN = Shaping()
"""Rewards as they come."""

NAMED = {
    kind: each()
    for kind, each in ESTIMATORS.items()
    if not any(field.is_required() for field in each.model_fields.values())
}
"""Estimators by name, each made beforehand: nothing is validated while a step is compiled."""

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


def estimator_from(value: object) -> Estimator:
    """An estimator as it is, or the one of that name."""
    if isinstance(value, str):
        return NAMED[value] if value in NAMED else estimator_of_kind(value)
    return of_kind(Estimator, value, "advantages needs an estimator or its name", 'trimtab.Grpo() or "grpo"')


def _of_rewards(estimator: Estimator) -> Estimator:
    """The part of an estimator that looks at rewards and votes on them; the estimator itself where it has no parts."""
    return estimator.base or estimator if isinstance(estimator, Distillation) else estimator


def _no_rewards(mask: Tensor, cu_seqlens: Tensor | None) -> Float[Tensor, " rows"]:
    """A reward of 0 for each sequence, where nothing reads one."""
    return torch.zeros(row_count(layout_of(mask, cu_seqlens, ALONE), mask), device=mask.device)


def _check(estimator: Estimator, shaping: Shaping, given: Mapping[str, Tensor | None]) -> None:
    who, read = type(estimator).__name__, _of_rewards(estimator)
    for name in estimator.reads:
        check_given(who, name, given[name])
    for name in OPTIONAL:
        if name not in (*estimator.reads, *estimator.welcomes):
            check_unread(who, name, given[name])
    if isinstance(read, Distillation):
        check_unread(who, "rewards", given["rewards"])
    else:
        check_given(who, "rewards", given["rewards"])
    if estimator.needs_group:
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
    if type(estimator) in TOKEN_LEVEL:
        return TOKEN_LEVEL[type(estimator)](estimator, shaping, batch)
    return _outcome(estimator, batch)


def _distillation(estimator: Distillation, shaping: Shaping, batch: Episodes) -> Estimate:
    """The teacher's log-ratio on every token, and on top of it what rewards say, normalised by their own settings."""
    teacher, student = batch.given.teacher, batch.given.student
    assert teacher is not None
    assert student is not None
    signal = teacher_signal(estimator, teacher, student, batch.trained)
    size = (batch.clean(teacher).abs() + batch.clean(student).abs()) * estimator.coefficient
    if estimator.base is None:
        return Estimate(signal, whiten=estimator.normalise, size=size)
    table = _estimate(estimator.base, shaping, batch)
    rewarded = _whitened(table, batch)
    return Estimate(rewarded + signal, returns=table.returns, whiten=estimator.normalise, size=size + rewarded.abs())


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


def reward_metrics(batch: Episodes, *, rewarded: bool) -> dict[str, Tensor]:
    """Counts over the whole batch: of rows, and of groups with no, one, or agreeing votes; how far the student is from its teacher."""
    reward = batch.reward if batch.reward.ndim == 1 else batch.reward.sum(-1)
    truncated = torch.zeros_like(batch.votes) if batch.truncated is None else batch.truncated.double()
    local = [torch.ones_like(batch.votes), batch.votes, batch.failed, truncated, batch.votes * reward]
    counts = batch.levels["batch"].total(torch.stack(local, -1))[0]
    rows, votes, failed, unended, total = counts.unbind()
    found = {"rows": rows, "nonvoting_rows": rows - votes, "failed_rows": failed, "truncated_rows": unended}
    if rewarded:
        found["reward_mean"] = total / votes.clamp(min=1.0)
    if rewarded and "group" in batch.levels:
        found |= _group_metrics(batch)
    if batch.unknown is not None:
        found |= _token_metrics(batch, batch.unknown)
    return {name: as_metric(value) for name, value in found.items()}


def _token_metrics(batch: Episodes, unknown: Tensor) -> dict[str, Tensor]:
    """What share of the tokens could not be read, and two estimates of the KL to a teacher."""
    teacher, student = batch.given.teacher, batch.given.student
    masked = indicator(batch.given.mask.detach(), torch.float64)
    local = [batch.trained.double().sum(), masked.sum(), unknown.double().sum()]
    if teacher is not None and student is not None:
        local += teacher_sums(log_gap(teacher, student, batch.trained), batch.trained)
    trained, number, missing, *distances = batch.levels["batch"].ranks.total(torch.stack(local)).unbind()
    found = {"unknown_fraction": missing / number.clamp(min=1.0)}
    names = ("teacher_k1", "teacher_k3") if distances else ()
    return found | {name: each / trained.clamp(min=1.0) for name, each in zip(names, distances, strict=True)}


def _group_metrics(batch: Episodes) -> dict[str, Tensor]:
    groups = batch.levels["group"]
    columns = batch.reward.unsqueeze(-1) if batch.reward.ndim == 1 else batch.reward
    varies = torch.stack([moments(batch.sample(column), "group").varies for column in columns.unbind(-1)]).amax(0)
    members, varied = groups.total(torch.stack([batch.votes, batch.votes * varies], -1)).unbind(-1)
    return {
        "groups": (members > 0).double().sum(),
        "singleton_groups": (members == 1).double().sum(),
        "zero_variance_groups": ((members > 1) & (varied == 0)).double().sum(),
        "silent_groups": (members == 0).double().sum(),
    }
