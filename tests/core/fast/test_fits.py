"""Which calls the pass takes, case by case, and what says so."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from trimtab.config.correction import Correction, Gate, Limit, Weight
from trimtab.config.losses import Cispo, Clip, KlPenalty
from trimtab.core.correct import correct
from trimtab.core.fast import fits
from trimtab.core.fast.fits import form_in_use, misfit, pass_fits
from trimtab.core.layout import Packed, Padded
from trimtab.errors import ConfigWarning, InputError
from trimtab.losses.policy import policy_loss

pytest.importorskip("numba", reason="the extra [fast] is not installed")

RATIO = Gate(metric="ratio", level="sequence", upper=1.2)
TOKEN = Gate(metric="ratio", upper=2.0)

RULES: dict[str, tuple[Correction, str | None]] = {
    "gates and a token weight": (Correction(gates=(RATIO, TOKEN), weight=Weight(level="token", upper=2.0)), None),
    "every, with a limit": (Correction(gates=(RATIO.but(agg="every", limit=Limit(bound=20.0)),)), None),
    "k3 of a sequence": (Correction(gates=(Gate(metric="k3", level="sequence", upper=0.1),)), None),
    "a bypass rule": (Correction(policies="bypass", gates=(RATIO,)), None),
    "k3 of a token": (
        Correction(gates=(Gate(metric="k3", upper=0.1),)),
        "a token gate on an exponential",
    ),
    "probabilities": (Correction(gates=(Gate(metric="tv", level="sequence", upper=0.1),)), "a gate on probabilities"),
    "a turn": (Correction(gates=(RATIO.but(level="segment"),)), "a segment gate"),
    "a budget": (
        Correction(gates=(Gate(metric="second_moment", level="batch", upper=0.04),)),
        "a batch gate",
    ),
    "a clamp": (Correction(gates=(RATIO.but(action="clamp"),), weight=Weight(level="token")), "a clamp gate"),
    "an advantage": (Correction(gates=(RATIO.but(when="negative_advantage"),)), "a gate by the advantage"),
    "another pair": (Correction(gates=(RATIO.but(pair="current/behavior"),)), "a gate on another pair"),
    "a turn's weight": (Correction(weight=Weight(level="segment")), "a segment weight"),
    "normalised": (Correction(weight=Weight(level="token", upper=2.0), normalize="batch"), "normalize"),
    "score centering": (Correction(weight=Weight(level="token", upper=2.0), centering="score"), "centering"),
    "nine gates": (Correction(gates=(TOKEN,) * 9), "more gates"),
}


@pytest.mark.parametrize("name", RULES)
def test_what_of_a_rule_the_pass_cannot_do(name: str) -> None:
    rule, wanted = RULES[name]
    assert misfit(rule) == wanted


def test_a_setting_that_the_pass_does_not_know_is_left_to_the_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Correction(gates=(RATIO,), denominator="kept")
    known = fits._KNOWN
    monkeypatch.setattr(fits, "_KNOWN", known | {Correction: known[Correction] - {"denominator"}})
    assert misfit(rule) == "denominator"
    assert misfit(Correction(gates=(RATIO,))) is None  # left at its default, it asks for nothing


@pytest.mark.parametrize("table", ["DIVERGENCES", "ACTIONS", "AGGS", "LEVELS"])
def test_a_code_without_a_branch_is_refused_and_taken_for_no_other(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from trimtab.core.fast import records

    rule = Correction(gates=(RATIO,), weight=Weight(level="token", upper=2.0))
    assert records.program(rule).gates["metric"].tolist() == [fits.RATIO]
    names = {"DIVERGENCES": ("ratio", None), "ACTIONS": "reject", "AGGS": "mean", "LEVELS": "token"}
    unknown = (99, 0, False) if table == "DIVERGENCES" else 99
    monkeypatch.setattr(records, table, getattr(fits, table) | {names[table]: unknown})
    with pytest.raises(NotImplementedError, match="needs a branch for each code"):
        records.program(rule.but(denominator="kept"))


def tensors(kind: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return torch.zeros(2, 3, dtype=kind), torch.ones(2, 3).bool()


def test_what_of_the_tensors_it_cannot_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    rule, (plain, mask), layout = Correction(gates=(RATIO,)), tensors(), Padded()
    assert pass_fits(rule, (plain, plain), mask, layout)
    assert pass_fits(rule, (plain, torch.nn.Parameter(plain)), mask, layout)
    assert pass_fits(rule, (plain, plain), mask.long(), layout)
    assert pass_fits(rule, (plain[0], plain[0]), mask[0], Packed(cu_seqlens=torch.tensor([0, 3]), tokens=3))
    for kind in (torch.float64, torch.bfloat16, torch.float16):
        assert not pass_fits(rule, (plain, tensors(kind)[0]), mask, layout), kind
    assert not pass_fits(rule, (plain.T, plain.T), mask.T, layout)
    assert not pass_fits(rule, (plain[:0],) * 2, mask[:0], layout)
    assert not pass_fits(rule, (plain.to("meta"),) * 2, mask.to("meta"), layout)


KINDS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def test_which_types_the_pass_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    (_, mask), rule = tensors(), Correction(gates=(RATIO,))
    taken = [kind for kind in KINDS if pass_fits(rule, (tensors(kind)[0],), mask, Padded())]
    assert taken == [torch.float32]


def test_without_numba_calls_take_the_plain_form_and_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "_has_numba", lambda: False)
    (plain, mask), rule = tensors(), Correction(gates=(RATIO,))
    assert not pass_fits(rule, (plain,), mask, Padded())
    assert form_in_use() == "the plain form: numba is not installed"


def test_a_transform_takes_the_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    rule, (plain, mask), seen = Correction(gates=(RATIO,)), tensors(), []

    def look(current: Tensor) -> Tensor:
        seen.append(pass_fits(rule, (current,), mask, Padded()))
        return current.sum()

    torch.func.grad(look)(plain)
    assert seen == [False]


def test_a_variable_turns_it_off_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, (plain, mask) = Correction(gates=(RATIO,)), tensors()
    monkeypatch.setenv("TRIMTAB_FAST", "0")
    assert not pass_fits(rule, (plain,), mask, Padded())
    assert "TRIMTAB_FAST=0" in form_in_use()
    monkeypatch.delenv("TRIMTAB_FAST")
    assert pass_fits(rule, (plain,), mask, Padded())
    assert "one pass" in form_in_use()


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({}, True),
        ({"loss": Clip(dual=3.0)}, True),
        ({"reduction": "token-sum"}, True),
        ({"reduction": "seq-mean-token-mean"}, False),
        ({"loss": Cispo(upper=2.0)}, False),
        ({"loss": Clip(ratio_cap=5.0)}, False),
        ({"kl": KlPenalty(coefficient=0.1), "reference": torch.zeros(2, 3)}, False),
        ({"entropy": torch.ones(2, 3)}, False),
        ({"correction": Correction(weight=Weight(level="token"), normalize="batch")}, False),
    ],
)
def test_which_losses_it_takes(monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], taken: bool) -> None:
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    log_probs, mask = tensors()
    given = {"loss": Clip(), "correction": "token-tis", "advantages": torch.ones(2)} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        found = policy_loss(current=log_probs, proximal=log_probs, behavior=log_probs, mask=mask, **given)
    assert found.metrics.by_pass is taken


def test_a_number_too_far_out_is_left_to_the_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """e^25 leaves the range in which the pass is exact; the metrics are then those of the plain form, digit for digit."""
    behavior, mask = torch.full((1, 4), -30.0), torch.ones(1, 4).bool()
    proximal = behavior + torch.tensor([[0.1, 25.0, 0.2, 0.0]])
    found = []
    for fast in ("1", "0"):
        monkeypatch.setenv("TRIMTAB_FAST", fast)
        found.append(correct("token-tis", behavior=behavior, proximal=proximal, mask=mask))
    assert torch.equal(found[0].weight, found[1].weight)
    for name in found[1].metrics:
        assert torch.equal(found[0].metrics[name], found[1].metrics[name]), name


def test_a_changed_tensor_is_an_error_where_the_plain_form_has_to_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    log_probs, mask = tensors()
    out = correct("token-tis", behavior=log_probs, proximal=log_probs.clone(), mask=mask)
    log_probs.add_(1.0)
    assert float(out.metrics["ratio/mean"]) == 1.0  # from the sums
    with pytest.raises(Exception, match="modified in place"):
        _ = out.metrics.decisions


def test_a_changed_mask_is_an_error_where_the_plain_form_has_to_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    log_probs, mask = tensors()
    out = correct("token-tis", behavior=log_probs, proximal=log_probs.clone(), mask=mask)
    mask.fill_(False)
    assert float(out.metrics["tokens"]) == 6.0  # from the sums
    with pytest.raises(InputError, match="Metrics need the mask"):
        _ = out.metrics.decisions
