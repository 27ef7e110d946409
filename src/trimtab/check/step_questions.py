"""What the laws ask of a loss, called as its framework calls it in one optimiser step."""

from __future__ import annotations

from functools import partial
from random import Random

import torch
from torch import Tensor

from trimtab.check.draw import JUNK, NOT_FINITE, Inputs, token_batch, with_junk
from trimtab.check.question import Call, Pair, Question, View, drawn_rows, whole_batch
from trimtab.check.subject import Setup, Subject
from trimtab.core.correct import correct

POLICIES = ("behavior", "proximal", "current", "advantages")


# --- masked ----------------------------------------------------------------------------------------------------------


def _put_junk(name: str, drawn: Inputs, _: Setup) -> Pair | None:
    plain = {key: value for key, value in drawn.items() if key != "junk"}
    spoilt = torch.where(drawn["mask"], plain[name], drawn["junk"])
    if torch.equal(spoilt, plain[name]):
        return None
    labels = (f"with {name} as drawn", f"with {name} changed under the mask")
    return Pair(whole_batch(plain), (whole_batch(plain | {name: spoilt}),), labels=labels)


def _under_mask(name: str, values: tuple[float, ...], word: str) -> Question:
    return Question(
        name=f"{word} {name}",
        kind="step",
        sentence=f"{'A number' if values is JUNK else 'NaN or infinity'} in `{name}` under a False mask changes nothing.",
        draw=lambda random, _: with_junk(values, random),
        pair=partial(_put_junk, name),
    )


MASKED_QUESTIONS = (
    *(_under_mask(name, JUNK, "masked") for name in POLICIES),
    *(_under_mask(name, NOT_FINITE, "not-finite") for name in POLICIES),
)


# --- splits ----------------------------------------------------------------------------------------------------------


def _single_rows(drawn: Inputs, _: Setup) -> Pair | None:
    rows = drawn_rows(drawn)
    one_each = Call(drawn, [[row] for row in range(rows)])
    return Pair(whole_batch(drawn), (one_each,), labels=("in one micro-batch", "in one micro-batch per row"))


def _uneven(drawn: Inputs, _: Setup) -> Pair | None:
    rows = drawn_rows(drawn)
    if rows < 3:
        return None
    uneven = Call(drawn, [[0], list(range(1, rows))])
    return Pair(
        whole_batch(drawn), (uneven,), labels=("in one micro-batch", "in a micro-batch of 1 row and one of more")
    )


def _even_only(subject: Subject, _: Setup) -> str | None:
    return "its micro-batches have equally many rows by contract" if subject.even_rows else None


def plain_batch(random: Random, _: Subject) -> Inputs:
    """A batch as it is drawn."""
    return token_batch(random)


SPLITS_QUESTIONS = (
    Question(
        "even split",
        "step",
        "One micro-batch or one per row: the same gradient.",
        plain_batch,
        _single_rows,
    ),
    Question(
        "uneven split",
        "step",
        "One micro-batch, or two with different numbers of rows: the same gradient.",
        plain_batch,
        _uneven,
        needs=_even_only,
    ),
)


# --- empty -----------------------------------------------------------------------------------------------------------


def _nothing(drawn: Inputs, _: Setup) -> Pair | None:
    nothing = drawn | {"mask": torch.zeros_like(drawn["mask"])}
    return Pair(whole_batch(nothing), expected=_zeros(drawn), labels=("with nothing to train on", "expected"))


def _zeros(drawn: Inputs) -> dict[str, Tensor]:
    return {"loss": torch.zeros(()), "gradient": torch.zeros(drawn["mask"].shape)}


def _empty_micro_batch(drawn: Inputs, _: Setup) -> Pair | None:
    rows = drawn_rows(drawn)
    if rows < 2 or not drawn["mask"][:-1].any():
        return None
    mask = drawn["mask"].clone()
    mask[-1] = False
    on_policy = drawn | {"mask": mask, "behavior": drawn["proximal"]}  # so that nothing else is rejected
    split = Call(on_policy, [[row] for row in range(rows)])
    expected = _zeros(drawn) | {"finite": torch.ones(())}
    labels = ("with one micro-batch per row, the last without a token", "expected")
    return Pair(split, expected=expected, rows=(rows - 1,), labels=labels)


def _all_rejected(drawn: Inputs, _: Setup) -> Pair | None:
    far = drawn | {"behavior": drawn["proximal"] - 5.0}
    return Pair(whole_batch(far), expected=_zeros(drawn), labels=("with every token rejected", "expected"))


def _needs_gate(_: Subject, setup: Setup) -> str | None:
    return None if setup.rejects else "these settings reject nothing"


EMPTY_QUESTIONS = (
    Question(
        "empty micro-batch",
        "step",
        "A micro-batch without a trained token leaves the step finite, and backward through it gives a gradient of 0.",
        plain_batch,
        _empty_micro_batch,
        compared=("finite", "gradient"),
        on_trial=True,
    ),
    Question(
        "nothing to train on",
        "step",
        "With every token masked the step is refused, or loss and gradient are 0.",
        plain_batch,
        _nothing,
        refusable=True,
        on_trial=True,
    ),
    Question(
        "everything rejected",
        "step",
        "Where the correction rejects every token, the step is refused, or loss and gradient are 0.",
        plain_batch,
        _all_rejected,
        refusable=True,
        on_trial=True,
        needs=_needs_gate,
    ),
)


# --- padding ---------------------------------------------------------------------------------------------------------


def _with_rows(drawn: Inputs) -> Inputs:
    """Rows copied to the end and masked: how a batch is filled up to a size that divides."""
    longer = {name: torch.cat([value, value[:1]]) for name, value in drawn.items()}
    return longer | {"mask": torch.cat([drawn["mask"], torch.zeros_like(drawn["mask"][:1])])}


def _with_columns(drawn: Inputs) -> Inputs:
    """Two more places at the end of every row, zero and masked."""
    return {name: torch.cat([value, torch.zeros_like(value[:, :1]).expand(-1, 2)], 1) for name, value in drawn.items()}


def _padded_rows(drawn: Inputs, _: Setup) -> Pair | None:
    view = View(rows=drawn_rows(drawn))
    labels = ("without padding", "with a copied row, all masked")
    return Pair(whole_batch(drawn), (whole_batch(_with_rows(drawn)),), view=view, labels=labels)


def _padded_columns(drawn: Inputs, _: Setup) -> Pair | None:
    view = View(columns=int(drawn["mask"].shape[1]))
    labels = ("without padding", "with two masked places at the end of every row")
    return Pair(whole_batch(drawn), (whole_batch(_with_columns(drawn)),), view=view, labels=labels)


PADDING_QUESTIONS = (
    Question(
        "padding rows",
        "step",
        "A copied row without a trained token changes neither loss nor gradient.",
        plain_batch,
        _padded_rows,
    ),
    Question(
        "padding columns",
        "step",
        "Masked places at the end of the rows change neither loss nor gradient.",
        plain_batch,
        _padded_columns,
    ),
    Question(
        "metrics beside padding rows",
        "step",
        "A copied row without a trained token changes no logged metric.",
        plain_batch,
        _padded_rows,
        compared=("metrics",),
    ),
    Question(
        "metrics beside padding columns",
        "step",
        "Masked places at the end of the rows change no logged metric.",
        plain_batch,
        _padded_columns,
        compared=("metrics",),
    ),
)


# --- alignment -------------------------------------------------------------------------------------------------------


def _reverse(drawn: Inputs, _: Setup) -> Pair | None:
    turned = {name: value.flip(1) for name, value in drawn.items()}
    labels = ("as drawn", "with the tokens of every row in reverse")
    return Pair(whole_batch(drawn), (whole_batch(turned),), view=View(flip="columns"), labels=labels)


def _missing(drawn: Inputs, _: Setup) -> Pair | None:
    mask = drawn["mask"]
    places = mask.nonzero()
    if len(places) < 2 or places[0, 0] == places[-1, 0]:
        return None
    row, token = (int(place) for place in places[-1])

    def with_value(name: str, value: float, tokens: int | slice) -> Inputs:
        found = drawn[name].clone()
        found[row, tokens] = value
        return drawn | {name: found}

    missing = with_value("behavior", float("nan"), token)
    whole = slice(None)  # a gate over sequences may drop the row: it cannot judge it
    fair = (
        with_value("mask", False, token),
        with_value("advantages", 0.0, token),
        with_value("mask", False, whole),
        with_value("advantages", 0.0, whole),
    )
    labels = ("with a behavior log-prob that is NaN", "with that token masked")
    return Pair(whole_batch(missing), tuple(whole_batch(each) for each in fair), labels=labels)


def _other_behavior(drawn: Inputs) -> tuple[Call, Call]:
    return whole_batch(drawn), whole_batch(drawn | {"behavior": drawn["behavior"] - 0.7})


ALIGNMENT_QUESTIONS = (
    Question(
        "order of tokens",
        "step",
        "The same reordering of every tensor reorders the gradient and nothing else.",
        plain_batch,
        _reverse,
    ),
    Question(
        "missing log-prob",
        "step",
        "A trained token without a behavior log-prob (NaN) is refused, or it or its row trains nothing; the rest trains as without it.",
        plain_batch,
        _missing,
        refusable=True,
        on_trial=True,
        control=_other_behavior,
    ),
)


# --- weight ----------------------------------------------------------------------------------------------------------


def _by_name(drawn: Inputs, setup: Setup) -> Pair | None:
    assert setup.rule is not None
    policies = {name: drawn[name] for name in POLICIES}
    found = correct(setup.rule, mask=drawn["mask"], **policies)  # pyright: ignore[reportArgumentType]
    weight = torch.where(drawn["mask"], found.weight, 1.0)
    by_hand = drawn | {"behavior": drawn["proximal"], "advantages": drawn["advantages"] * weight}
    labels = ("corrected by the function", "uncorrected, each advantage times the named weight")
    return Pair(whole_batch(drawn), (whole_batch(by_hand),), labels=labels)


def _needs_rule(_: Subject, setup: Setup) -> str | None:
    return None if setup.rule is not None else "no correction was named with --rule"


def _sign(drawn: Inputs, _: Setup) -> Pair | None:
    on_policy = drawn | {"behavior": drawn["current"], "proximal": drawn["current"]}
    expected = {"sign": torch.where(drawn["mask"], -drawn["advantages"].sign(), 0.0)}
    return Pair(whole_batch(on_policy), expected=expected, labels=("on-policy", "expected"))


WEIGHT_QUESTIONS = (
    Question(
        "named weight",
        "step",
        "The correction multiplies the loss of each token by the named factor, once.",
        plain_batch,
        _by_name,
        needs=_needs_rule,
    ),
    Question(
        "sign",
        "step",
        "On-policy, descent raises the tokens of positive advantage and lowers the others.",
        plain_batch,
        _sign,
        compared=("sign",),
    ),
)
