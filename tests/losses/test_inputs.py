"""What cannot be meant is refused before any arithmetic, in words that say what to do."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import torch
from torch.distributed import ProcessGroup

from trimtab import Correction, Gate, preset
from trimtab.config import losses as config
from trimtab.config.losses import LOSSES, EntropyBonus, KlPenalty, Objective, Reduction, loss_from
from trimtab.config.training import Train
from trimtab.core.correct import correct
from trimtab.core.reduce import Denominator
from trimtab.errors import ConfigError, ConfigWarning, InputError, UnknownNameError
from trimtab.losses import kl, policy

# The tests check shapes in signatures; users do not. Without that check our own words are heard.
policy_loss, kl_penalty = inspect.unwrap(policy.policy_loss), inspect.unwrap(kl.kl_penalty)


def tensors(**changes: Any) -> dict[str, Any]:
    zeros = torch.zeros(2, 3)
    plain = {"current": zeros, "proximal": zeros, "advantages": torch.ones(2), "mask": zeros == 0}
    return plain | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"proximal": None}, r"Clip needs proximal log-probs, got None\. .*proximal=current\.detach\(\)"),
        ({"correction": preset("bypass-off")}, "needs behavior log-probs, got None"),
        ({"correction": preset("token-tis")}, "needs behavior log-probs, got None"),
        ({"proximal": torch.zeros(2, 4)}, r"proximal needs the shape of mask \(2, 3\), got \(2, 4\)"),
        ({"proximal": torch.zeros(2, 3, dtype=torch.int64)}, "needs floating-point log-probs"),
        ({"advantages": torch.ones(3)}, r"advantages need shape \(2, 3\) \(per token\) or \(2,\) \(per sequence\)"),
        ({"kl": KlPenalty(coefficient=0.1)}, "KlPenalty needs reference log-probs"),
        ({"entropy_bonus": EntropyBonus(coefficient=0.1)}, "EntropyBonus needs entropy"),
        ({"entropy": torch.zeros(2)}, r"entropy needs one number per token, shape \(2, 3\)"),
        ({"reduction": "prompt-mean"}, "prompt-mean needs group"),
        (
            {"reduction": "prompt-mean", "group": torch.zeros(2, 3, dtype=torch.int64)},
            r"group needs one id per row, shape \(2,\), got \(2, 3\)",
        ),
        ({"group": torch.zeros(2)}, "group needs integer ids"),
        (
            {"reduction": "prompt-mean", "group": torch.tensor([1, 2]), "denominator": Denominator(6, 2)},
            "got a denominator without",
        ),
        (
            {
                "reduction": "prompt-mean",
                "group": torch.tensor([1, 2]),
                "denominator": Denominator.of(torch.ones(2, 3), group=torch.tensor([1, 3])),
            },
            "group needs ids that the denominator counted",
        ),
        (tensors(current=torch.zeros(0, 3), proximal=torch.zeros(0, 3), mask=torch.zeros(0, 3)), "needs tokens"),
        ({"mask": torch.ones(6)}, "Pass cu_seqlens for packed tokens"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        policy_loss(config.Clip(), **tensors(**changes))


@pytest.mark.parametrize("loss", [3, None, Reduction(mode="token-mean")])
def test_only_a_loss_is_a_loss(loss: Any) -> None:
    with pytest.raises(ConfigError, match="needs a loss such as"):
        policy_loss(loss, **tensors())


def test_a_denominator_counts_what_it_is_given_or_says_why_not() -> None:
    with pytest.raises(InputError, match=r"passes one of shape \(0, width\)"):
        Denominator.of([])
    with pytest.raises(InputError, match="one tensor per mask, got 1 for 2"):
        Denominator.of([torch.ones(1, 2), torch.ones(1, 2)], group=torch.zeros(1, dtype=torch.int64))
    with pytest.raises(InputError, match="group needs one id per row"):
        Denominator.of(torch.ones(1, 2), group=torch.zeros(1, 2, dtype=torch.int64))
    nothing = Denominator.of(torch.zeros(0, 4))
    assert (float(nothing.tokens), float(nothing.sequences)) == (0.0, 0.0)
    flat = Denominator.of(torch.tensor([1, 0, 1, 1]), cu_seqlens=torch.tensor([0, 2, 2, 4]))
    assert (float(flat.tokens), float(flat.sequences)) == (3.0, 2.0)


def test_a_part_of_a_correction_must_fit_its_micro_batch() -> None:
    whole = correct(preset("off"), proximal=torch.zeros(4, 3), behavior=torch.zeros(4, 3), mask=torch.ones(4, 3))
    with pytest.raises(InputError, match=r"Take this micro-batch out of it with \.part\(index\)"):
        policy_loss(config.Clip(), **tensors(correction=whole))
    policy_loss(config.Clip(), **tensors(correction=whole.part(slice(0, 2))))


def test_reinforce_needs_no_anchor_and_reports_no_ratio_without_one() -> None:
    found = policy_loss(config.Reinforce(), **tensors(proximal=None))
    assert "policy/ratio_mean" not in found.metrics
    assert "policy/ratio_mean" in policy_loss(config.Reinforce(), **tensors()).metrics


def test_the_penalty_for_the_reward_needs_one_shape() -> None:
    with pytest.raises(InputError, match="need one shape"):
        kl_penalty(KlPenalty(coefficient=1.0), policy=torch.zeros(2), reference=torch.zeros(3), mask=torch.ones(2))


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LOSSES.values(), ids=list(LOSSES))
def test_a_loss_survives_its_plain_settings(kind: type[Objective]) -> None:
    value = kind()
    assert loss_from(value.settings()) == value
    assert loss_from(value.settings()["kind"]) == value
    assert loss_from(value) is value
    assert all(info.description for info in kind.model_fields.values())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("clipp", "There is no loss 'clipp'. Did you mean 'clip'?"),
        ({"low": 0.1}, "A loss needs a kind"),
        ({"kind": "clip", "hi": 0.1}, "Clip has no field 'hi'. Did you mean 'high'?"),
        (3, "A loss needs a kind, got 3"),
    ],
)
def test_settings_that_name_no_loss_are_refused(settings: Any, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        loss_from(settings)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Reduction.from_settings("token-meen"), "Did you mean 'token-mean'?"),
        (lambda: Reduction(mode="seq-mean-token-sum-norm"), "needs a constant, got none"),
        (lambda: Reduction(mode="token-mean", constant=2.0), "needs no constant, got 2"),
        (lambda: config.Cispo(upper=0.2), "They bound ρ itself: write 1.2, not 0.2"),
        (lambda: config.ClipCov(lower=5.0, upper=1.0), "needs lower < upper"),
        (lambda: config.Clip(dual=0.5), "needs dual"),
        (lambda: config.Clip(low=-0.1), "needs low"),
        (lambda: KlPenalty(coefficient=1.0, importance_cap=10.0), "needs importance full or gradient"),
        (lambda: KlPenalty(coefficient=1.0, estimator="k4"), "'k1', 'k2', 'k3' or 'abs'"),
        (lambda: EntropyBonus(), "EntropyBonus needs coefficient"),
    ],
)
def test_settings_that_cannot_be_meant_do_not_construct(make: Any, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert words in str(error.value)


def test_a_cap_that_undoes_the_clip_is_doubted() -> None:
    with pytest.warns(ConfigWarning, match="acts before 1 \\+ high"):
        config.Clip(ratio_cap=1.1)


WEIGHED = preset("bypass-token-tis")
BESIDE = tensors(behavior=torch.zeros(2, 3))


@pytest.mark.parametrize("kind", LOSSES)
def test_a_bypass_weight_beside_a_loss_with_a_ratio_of_its_own_is_doubted(kind: str) -> None:
    loss = LOSSES[kind]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        policy_loss(loss, **BESIDE, correction=WEIGHED)
    twice = [str(each.message) for each in caught if "counts the ratio twice" in str(each.message)]
    assert len(twice) == loss.weighs_by_ratio
    assert all(text.startswith(type(loss).__name__) for text in twice)
    assert kind in ("reinforce", "dro") or loss.weighs_by_ratio


@pytest.mark.parametrize("rule", ["bypass-off", "bypass-geo-rs", "token-tis"])
def test_gates_and_decoupled_weights_beside_a_ratio_are_not_doubted(rule: str) -> None:
    policy_loss(config.Clip(), **BESIDE, correction=preset(rule))  # warnings are errors here


def test_a_verdict_handed_in_is_doubted_like_its_rule() -> None:
    out = correct(WEIGHED, behavior=BESIDE["behavior"], current=BESIDE["current"], mask=BESIDE["mask"])
    with pytest.warns(ConfigWarning, match="ImportancePg under a bypass rule with a weight counts the ratio twice"):
        policy_loss(config.ImportancePg(), **BESIDE, correction=out)


def test_a_run_that_counts_the_ratio_twice_is_doubted_before_it_begins() -> None:
    with pytest.warns(ConfigWarning, match="Cispo under a bypass rule with a weight counts the ratio twice"):
        Train.from_settings({"correction": "bypass-token-tis", "loss": {"kind": "cispo"}})


def test_luspo_left_to_itself_weighs_a_row_by_its_length_once() -> None:
    # rows of 3 tokens and of 1, every loss −1: T·(−1) per token, mean over each row, mean over rows: −(3 + 1)/2
    mask = torch.tensor([[True, True, True], [True, False, False]])
    assert policy_loss(config.Luspo(), **tensors(mask=mask)).loss.item() == pytest.approx(-2.0)
    assert policy_loss(config.Clip(), **tensors(mask=mask)).loss.item() == pytest.approx(-1.0)
    with pytest.warns(ConfigWarning, match="weighs a sequence by its length squared"):
        found = policy_loss(config.Luspo(), **tensors(mask=mask), reduction="token-mean")
    assert found.loss.item() == pytest.approx(-(9 + 1) / 4)


def test_a_reduction_is_its_name() -> None:
    assert Reduction.from_settings("token-mean") == Reduction(mode="token-mean")
    penalty = KlPenalty(coefficient=0.1, reduction="token-sum")
    assert penalty.reduction == Reduction(mode="token-sum")
    assert KlPenalty.from_settings(penalty.settings()) == penalty


def test_an_unknown_name_is_of_its_own_kind() -> None:
    with pytest.raises(UnknownNameError):
        loss_from("nothing like it")


def test_a_segment_needs_whole_sequences() -> None:
    with pytest.raises(InputError, match="needs whole sequences"):
        policy_loss(config.Gspo(level="segment"), **tensors(context_group=ProcessGroup(0, 2)))


def test_a_gate_that_looks_at_the_advantage_sees_the_losss_advantages() -> None:
    gate = Gate(metric="k1", level="sequence", upper=0.1, when="negative_advantage", action="zero")
    found = policy_loss(
        config.Clip(),
        **tensors(
            behavior=torch.ones(2, 3), advantages=torch.tensor([1.0, -1.0]), correction=Correction(gates=(gate,))
        ),
    )
    assert found.loss.item() == pytest.approx(-0.5)  # only the row with A > 0 is left: 3 tokens of −1 over 6


# Two tokens in the second of two sequences: as many tokens as sequences, so that [2] fits both.
BOTH_FIT = {"mask": torch.ones(2, dtype=torch.bool), "cu_seqlens": torch.tensor([0, 0, 2])}


def test_where_both_fit_advantages_are_per_token_and_a_column_is_per_sequence() -> None:
    zeros, given = torch.zeros(2), torch.tensor([1.0, 4.0])
    for advantages, wanted in ((given, [-0.5, -2.0]), (given[:, None], [-2.0, -2.0])):
        current = zeros.clone().requires_grad_()
        policy_loss(config.Clip(), current=current, proximal=zeros, advantages=advantages, **BOTH_FIT).loss.backward()
        assert current.grad is not None
        assert current.grad.tolist() == wanted
        out = correct(preset("off"), behavior=zeros, proximal=zeros, advantages=advantages, **BOTH_FIT)
        assert float(out.metrics["selection/mean_advantage"]) == -sum(wanted)


def test_a_column_of_advantages_is_per_sequence_in_padded_rows_too() -> None:
    given = torch.tensor([[1.0], [4.0]])
    found = policy_loss(config.Clip(), **tensors(advantages=given)).loss
    assert found == policy_loss(config.Clip(), **tensors(advantages=given[:, 0])).loss
