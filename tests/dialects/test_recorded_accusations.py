"""What remarks say of slime, NeMo-RL and prime-rl, shown by outputs of their own functions; each with a control that must differ."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from tests.dialects.recorded import Case, cases
from trimtab.dialects import read


def case(family: str, name: str, number: int) -> Case:
    return next(each for each in cases(family) if each.id == f"{name}-{family}-{number:03}")


def log_ratio(one: Case) -> Tensor:
    return one.inputs["proximal"] - one.inputs["behavior"]


def by_sequence(one: Case, gathered: Callable[[Tensor], Tensor]) -> Tensor:
    """A number of the trained tokens of each packed sequence, given to all its tokens."""
    edges, found = one.inputs["cu_seqlens"].tolist(), torch.empty(one.inputs["mask"].shape)
    for start, end in pairwise(edges):
        found[start:end] = gathered(log_ratio(one)[start:end][one.inputs["mask"][start:end]])
    return found


def accused(one: Case, words: str) -> bool:
    settings = (
        {"grpo": one.config} if "seq_logprob_error_threshold" in one.config and len(one.config) == 2 else one.config
    )
    return any(words in each.text for each in read(one.framework, settings).findings)


def test_slime_divides_by_the_mean_of_the_sequences_of_one_call() -> None:
    one = case("correction", "slime", 5)
    mask, held = one.inputs["mask"], log_ratio(one).exp().clamp(max=2.0)
    factor = held[mask].mean()
    torch.testing.assert_close(one.outputs["weight"][mask], held[mask] / factor)
    assert abs(factor.item() - one.metrics["batch_norm_factor"]) < 1e-5
    half = int(one.inputs["cu_seqlens"][2])
    assert not torch.isclose(held[:half][mask[:half]].mean(), factor, rtol=1e-2)  # of half of the batch it is another
    assert accused(one, "one micro-batch")
    assert not accused(case("correction", "slime", 0), "one micro-batch")


def test_slimes_sequence_level_is_the_product() -> None:
    one = case("correction", "slime", 12)
    mask, factor = one.inputs["mask"], one.metrics["batch_norm_factor"]
    product, mean = (by_sequence(one, each).clamp(-20, 20).exp().clamp(max=2.0) for each in (torch.sum, torch.mean))
    torch.testing.assert_close(one.outputs["weight"][mask] * factor, product[mask])
    assert not torch.allclose(product[mask], mean[mask], rtol=1e-2)
    assert accused(one, "is the product over the tokens")


def test_nemo_rls_survivors_of_seq_mask_tis_are_not_bounded() -> None:
    one = case("correction", "nemo-rl", 5)
    left = one.outputs["weight"] > 0
    torch.testing.assert_close(one.outputs["weight"][left], log_ratio(one).exp()[left])
    assert one.outputs["weight"].max() > 1.1 * one.config["truncated_importance_sampling_ratio"]
    assert accused(one, "unbounded, in spite of its name")
    tis = case("correction", "nemo-rl", 1)
    assert tis.outputs["weight"].max() <= tis.config["truncated_importance_sampling_ratio"]
    assert not accused(tis, "unbounded, in spite of its name")


def test_nemo_rls_correction_without_a_type_is_the_whole_ratio_or_the_whole_product() -> None:
    token, sequence = case("correction", "nemo-rl", 0), case("correction", "nemo-rl", 10)
    mask = token.outputs["kept"]
    torch.testing.assert_close(token.outputs["weight"][mask], log_ratio(token).exp()[mask])
    kept = sequence.outputs["kept"]
    product = (log_ratio(sequence) * kept).sum(-1, keepdim=True).exp().expand_as(kept)
    torch.testing.assert_close(sequence.outputs["weight"][kept], product[kept])
    for one, level in ((token, "token"), (sequence, "sequence")):
        rule = read("nemo-rl", one.config).correction
        assert rule is not None
        assert rule.weight is not None
        assert (rule.weight.level, rule.weight.upper) == (level, None)


def test_nemo_rls_rejected_sequences_leave_the_count_and_zeroed_tokens_stay() -> None:
    one = case("correction", "nemo-rl", 13)
    before, kept = one.inputs["mask"], one.outputs["kept"]
    gone = before.any(-1) & ~kept.any(-1)
    assert gone.any()
    assert torch.equal(kept[~gone], before[~gone] & kept[~gone].any(-1, keepdim=True))
    assert bool((kept & (one.outputs["weight"] == 0)).any())
    assert accused(one, "leave the denominator")
    assert not accused(case("correction", "nemo-rl", 3), "leave the denominator")


def test_nemo_rls_deviation_is_that_of_the_others() -> None:
    one = case("advantage", "nemo-rl", 0)
    rewards, group, found = one.inputs["rewards"], one.inputs["group"], one.outputs["advantages"].flatten()
    for row in range(len(rewards)):
        others = rewards[(group == group[row]) & (torch.arange(len(rewards)) != row)]
        away = rewards[row] - others.mean()
        std = others.std()
        torch.testing.assert_close(found[row], away / (std + 1e-6) if std > 0 else away, rtol=1e-4, atol=1e-5)
    whole = torch.stack([rewards[row] - rewards[group == group[row]].mean() for row in range(len(rewards))])
    assert not torch.allclose(found, whole, rtol=1e-2)
    assert accused(one, "both those of the others")
    assert not accused(case("advantage", "nemo-rl", 2), "both those of the others")


def test_prime_rls_kept_tokens_carry_their_whole_ratio() -> None:
    one = case("correction", "prime-rl", 2)
    log_r = one.inputs["current"] - one.inputs["behavior"]
    kept, mask = one.outputs["kept"], one.inputs["mask"]
    slope = 2 * one.config["kl_tau"] * log_r - one.inputs["advantages"] * log_r.exp() * kept
    torch.testing.assert_close(one.outputs["grad"][mask] * mask.sum(), slope[mask], rtol=1e-3, atol=1e-4)
    assert log_r.exp()[kept].max() > 5  # the bound of its IcePop
    assert accused(one, "is uncapped")
    assert not accused(case("correction", "prime-rl", 4), "has no penalty")
