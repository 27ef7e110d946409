"""How far two settings differ: a smallest batch that shows it, and what settings that were written in part change in numbers."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trimtab.config.advantages import Distillation, Gae, Gdpo, OptimalToken, ReMax, Shaping
from trimtab.config.correction import Correction
from trimtab.dialects import Reading
from trimtab.dialects.equivalence import canonical
from trimtab.dialects.parts import OFF
from trimtab.errors import ConfigWarning, TrimtabError
from trimtab.explain.gate_words import as_written

if TYPE_CHECKING:
    from torch import Tensor


MOST = 4000
"""Batches tried before giving up."""


def smallest_difference(
    one: Correction, other: Correction, most: int = MOST
) -> list[tuple[str, str, str, str, str]] | None:
    """The tokens of a smallest batch on which two corrections differ; None where none was found."""
    import torch

    from trimtab.core.correct import correct

    for log_r, advantage in itertools.islice(_batches(one, other), most):
        behavior = torch.full((1, len(log_r)), -math.log(2), dtype=torch.float64)
        target = behavior + torch.tensor([log_r], dtype=torch.float64)
        a, b = (
            correct(
                rule,
                behavior=behavior,
                proximal=target,
                current=target,
                mask=torch.ones(1, len(log_r), dtype=torch.bool),
                advantages=torch.tensor([advantage], dtype=torch.float64),
                entropy=-behavior,
                group=torch.zeros(1, dtype=torch.int64),
                age=torch.zeros_like(behavior),
            )
            for rule in (one, other)
        )
        if not (torch.equal(a.kept, b.kept) and torch.allclose(a.weight, b.weight, rtol=1e-6, atol=1e-9)):
            return [
                (
                    str(place + 1),
                    as_written(round(math.exp(value), 6)),
                    as_written(advantage),
                    _outcome(a, place),
                    _outcome(b, place),
                )
                for place, value in enumerate(log_r)
            ]
    return None


def _batches(one: Correction, other: Correction) -> Iterator[tuple[tuple[float, ...], float]]:
    """Log-ratios of one sequence and its advantage, short sequences first."""
    signs = (1.0, -1.0) if one.needs_advantages or other.needs_advantages else (1.0,)
    for length in (1, 2, 3, 4):
        yield from itertools.product(itertools.product(_telling_ratios(one, other), repeat=length), signs)


def _outcome(found: Any, place: int) -> str:
    weight, kept = found.weight[0, place].tolist(), found.kept[0, place].tolist()
    return f"weighs {as_written(round(weight, 6))}" if kept else "rejected"


def _telling_ratios(one: Correction, other: Correction) -> list[float]:
    """Log-ratios worth trying: 0, and a little inside and outside every bound on either side of 1."""
    found = {0.0, math.log(3), -math.log(3)}
    for bound in (*_bounds(one), *_bounds(other)):
        # 0.9 and 1.15: no mean or sum of up to four such lies on a bound, where rounding would decide
        found |= {sign * size * factor for size in _sizes(bound) for sign in (1, -1) for factor in (0.9, 1.15)}
    ordered = sorted(found, key=abs)
    return [value for value in ordered if abs(value) < 15][:24]


def _bounds(rule: Correction) -> list[float]:
    """Every bound of its gates and weight but 0, which no log-ratio is near to."""
    every = [bound for gate in rule.gates for bound in (gate.lower, gate.upper)]
    every += [] if rule.weight is None else [rule.weight.lower, rule.weight.upper]
    return [bound for bound in every if bound]


def _sizes(bound: float) -> tuple[float, float]:
    """|ℓ| at which a bound would act: on a ratio |log 2| = 0.69, on ℓ²/2 (about k2 and k3) √(2 · 0.02) = 0.2."""
    size = min(abs(math.log(bound)) if bound > 0 else abs(bound), 15.0)
    return size, math.sqrt(2 * abs(bound)) if abs(bound) < 50 else size


REWARDS = (1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0)
"""Of two prompts with four answers each."""
RATIOS = (1.0, 1.01, 0.99, 1.03, 0.97, 1.06, 0.94, 1.0, 1.12, 0.9, 1.25, 0.78)
"""Of the policy being trained to the one before the step, token after token, over again: most near 1, as in a step that goes well."""
FAR_RATIOS = (1.0, 1.1, 0.8, 1.5, 0.6, 4.0, 0.2)
"""The same with a few that a step seldom meets, for what acts on them alone."""
ROW_ADVANTAGES = (1.5, -0.5, -0.5, -0.5, 0.5, 0.5, 0.5, -1.5)
"""Of the eight answers."""
PLAIN_GATE = {"limit": None, "scope": "trained"}
"""What two gates that test the same may differ in."""
FEW = 100
"""Small batches tried for one that shows a difference."""
BATCH = "8 answers of 2 to 9 tokens with ratios 0.78 to 1.25"


def sizes(asked: Reading, there: Reading, parts: Iterable[str]) -> dict[str, str]:
    """Part → what changes in numbers, for the parts named; none for one that a side does not speak of, or that needs more."""
    found: dict[str, str | None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        if "correction" in parts and asked.correction is not None:
            found["correction"] = _corrections(asked, there)
        if "loss" in parts and asked.loss is not None and there.loss is not None:
            found["loss"] = _losses(asked, there)
        if "advantage" in parts and asked.advantage is not None and there.advantage is not None:
            found["advantage"] = _advantages(asked, there)
    return {part: text for part, text in found.items() if text is not None}


def _corrections(asked: Reading, there: Reading) -> str | None:
    assert asked.correction is not None
    rules = canonical(asked.correction), canonical(there.correction or OFF)
    if rules[0] == rules[1] or not any(rule.gates or rule.weighs for rule in rules):
        return None
    example, aside = smallest_difference(*rules, most=FEW), ""
    if example is None:
        example, aside = smallest_difference(*_without_shared_gates(*rules), most=FEW), ", the other gates aside"
    if example is None:
        return None
    row = next(each for each in example if each[3] != each[4])
    ratios = [as_written(float(f"{float(each[1].replace('−', '-')):.3g}")) for each in example]
    where = f"a token of ratio {ratios[0]}"
    if len(example) > 1:
        where = f"token {row[0]} of a row with ratios {', '.join(ratios)}"
    return f"{where} {_fate_in_words(row[3])}, there it {_fate_in_words(row[4])}{aside}"


def _without_shared_gates(one: Correction, other: Correction) -> tuple[Correction, Correction]:
    """Each without the gates that both have, so that what differs shows on fewer tokens."""
    first, second = ([gate.model_copy(update=PLAIN_GATE) for gate in rule.gates] for rule in (one, other))
    mine, theirs = (tuple(gate for gate in a if gate not in b) for a, b in ((first, second), (second, first)))
    return one.but(gates=mine), other.but(gates=theirs)


def _fate_in_words(fate: str) -> str:
    word, _, weight = fate.partition(" ")
    return f"weighs {float(weight.replace('−', '-')):.3g}" if word == "weighs" else f"is {fate}"


def _advantages(asked: Reading, there: Reading) -> str | None:
    try:
        mine, theirs = (advantages_of(reading)[:4, 0].tolist() for reading in (asked, there))
    except TrimtabError:
        return None
    if all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-6) for a, b in zip(mine, theirs, strict=True)):
        return "rewards 1, 0, 0, 0 give the same advantages to 0.1 %"
    return f"rewards 1, 0, 0, 0 give advantages {_both_advantages(mine)}, there {_both_advantages(theirs)}"


def _both_advantages(values: list[float]) -> str:
    """The advantage of the answer that was right, and of the three that were not."""
    return " and ".join(as_written(float(f"{value:.3g}")) for value in values[:2])


def advantages_of(reading: Reading) -> Tensor:
    """The advantage of each token of the batch."""
    import torch

    import trimtab

    assert reading.advantage is not None
    mask, tensors = _batch()
    rewards, group = torch.tensor(REWARDS, dtype=torch.float64), torch.arange(8) // 4
    ended = torch.ones(8, dtype=torch.bool)
    *first, last = reading.shaping or (Shaping(),)
    for step in first:
        rewards = trimtab.shaped(step, rewards, mask=mask, group=group, ended=ended, baseline="all").rewards
    more: dict[str, Any] = {"rewards": rewards}
    read = reading.advantage
    if isinstance(read, Distillation):  # taught by whom the KL is measured from
        more |= {"teacher": tensors["reference"], read.student: tensors[read.student]}
        more["rewards"] = None if read.base is None else rewards
        read = read.base or read
    if isinstance(read, Gae):
        more |= {"values": torch.zeros_like(tensors["current"]), "bootstrap": torch.zeros(8, dtype=torch.float64)}
    if isinstance(read, OptimalToken):
        more |= {"proximal": tensors["proximal"], "squares": (2.0 * tensors["proximal"]).exp()}
    if isinstance(read, ReMax):
        more["baselines"] = torch.zeros(8, dtype=torch.float64)
    if isinstance(read, Gdpo):
        more["rewards"] = rewards[:, None].expand(8, len(read.weights))
    if reading.reward_kl is not None:
        paid = trimtab.kl_penalty(
            reading.reward_kl, policy=tensors["behavior"], reference=tensors["reference"], mask=mask
        )
        more["token_rewards"] = -paid
    found = trimtab.advantages(reading.advantage, mask=mask, group=group, ended=ended, shaping=last, **more).advantages
    if reading.advantage_norm is not None:
        found = trimtab.normalised(reading.advantage_norm, found, mask=mask, group=group)
    bound = reading.advantage_clip
    return found if bound is None else found.clamp(-bound, bound)


def _losses(asked: Reading, there: Reading) -> str | None:
    """How much of the gradient changes in a usual step; where nothing does, a token of a rare ratio whose gradient does."""
    try:
        for ratios in (RATIOS, FAR_RATIOS):
            mine, theirs = (gradient_of(reading, ratios) for reading in (asked, there))
            size = ((mine - theirs).norm() / mine.norm().clamp(min=1e-12)).item()
            if size >= 1e-6:
                percent = f"{100 * size:.0f}" if size >= 1 else f"{100 * size:.2g}"
                usual = ratios is RATIOS
                return f"the gradient changes by {percent} % on {BATCH}" if usual else _far_token(mine, theirs)
    except TrimtabError:
        return None
    return None


def _far_token(mine: Tensor, theirs: Tensor) -> str:
    """The token of a rare ratio whose gradient changes most."""
    place = int((mine - theirs).abs().argmax())
    row, column = divmod(place, mine.shape[1])
    one, other = mine[row, column].item(), theirs[row, column].item()
    ratio = FAR_RATIOS[place % len(FAR_RATIOS)]
    sign = "positive" if ROW_ADVANTAGES[row] > 0 else "negative"
    if abs(other) < 1e-12:
        change = "has none there"
    else:
        change = "has none here and one there" if abs(one) < 1e-12 else f"has {other / one:.3g} times as much there"
    return f"the gradient is the same on {BATCH}; a token of ratio {as_written(ratio)} and a {sign} advantage {change}"


def gradient_of(reading: Reading, ratios: Sequence[float] = RATIOS) -> Tensor:
    """What the loss, with its reduction, KL and entropy terms, asks of each token of the batch."""
    import torch

    import trimtab

    assert reading.loss is not None
    mask, tensors = _batch(ratios)
    current = tensors["current"].clone().requires_grad_()
    rows = torch.tensor(ROW_ADVANTAGES, dtype=torch.float64)
    entropy = -current * 0.5 if reading.entropy is not None else None
    loss = trimtab.policy_loss(
        reading.loss,
        current=current,
        proximal=tensors["proximal"],
        behavior=tensors["behavior"],
        reference=tensors["behavior" if reading.kl_to == "behavior" else "reference"] if reading.kl else None,
        entropy=entropy,
        mask=mask,
        advantages=(rows * reading.advantage_scale)[:, None].expand(mask.shape),
        reduction=reading.reduction,
        kl=reading.kl,
        entropy_bonus=reading.entropy,
        group=torch.arange(8) // 4,
        generator=torch.Generator().manual_seed(0),
    ).loss
    loss.backward()  # pyright: ignore[reportUnknownMemberType]
    assert current.grad is not None
    return current.grad


def _batch(ratios: Sequence[float] = RATIOS) -> tuple[Tensor, dict[str, Tensor]]:
    import torch

    mask = torch.arange(9) < torch.arange(2, 10)[:, None]
    every = torch.tensor(ratios, dtype=torch.float64).repeat(72)[:72].view(8, 9)
    proximal = torch.full((8, 9), -2.0, dtype=torch.float64)
    current = proximal + every.log()
    return mask, {
        "proximal": proximal,
        "current": current,
        "behavior": proximal - 0.05,
        "reference": current - 0.1,
    }
