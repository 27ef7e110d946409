from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

import trimtab
from tests.train.batches import batch, policy
from trimtab.config.advantages import Grpo
from trimtab.config.training import Train
from trimtab.errors import ConfigError
from trimtab.train.learner.batching import micro_batches
from trimtab.train.learner.learner import Learner
from trimtab.train.learner.rows import Rows
from trimtab.train.learner.update import Update, loglinear

pytestmark = pytest.mark.filterwarnings("ignore:Clip under a bypass rule with a weight")

SETTINGS = {"correction": "token-tis", "learner": {"minibatches": 1, "warmup": 1, "lr": 1e-2}}


def learner(model: PreTrainedModel, **changes: object) -> Learner:
    settings = {**SETTINGS, **changes}
    return Learner(Train.from_settings(settings), copy.deepcopy(model))


def gradients(of: Learner) -> Tensor:
    """Of the last update; clipped."""
    return torch.cat([each.grad.flatten() for each in of.model.parameters() if each.grad is not None])


def weights(of: Learner) -> Tensor:
    return torch.cat([each.detach().flatten() for each in of.model.parameters()])


def with_learner(**changes: object) -> dict[str, object]:
    return {"learner": {**SETTINGS["learner"], **changes}}


def test_one_update_is_the_policy_loss_and_adamw_written_out() -> None:
    made = policy()
    rows = batch(made)
    mine = learner(made.model)
    mine.learn(rows)

    model = copy.deepcopy(made.model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    logits = model(input_ids=rows.ids).logits.log_softmax(-1)
    current = torch.zeros_like(rows.behavior)
    for row in range(len(rows)):
        for place in range(int(rows.mask[row].sum())):
            at = int(rows.prompts[row]) - 1 + place
            current[row, place] = logits[row, at, rows.tokens[row, place]]
    found = trimtab.advantages(trimtab.Grpo(), rewards=rows.reward, mask=rows.mask, group=rows.group)
    loss = trimtab.policy_loss(
        trimtab.Clip(),
        current=current,
        proximal=current.detach(),
        behavior=rows.behavior,
        advantages=found.advantages,
        mask=rows.mask,
        correction=trimtab.preset("token-tis"),
    ).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    wanted, slope = (
        torch.cat([each.flatten() for each in some])
        for some in zip(*[(p.detach(), p.grad) for p in model.parameters()], strict=True)
    )
    sure = (slope == 0) | (
        slope.abs() > 1e-6
    )  # a first step of AdamW goes by the sign of a gradient, also of one that is all rounding
    assert sure.sum() > 0.99 * len(sure)
    torch.testing.assert_close(weights(mine)[sure], wanted[sure], rtol=1e-4, atol=3e-4)


@pytest.mark.parametrize("correction", ["token-tis", "geo-rs", "bypass-token-tis", "m2po", "opsm"])
@pytest.mark.parametrize("reduction", ["token-mean", "seq-mean-token-mean", "prompt-mean"])
def test_the_size_of_micro_batches_changes_nothing(correction: str, reduction: str) -> None:
    made = policy()
    made.model.double()  # a first step of AdamW goes by the sign of a gradient, also of one that is all rounding
    rows = batch(made, drift=0.02)
    whole = learner(made.model, correction=correction, reduction=reduction)
    small = learner(made.model, correction=correction, reduction=reduction, **with_learner(micro_tokens=12))
    assert whole.learn(rows).outcome == small.learn(rows).outcome == "updated"
    torch.testing.assert_close(gradients(whole), gradients(small), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("correction", ["geo-rs", "token-mis", "bypass-icepop", "off"])
def test_leaving_out_rows_that_cannot_contribute_is_exact(correction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = policy()
    rows = batch(made, groups=6, drift=0.05)
    rows.reward[rows.group == 2] = 1.0  # a group that agrees
    few, every = (learner(made.model, correction=correction) for _ in range(2))
    found = few.learn(rows)
    monkeypatch.setattr(Update, "_has_gradient", lambda self: self.mask.any(-1))
    everything = every.learn(rows)
    assert found.metrics["train/rows"] < everything.metrics["train/rows"]
    torch.testing.assert_close(gradients(few), gradients(every), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("baseline", ["kept", "all"])
@pytest.mark.parametrize("proximal", ["recompute", "loglinear"])
def test_a_response_no_verifier_could_score_neither_votes_nor_trains(proximal: str, baseline: str) -> None:
    made, failed = policy(), {1, 6, 7}
    scored = torch.tensor([row for row in range(16) if row not in failed])
    voting = {"advantage": {"kind": "grpo", "baseline": baseline}}
    whole, few = (learner(made.model, **voting, **with_learner(proximal=proximal)) for _ in range(2))
    found = whole.learn(batch(made, failed=failed))
    few.learn(batch(made).part(scored))
    torch.testing.assert_close(gradients(whole), gradients(few), rtol=1e-3, atol=1e-6)
    assert gradients(few).norm() > 0.1
    assert found.metrics["advantage/nonvoting_rows"] == 3


def test_a_batch_that_is_rejected_whole_moves_nothing() -> None:
    made = policy()
    mine = learner(made.model, correction={"preset": "geo-rs", "lower": 0.999999, "upper": 1.000001})
    before = weights(mine)
    found = mine.learn(batch(made, drift=1.0))
    assert found.outcome == "all rejected"
    assert torch.equal(before, weights(mine))
    assert found.metrics["all_rejected"] == 1.0
    assert mine.version == 1


def test_groups_that_agree_give_no_signal_and_move_nothing() -> None:
    made = policy()
    rows = batch(made)
    rows.reward.fill_(1.0)
    mine = learner(made.model)
    before = weights(mine)
    assert mine.learn(rows).outcome == "no signal"
    assert torch.equal(before, weights(mine))


def test_a_gradient_that_is_not_finite_is_not_stepped_on() -> None:
    made = policy()
    mine = learner(made.model, correction="off")
    broken = next(iter(mine.model.parameters()))
    broken.register_hook(lambda grad: grad * math.inf)
    before = weights(mine)
    found = mine.learn(batch(made))
    assert found.outcome == "not finite"
    assert found.metrics["train/not_finite"] == 1.0
    assert torch.equal(before, weights(mine))


def test_tokens_without_a_log_prob_are_as_if_never_trained() -> None:
    made = policy()
    rows = batch(made, samples=6)
    torn = Rows(**(vars(rows) | {"behavior": rows.behavior.clone(), "mask": rows.mask.clone()}))
    torn.behavior[3, 0] = math.nan
    masked = Rows(**(vars(rows) | {"mask": rows.mask.clone()}))
    one, other = learner(made.model), learner(made.model)
    missing = one.learn(torn)
    masked.mask[3, 0] = False
    other.learn(masked)
    assert missing.metrics["missing_fraction"] > 0
    torch.testing.assert_close(gradients(one), gradients(other), rtol=1e-3, atol=1e-6)


def test_a_response_that_ended_in_an_error_is_not_trained() -> None:
    made = policy()
    rows = batch(made)
    mine = learner(made.model)
    rows.mask[0] = False
    found = mine.learn(rows)
    assert found.metrics["sequences"] == len(rows) - 1
    assert not bool(found.corrected.kept[0].any())


@pytest.mark.parametrize(("baseline", "left"), [("all", -0.25 / (0.5 + 1e-6)), ("kept", 0.0)])
def test_whether_rejected_rows_vote_is_a_setting(baseline: str, left: float) -> None:
    # Group 0 has rewards 1, 0, 0, 0; its first row is far off-policy and rejected. Kept, the other three agree: no advantage.
    # Voting, it makes the mean 1/4 and the variance (9/16 + 3/16)/3 = 1/4: −1/4 over 1/2 + eps.
    made = policy()
    rows = batch(made, groups=2, drift=0.0)
    rows.reward[:4] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    rows.behavior[0] -= 1.0
    voting = {} if baseline == Grpo().baseline else {"advantage": {"kind": "grpo", "baseline": baseline}}
    mine = learner(made.model, correction="geo-rs", **voting)
    found = mine.learn(rows)
    assert not bool(found.corrected.kept[0].any())
    torch.testing.assert_close(found.advantages[1:4], rows.mask[1:4] * left, atol=1e-6, rtol=0)


def test_loglinear_lies_between_behavior_and_current_by_version() -> None:
    # learner 10, sampled at 6: α = (10 − 1 − 6) / (10 − 6) = 3/4, so −2 + 3/4·(−1 + 2) = −1.25; of this version or unknown: behavior
    versions = torch.tensor([6, 10, -1])
    found = loglinear(torch.full((3,), -2.0), torch.full((3,), -1.0), versions, 10)
    assert found.tolist() == [-1.25, -2.0, -2.0]


@pytest.mark.parametrize("proximal", ["loglinear", "none"])
def test_without_the_pass_ahead_of_a_step_metrics_come_from_training(proximal: str) -> None:
    made = policy()
    rows = batch(made, drift=0.1)
    rule = "bypass-token-tis" if proximal == "none" else "token-tis"
    mine = learner(made.model, correction=rule, **with_learner(proximal=proximal))
    mine.version = 3
    found = mine.learn(rows)
    assert found.outcome == "updated"
    assert found.metrics["drift/k3"] > 0
    assert found.proximal is None


def test_a_decoupled_correction_needs_proximal_log_probs() -> None:
    with pytest.raises(ConfigError, match=r"learner\.proximal none needs"):
        Train.from_settings({"correction": "token-tis", "learner": {"proximal": "none"}})


def test_the_learning_rate_rises_over_the_first_steps() -> None:
    made = policy()
    mine = learner(made.model, **with_learner(warmup=4))
    rates = [mine.learn(batch(made, seed=step)).metrics["train/lr"] for step in range(5)]
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01])


def test_micro_batches_hold_every_row_once_and_keep_to_the_limit() -> None:
    sizes = torch.tensor([5, 40, 3, 3, 9, 12])
    found = micro_batches(sizes, 24)
    assert sorted(torch.cat(found).tolist()) == list(range(6))
    assert all(len(each) == 1 or len(each) * int(sizes[each].max()) <= 24 for each in found)


def test_kl_to_the_reference_pulls_rows_without_advantage() -> None:
    made, other = policy(), policy(1)
    rows = batch(made)
    rows.reward.fill_(1.0)
    config = Train.from_settings({**SETTINGS, "kl": {"coefficient": 0.1}})
    mine = Learner(config, copy.deepcopy(made.model), other.model)
    found = mine.learn(rows)
    assert found.outcome == "updated"
    assert found.metrics["policy/kl"] > 0


def test_selection_is_told_by_what_rejected_rows_would_have_been_worth() -> None:
    # The first of two right rows in each group is far off and rejected; all wrong ones stay.
    made = policy()
    rows = batch(made, groups=3, drift=0.0)
    rows.reward.copy_(torch.tensor([1.0, 1.0, 0.0, 0.0] * 3))
    rows.correct.copy_(rows.reward > 0)
    rows.behavior[0::4] -= 1.0
    found = learner(made.model, correction="geo-rs").learn(rows)
    tokens = rows.mask.sum(-1).float()
    right = float(tokens[1::4].sum() / tokens[rows.correct].sum())
    assert found.metrics["selection/kept_given_right"] == pytest.approx(right)
    assert found.metrics["selection/kept_given_wrong"] == 1.0
    assert found.metrics["selection/kept_given_positive"] == pytest.approx(right)
    assert found.metrics["selection/net_advantage"] < found.metrics["selection/mean_advantage"]


def test_minibatches_are_whole_groups_or_any_rows() -> None:
    made = policy()
    rows = batch(made, groups=6, samples=4)

    def parts(of: str) -> list[list[int]]:
        mine = learner(made.model, **with_learner(minibatches=3, minibatch_of=of))
        seen: list[list[int]] = []

        class Spy(Update):
            def _minibatch(self, part: Tensor, index: Tensor) -> bool:
                seen.append(part.tolist())
                return super()._minibatch(part, index)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("trimtab.train.learner.learner.Update", Spy)
            mine.learn(rows)
        return seen

    groups, single = parts("groups"), parts("rows")
    for found in (groups, single):
        assert sorted(row for part in found for row in part) == list(range(24))
        assert [len(part) for part in found] == [8, 8, 8]
    assert all(len({row // 4 for row in part}) == 2 for part in groups)
    assert any(len({row // 4 for row in part}) > 2 for part in single)
