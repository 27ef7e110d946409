"""TRL's asynchronous trainer on a CPU: its own loss over a packed batch, model and ranks stood in for; and the callback that measures."""

from __future__ import annotations

import warnings
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from trl.experimental.async_grpo import async_grpo_trainer as theirs

from trimtab.config.plan import Plan
from trimtab.errors import ConfigError
from trimtab.plugins.trl import AsyncGRPOTrainer, Measure
from trimtab.plugins.trl_async import ASYNC

TOKENS, LENGTHS = 18, (7, 6, 5)


class Accelerator:
    num_processes = 1

    def reduce(self, value: Tensor, reduction: str) -> Tensor:
        return value

    def gather(self, value: Tensor) -> Tensor:
        return value.reshape(-1)


def trainer(kind: type, plan: Any = None, aux: bool = False) -> Any:
    """One with what `compute_loss` reads, and nothing of servers or devices."""
    made = object.__new__(kind)
    vars(made).update(
        epsilon_low=0.2, epsilon_high=0.2, accelerator=Accelerator(), aux_loss_enabled=aux, router_aux_loss_coef=0.5,
        current_gradient_accumulation_steps=2, _metrics={"train": defaultdict(list)}, _step_forward_tokens=0.0, _step_trained_tokens=0.0,
        _step_seq_len_weighted=0.0, _step_samples=0.0, _step_forward_s=0.0, trimtab=Plan.of(plan),
    )  # fmt: skip
    return made


def batch() -> tuple[Any, dict[str, Tensor], Tensor]:
    make = torch.Generator().manual_seed(0)
    weights = (-torch.rand(1, 24, generator=make) * 3 - 0.1).requires_grad_()
    index = torch.full((1, 20), -1)
    index[0, :TOKENS] = torch.randperm(24, generator=make)[:TOKENS]
    current = weights.detach().flatten()[index[0, :TOKENS]]
    old = torch.zeros(1, 20)
    old[0, :TOKENS] = current + 0.7 * torch.randn(TOKENS, generator=make)
    segment = torch.full((1, 20), -1)
    segment[0, :TOKENS] = torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS))
    advantages = torch.zeros(1, 20)
    advantages[0, :TOKENS] = torch.tensor([1.0, -0.5, 0.8])[segment[0, :TOKENS]]
    none = torch.full((1, 1), -1)
    inputs = {
        "attention_mask": torch.ones(1, 24, dtype=torch.long), "token_index": index, "input_ids": torch.ones(1, 24, dtype=torch.long),
        "position_ids": torch.arange(24)[None], "shift_labels": torch.ones(1, 24, dtype=torch.long), "old_log_probs": old,
        "advantages": advantages, "segment_id": segment, "global_n_tokens": torch.tensor([float(TOKENS)]), "tree_kv_index": none,
        "tree_cu_seqlens_q": none, "tree_cu_seqlens_k": none, "tree_max_seqlens": torch.tensor([[1, 1]]),
        "global_n_forward_tokens": torch.tensor([24.0]), "mean_seq_len": torch.tensor([8.0]),
    }  # fmt: skip

    def model(**_: Any) -> Any:
        return SimpleNamespace(log_probs=weights, entropy=torch.ones_like(weights), aux_loss=weights.square().mean())

    return model, inputs, weights


def step(kind: type, plan: Any = None, aux: bool = False) -> tuple[float, Tensor, dict[str, list[Any]]]:
    model, inputs, weights = batch()
    made = trainer(kind, plan, aux)
    loss = made.compute_loss(model, inputs)
    loss.backward()
    assert weights.grad is not None
    return loss.item(), weights.grad, made._metrics["train"]


@pytest.mark.parametrize("aux", [False, True])
def test_no_correction_under_bypass_is_trls_own_loss(aux: bool) -> None:
    (wanted, gradient, logged), (found, ours, more) = (
        step(theirs.AsyncGRPOTrainer, aux=aux),
        step(AsyncGRPOTrainer, "bypass-off", aux),
    )
    assert found == pytest.approx(wanted, abs=1e-6)
    assert torch.allclose(ours, gradient, atol=1e-6)
    assert {name: more[name] for name in logged} == logged
    assert more["trimtab/drift/k3"] == pytest.approx(logged["kl"], rel=1e-5)


def test_without_a_plan_it_measures_and_the_loss_is_trls_to_the_bit() -> None:
    (wanted, gradient, logged), (found, ours, more) = step(theirs.AsyncGRPOTrainer), step(AsyncGRPOTrainer)
    assert found == wanted
    assert torch.equal(ours, gradient)
    assert more["trimtab/drift/k3"] == pytest.approx(logged["kl"], rel=1e-5)


@pytest.mark.parametrize("rule", ["token-tis", {"preset": "token-mis"}, "bypass-geo-rs"])
def test_a_rule_that_fires_gives_another_loss_and_gradient(rule: Any) -> None:
    (wanted, gradient, _), (found, ours, metrics) = step(theirs.AsyncGRPOTrainer), step(AsyncGRPOTrainer, rule)
    assert abs(found - wanted) > 1e-3
    assert not torch.allclose(ours, gradient, atol=1e-3)
    assert metrics["trimtab/weight/ess"][0] < 1


def test_token_tis_has_the_gradient_of_its_formula() -> None:
    _, ours, _ = step(AsyncGRPOTrainer, "token-tis")
    _, inputs, weights = batch()
    picked = inputs["token_index"][0, :TOKENS]
    wanted = torch.zeros(24)
    weight = (weights.detach().flatten()[picked] - inputs["old_log_probs"][0, :TOKENS]).exp().clamp(max=2)
    wanted[picked] = -weight * inputs["advantages"][0, :TOKENS] / TOKENS / 2
    assert torch.allclose(ours[0], wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"correction": {"gates": [{"metric": "age", "level": "token", "upper": 2}]}}, "version of each token"),
        (
            {"correction": {"weight": {"level": "token", "upper": 2}, "normalize": "batch"}},
            "Only a part of the optimiser step",
        ),
        ({"loss": {"kind": "clip"}}, "epsilon"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_the_reason(plan: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ASYNC.check(Plan.of(plan))


# --- Measure


class Scored:
    """What the callback touches of a GRPOTrainer."""

    def __init__(self, liger: bool = False) -> None:
        self.model = torch.nn.Linear(1, 1)
        self._metrics: dict[str, Any] = {"train": defaultdict(list), "eval": defaultdict(list)}
        self.log_probs, self.liger = torch.linspace(-3, -0.1, 8).reshape(2, 4).requires_grad_(), liger

    def _get_per_token_logps_and_entropies(self, *_: Any) -> Any:
        return self.log_probs, None, None

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        scored = self.log_probs if self.liger else self._get_per_token_logps_and_entropies(model)[0]
        return (scored * inputs["completion_mask"]).sum()


def inputs(**more: Any) -> dict[str, Any]:
    sampler = torch.linspace(-3, -0.1, 8).reshape(2, 4) + torch.tensor([0.0, 0.5, -0.5, 0.1])
    return {
        "completion_mask": torch.ones(2, 4),
        "sampling_per_token_logps": sampler,
        "old_per_token_logps": None,
    } | more


def test_measuring_changes_no_bit_and_logs_the_gap_and_three_rules() -> None:
    plain, measured = Scored(), Scored()
    Measure(measured)
    losses = [each._compute_loss(each.model, inputs()) for each in (plain, measured)]
    for each in losses:
        each.backward()
    assert torch.equal(*losses)
    assert torch.equal(plain.log_probs.grad, measured.log_probs.grad)  # pyright: ignore[reportArgumentType]
    logged = measured._metrics["train"]
    gap = torch.tensor([0.0, -0.5, 0.5, -0.1])
    assert logged["trimtab/drift/kl"] == pytest.approx([-gap.mean().item()], abs=1e-6)
    assert logged["trimtab/drift/k3"] == pytest.approx([(gap.exp() - 1 - gap).mean().item()], rel=1e-5)
    assert {f"trimtab/{rule}/kept_fraction" for rule in ("geo-rs", "token-mis", "token-tis")} <= logged.keys()
    assert not plain._metrics["train"]


@pytest.mark.parametrize(
    ("made", "given", "said"),
    [
        (Scored(liger=True), inputs(), "never scores tokens"),
        (Scored(), inputs(sampling_per_token_logps=None), "log-probs are not kept"),
        (Scored(), inputs(completion_mask=torch.ones(2, 4), sampling_per_token_logps=torch.ones(3, 3)), "Error"),
    ],
)
def test_what_cannot_be_measured_is_said_once_and_trains_on(made: Scored, given: dict[str, Any], said: str) -> None:
    Measure(made)
    with pytest.warns(UserWarning, match=said):
        wanted = made._compute_loss(made.model, given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made._compute_loss(made.model, given).item() == wanted.item()
    assert not made._metrics["train"]
