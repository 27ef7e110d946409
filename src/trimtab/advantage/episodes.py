"""The sequences of one call, checked, made finite and shaped: what is rewarded, who is trained, who votes.

given ──► checks ──► failed rows out ──► no-EOS rows ──► task reward shaped ──► votes ──► task reward normalised
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributed import ProcessGroup

from trimtab.advantage import inputs
from trimtab.advantage.normalise import Groups, Votes, levels, standardise
from trimtab.advantage.teacher import known_tokens
from trimtab.config.advantages import Baseline, Level, Overlong, Shaping
from trimtab.config.base import of_kind
from trimtab.core.inputs import column_per_token, layout_of
from trimtab.core.layout import Layout
from trimtab.core.ranks import Ranks
from trimtab.core.ratio import indicator, is_finite, working_type, zero_outside
from trimtab.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class RawEpisodes:
    """The tensors of a call as they came."""

    rewards: Tensor
    mask: Tensor
    group: Tensor | None = None
    groups: int | None = None
    kept: Tensor | None = None
    votes: Tensor | None = None
    values: Tensor | None = None
    bootstrap: Tensor | None = None
    baselines: Tensor | None = None
    token_rewards: Tensor | None = None
    teacher: Tensor | None = None
    student: Tensor | None = None
    squares: Tensor | None = None
    weight: Tensor | None = None
    ended: Tensor | None = None
    cu_seqlens: Tensor | None = None
    process_group: ProcessGroup | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Episodes:
    """Finite numbers and indicators, per token in the working type, per row in float64."""

    given: RawEpisodes
    layout: Layout
    levels: Mapping[Level, Groups]
    trained: Float[Tensor, "*tokens"]  # the mask less the rows that failed or were dropped
    voting: Float[Tensor, "*tokens"]  # the tokens that count in statistics
    reward: Float[Tensor, "rows *columns"]  # the task reward as shaped; 0 where a row gets none
    per_token: Float[Tensor, "*tokens"] | None  # the same, where it came per token
    tasked: Float[Tensor, " rows"]  # rows that get a task reward
    votes: Float[Tensor, " rows"]
    failed: Float[Tensor, " rows"]
    not_dropped: Float[Tensor, " rows"]  # neither failed nor dropped
    truncated: Bool[Tensor, " rows"] | None  # rows that did not end
    unknown: Float[Tensor, "*tokens"] | None = (
        None  # masked tokens without a number per token that is read; None: none is
    )

    @property
    def rows(self) -> int:
        """How many sequences this rank holds."""
        return len(self.votes)

    def sample(self, value: Float[Tensor, " rows"]) -> Votes:
        """One value per row, to be voted on."""
        return Votes(value, self.votes, self.levels)

    def spread(self, row: Float[Tensor, " rows"]) -> Float[Tensor, "*tokens"]:
        """One value per row over its tokens, in the working type."""
        return self.layout.spread(row.to(self.trained.dtype))

    def clean(self, value: Tensor) -> Float[Tensor, "*tokens"]:
        """Values per token, 0 where nothing is trained."""
        return zero_outside(value.detach(), self.trained)


def shaping_of(asked: object) -> Shaping:
    """The shaping asked for, or one sentence."""
    return of_kind(Shaping, asked, "shaping needs to be a Shaping", 'trimtab.Shaping(no_eos="zero")')


def episodes(given: RawEpisodes, shaping: Shaping, baseline: Baseline, columns: int | None = None) -> Episodes:
    """Check and clean a call. `columns`: how many rewards each sequence has, where that is not one."""
    ranks = Ranks(batch=given.process_group)
    layout = layout_of(given.mask, given.cu_seqlens, ranks)
    rows = inputs.row_count(layout, given.mask)
    if given.kept is not None:
        given = replace(given, kept=column_per_token(given.kept, rows, given.mask, layout))
    by_token = columns is None and given.rewards.shape == given.mask.shape and tuple(given.rewards.shape) != (rows,)
    _check(given, shaping, rows, by_token, columns)
    read = (
        given.rewards,
        given.values,
        given.token_rewards,
        given.baselines,
        given.bootstrap,
        given.teacher,
        given.student,
    )
    kind = working_type(*read)
    masked, unknown = indicator(given.mask.detach(), kind), None
    known = known_tokens(given.teacher, given.student, given.squares, given.weight)
    if known is not None:  # as if such a token had never been trained
        masked, unknown = masked * known.to(kind), masked * (1.0 - known.to(kind))
    complete = torch.ones(rows, dtype=torch.float64, device=given.mask.device)
    if shaping.no_eos != "keep" and given.ended is not None:
        complete = indicator(given.ended, torch.float64)
    scored = complete if given.votes is None else complete * indicator(given.votes.detach(), torch.float64)
    finite = _finite_rows(given, layout, masked, scored, by_token)
    tasked = finite * scored
    not_dropped = finite * complete if shaping.no_eos == "drop" else finite
    trained = masked * layout.spread(not_dropped.to(kind))
    voting, votes = _votes(given, layout, trained, tasked, baseline)
    found = levels(rows, given.group, given.groups, given.mask.device, ranks)
    per_token = zero_outside(given.rewards, trained) * layout.spread(tasked.to(kind)) if by_token else None
    reward = _rows(given, layout, tasked, per_token)
    if shaping.changes_rewards:
        reward = _shape(shaping, reward, layout.total(masked.double())) * tasked
    if shaping.normalise is not None:
        reward = standardise(shaping.normalise, Votes(reward, votes, found)) * tasked
    return Episodes(
        given=given,
        layout=layout,
        levels=found,
        trained=trained,
        voting=voting,
        reward=reward,
        per_token=per_token,
        tasked=tasked,
        votes=votes,
        failed=1.0 - finite,
        not_dropped=not_dropped,
        truncated=None if given.ended is None else given.ended == 0,
        unknown=unknown,
    )


def _check(given: RawEpisodes, shaping: Shaping, rows: int, by_token: bool, columns: int | None) -> None:
    mask = given.mask
    inputs.check_not_empty(rows, given.process_group)
    if columns is not None:
        inputs.check_columns("rewards", given.rewards, rows, columns, mask.device)
    else:
        inputs.check_either("rewards", given.rewards, rows, mask)
    inputs.check_either("kept", given.kept, rows, mask)
    for name in ("values", "token_rewards", "teacher", "student", "squares", "weight"):
        inputs.check_tokens(name, getattr(given, name), mask)
    for name in ("bootstrap", "baselines", "ended", "votes"):
        inputs.check_rows(name, getattr(given, name), rows, mask.device)
    inputs.check_group_ids(given.group, given.groups, rows, mask.device)
    if shaping.no_eos != "keep":
        inputs.check_given(f"Shaping with no_eos {shaping.no_eos}", "ended", given.ended)
    if shaping.changes_rewards and (by_token or columns is not None):
        raise InputError(
            f"Shaping needs one reward per sequence ({rows},), got shape {tuple(given.rewards.shape)}. Shape them before."
        )
    if shaping.normalise is not None and "group" in (shaping.normalise.mean, shaping.normalise.std):
        inputs.check_given("Shaping normalised over groups", "group", given.group)


def _finite_rows(
    given: RawEpisodes, layout: Layout, masked: Tensor, scored: Tensor, by_token: bool
) -> Float[Tensor, " rows"]:
    """1 for rows whose every number is finite where it is read; the others failed. Only `scored` rows have a reward to read."""
    bad = torch.zeros_like(scored)
    for tokens in (given.values, given.token_rewards):
        if tokens is not None:
            bad = bad + _missing(layout, tokens, masked)
    for row in (_where_truncated(given), given.baselines):
        if row is not None:
            bad = bad + (1.0 - is_finite(row.double()))
    if by_token:
        return (bad + scored * _missing(layout, given.rewards, masked) == 0).double()
    unscorable = 1.0 - is_finite(given.rewards.double())
    return (bad + scored * (unscorable.sum(-1) if unscorable.ndim > 1 else unscorable) == 0).double()


def _missing(layout: Layout, value: Tensor, masked: Tensor) -> Float[Tensor, " rows"]:
    """How many trained tokens of each row have no finite value."""
    return layout.total((1.0 - is_finite(value.to(masked.dtype))).mul_(masked)).double()


def _where_truncated(given: RawEpisodes) -> Tensor | None:
    """The values after the end of rows that did not end; nobody reads the others."""
    if given.bootstrap is None or given.ended is None:
        return None
    return torch.where(given.ended == 0, given.bootstrap, 0.0)


def _votes(
    given: RawEpisodes, layout: Layout, trained: Tensor, tasked: Tensor, baseline: Baseline
) -> tuple[Float[Tensor, "*tokens"], Float[Tensor, " rows"]]:
    """The tokens and the rows that count in statistics: those with a task reward; with baseline kept, those of them that were kept."""
    voting = trained * layout.spread(tasked.to(trained.dtype))
    if baseline == "all":
        return voting, tasked
    if given.kept is not None:
        kept = indicator(given.kept.detach(), trained.dtype)
        voting = voting * (kept if given.kept.shape == given.mask.shape else layout.spread(kept))
    return voting, layout.total(voting).clamp(max=1.0).double()


def _rows(
    given: RawEpisodes, layout: Layout, tasked: Tensor, per_token: Tensor | None
) -> Float[Tensor, "rows *columns"]:
    """The task reward of each row; what was rejected token by token still counts."""
    if per_token is not None:
        return layout.total(per_token.double())
    rewards = given.rewards.detach().double()
    return torch.where(tasked.view(-1, *[1] * (rewards.ndim - 1)) > 0, rewards, 0.0)


def _shape(shaping: Shaping, reward: Tensor, lengths: Tensor) -> Tensor:
    penalty = 0.0 if shaping.overlong is None else _overlong(shaping.overlong, lengths)
    scaled = (reward - penalty + shaping.bias) * shaping.scale
    return scaled.clamp(shaping.lower, shaping.upper) if (shaping.lower, shaping.upper) != (None, None) else scaled


def _overlong(overlong: Overlong, lengths: Tensor) -> Tensor:
    """0 up to max_length − buffer, then linear, `factor` at max_length."""
    over = (lengths - (overlong.max_length - overlong.buffer)).clamp(min=0.0)
    return (over.clamp(max=overlong.buffer) if overlong.cap else over) * (overlong.factor / overlong.buffer)
