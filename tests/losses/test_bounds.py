"""Losses that bound the ratio in ways of their own, by hand: BAPO, whose bounds a batch chooses, and ASPO, which turns it over."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from trimtab import Aspo, Bapo, Clip, Fipo, policy_loss
from trimtab.errors import ConfigError
from trimtab.losses.policy import PolicyLoss


def run(loss: Bapo | Aspo | Clip | Fipo, ratios: list[float], advantages: list[float]) -> tuple[PolicyLoss, Tensor]:
    """The summed loss of single tokens with these ratios, and its slope in each log-prob."""
    proximal = torch.full((len(ratios), 1), -5.0, dtype=torch.float64)
    current = (proximal + torch.tensor(ratios, dtype=torch.float64)[:, None].log()).requires_grad_(True)
    found = policy_loss(
        loss,
        current=current,
        proximal=proximal,
        advantages=torch.tensor(advantages, dtype=torch.float64)[:, None],
        mask=torch.ones(len(ratios), 1, dtype=torch.bool),
        reduction="token-sum",
    )
    found.loss.backward()
    assert current.grad is not None
    return found, current.grad.flatten()


# gains min(2, upper); losses max(0.5, lower) + 1
#   lower 0.6  upper 1.2   1.2 / 1.6 = 0.750
#   lower 0.7  upper 1.2   1.2 / 1.7 = 0.706   a higher lower bound counts more as lost
#   lower 0.8  upper 1.2   1.2 / 1.8 = 0.667
#   lower 0.8  upper 1.6   1.6 / 1.8 = 0.889
#   lower 0.8  upper 2.0   2.0 / 1.8 = 1.111
RATIOS, ADVANTAGES = [2.0, 0.5, 1.0], [1.0, -1.0, -1.0]


@pytest.mark.parametrize(
    ("target", "lower", "upper", "value"),
    [
        (0.7, 0.6, 1.2, -1.2 + 0.6 + 1.0),  # enough at once
        (0.85, 0.8, 1.6, -1.6 + 0.8 + 1.0),  # the lower bound to its end, then one step of the upper
        (1.0, 0.8, 2.0, -2.0 + 0.8 + 1.0),
        (9.0, 0.8, 2.0, -2.0 + 0.8 + 1.0),  # never enough: both at their ends
    ],
)
def test_the_bounds_of_a_batch_are_searched_in_order(target: float, lower: float, upper: float, value: float) -> None:
    loss = Bapo(target=target, lower=0.6, lower_max=0.8, lower_step=0.1, upper=1.2, upper_max=2.0, upper_step=0.4)
    found, slopes = run(loss, RATIOS, ADVANTAGES)
    assert float(found.metrics["policy/bound_low"]) == pytest.approx(lower)
    assert float(found.metrics["policy/bound_high"]) == pytest.approx(upper)
    assert float(found.loss.detach()) == pytest.approx(value)
    # 2.0 is above every upper bound but the last, which it meets; 0.5 is below every lower one
    assert slopes.tolist() == pytest.approx([-2.0 if upper == 2.0 else 0.0, 0.0, 1.0])
    fixed, _ = run(Clip(low=1 - lower, high=upper - 1, dual=3.0), RATIOS, ADVANTAGES)
    assert float(found.loss.detach()) == pytest.approx(float(fixed.loss.detach()))


def test_without_losses_or_gains_nothing_is_searched_in_vain() -> None:
    only_gains, _ = run(Bapo(), [2.0, 1.0], [1.0, 1.0])
    assert float(only_gains.metrics["policy/bound_low"]) == pytest.approx(0.6)
    assert float(only_gains.metrics["policy/bound_high"]) == pytest.approx(1.2)
    nothing, slopes = run(Bapo(), [2.0, 0.5], [0.0, 0.0])
    assert float(nothing.loss.detach()) == 0.0
    assert not slopes.any()
    only_losses, _ = run(Bapo(), [2.0, 1.0], [-1.0, -1.0])
    assert float(only_losses.metrics["policy/bound_high"]) == pytest.approx(2.0)


def test_a_rejected_token_has_no_part_in_the_search() -> None:
    """With the second token masked nothing is lost; its ratio and advantage, whatever they are, reach nothing."""
    given = {
        "proximal": torch.full((2, 1), -5.0),
        "current": torch.tensor([[-4.0], [float("nan")]]),
        "advantages": torch.tensor([[1.0], [-1e9]]),
        "mask": torch.tensor([[True], [False]]),
    }
    found = policy_loss(Bapo(), **given)
    assert float(found.metrics["policy/bound_high"]) == pytest.approx(1.2)
    assert float(found.loss) == pytest.approx(-1.2)


def test_tokens_held_by_the_dual_bound_are_counted() -> None:
    # A = −1 at ρ = e² = 7.4: above 3, so the first token loses 3 and has no slope; at 2.9 and where A > 0 it is no matter of the bound
    found, slopes = run(Bapo(), [math.exp(2), 2.9, math.exp(2), 1.0], [-1.0, -1.0, 1.0, 1.0])
    assert float(found.metrics["policy/clip_dual"]) == 1 / 4
    assert slopes[0] == 0
    assert slopes[1] == pytest.approx(2.9)
    without, slopes = run(Bapo(dual=None), [math.exp(2)], [-1.0])
    assert "policy/clip_dual" not in without.metrics
    assert slopes[0] == pytest.approx(math.exp(2))


def _on_ranks(rank: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    loss = Bapo(target=0.85, lower_step=0.1, upper_step=0.4)
    own = (
        slice(0, 1) if rank == 0 else slice(1, 3)
    )  # alone, the first rank would lose nothing and the second gain nothing
    proximal = torch.full((3, 1), -5.0, dtype=torch.float64)[own]
    current = proximal + torch.tensor(RATIOS, dtype=torch.float64)[:, None].log()[own]
    worth = torch.tensor(ADVANTAGES, dtype=torch.float64)[:, None][own]
    found = policy_loss(
        loss,
        current=current,
        proximal=proximal,
        advantages=worth,
        mask=torch.ones_like(worth).bool(),
        reduction="token-sum",
        process_group=dist.group.WORLD,
    )
    torch.testing.assert_close(found.metrics["policy/bound_high"], torch.tensor(1.6))
    torch.testing.assert_close(found.metrics["policy/loss"], torch.tensor(0.2))
    dist.destroy_process_group()


def test_every_rank_finds_the_bounds_of_the_whole_batch(tmp_path: Path) -> None:
    mp.start_processes(_on_ranks, args=(str(tmp_path),), nprocs=2, start_method="spawn")  # pyright: ignore[reportPrivateImportUsage]


def test_the_ratio_is_turned_over_where_the_advantage_is_positive() -> None:
    ratios = [0.25, 0.5, 1.1, 1.5, 0.7, 1.5, 4.0]
    signs = [1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0]
    found, slopes = run(Aspo(), ratios, signs)
    assert slopes.tolist() == pytest.approx([-3.0, -2.0, -1 / 1.1, 0.0, 0.0, 1.5, 3.0])
    assert float(found.metrics["policy/clip_dual"]) == pytest.approx(2 / 7)
    assert float(found.metrics["policy/clip_high"]) == pytest.approx(1 / 7)
    assert float(found.metrics["policy/clip_low"]) == pytest.approx(1 / 7)
    _, plain = run(Clip(dual=3.0), ratios, signs)
    assert plain.tolist() == pytest.approx([-0.25, -0.5, -1.1, 0.0, 0.0, 1.5, 0.0])  # the control: PPO


def test_on_policy_both_are_ppo() -> None:
    for loss in (Bapo(), Aspo()):
        _, slopes = run(loss, [1.0, 1.0, 1.0], [1.0, -2.0, 0.5])
        assert slopes.tolist() == pytest.approx([-1.0, 2.0, -0.5])


def test_searches_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Bapo needs lower <= lower_max, got 0\.9 > 0\.8"):
        Bapo(lower=0.9)
    with pytest.raises(ConfigError, match="Bapo needs at most 1000 steps of upper_step, got 8000"):
        Bapo(upper_step=1e-4)


def test_the_host_never_reads_a_bound() -> None:
    """A meta tensor has no data: whatever looked at a number on the host would raise."""
    given = {name: torch.zeros(2, 3, device="meta") for name in ("current", "proximal", "advantages")}
    found = policy_loss(Bapo(), mask=torch.ones(2, 3, device="meta").bool(), **given)
    assert found.loss.is_meta
    assert found.metrics["policy/bound_low"].is_meta


def test_what_a_token_led_to_weighs_it() -> None:
    # γ = 1/2, log ρ of 0.2, −0.4, 0.4: the sums from each token on are 0.2 − 0.2 + 0.1 = 0.1, −0.4 + 0.2 = −0.2 and 0.4
    log_ratio = torch.tensor([[0.2, -0.4, 0.4, 9.0]], dtype=torch.float64)
    given = {
        "proximal": torch.full((1, 4), -5.0, dtype=torch.float64),
        "advantages": torch.ones(1, 4, dtype=torch.float64),
        "mask": torch.tensor([[True, True, True, False]]),
        "reduction": "token-sum",
    }

    def slopes(loss: Fipo | Clip) -> list[float]:
        current = (given["proximal"] + log_ratio).requires_grad_(True)
        policy_loss(loss, current=current, **given).loss.backward()  # pyright: ignore[reportArgumentType]
        assert current.grad is not None
        return current.grad[0].tolist()

    wide = {"low": 1.0, "high": 10.0}
    open_ = Fipo(half_life=1.0, lower=None, upper=None, safety=None, **wide)
    ratios = [math.exp(each) for each in (0.2, -0.4, 0.4)]
    assert slopes(open_) == pytest.approx(
        [-ratios[0] * math.exp(0.1), -ratios[1] * math.exp(-0.2), -(ratios[2] ** 2), 0.0]
    )
    bounded = Fipo(half_life=1.0, **wide)  # within 1 and 1.2
    assert slopes(bounded) == pytest.approx([-ratios[0] * math.exp(0.1), -ratios[1], -1.2 * ratios[2], 0.0])
    capped = open_.but(ratio_cap=1.3)  # e^0.4 is beyond: no part of any sum, and held
    assert slopes(capped) == pytest.approx([-ratios[0] * math.exp(0.2 - 0.2), -ratios[1] * math.exp(-0.4), 0.0, 0.0])
    assert slopes(Clip(**wide)) == pytest.approx([-each for each in ratios] + [0.0])  # the control


def test_a_token_pushed_down_though_it_became_far_likelier_is_not_weighed_up() -> None:
    found = Fipo(half_life=1.0, lower=None, upper=None, safety=1.5, low=1.0, high=10.0)
    _, slopes = run(found, [2.0, 1.2], [-1.0, -1.0])
    assert slopes.tolist() == pytest.approx([2.0, 1.2 * 1.2])  # 2 is above 1.5: its weight, 2, is held at 1
