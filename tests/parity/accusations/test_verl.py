"""What trimtab says of verl 0.9.1 beside what verl does: its trainers' own steps, its losses, its helper and its configuration.

TransferQueue, which carries batches between the v1 trainer's workers, is not installed here: a dictionary stands in for it. The legacy
trainer's `fit` is one function; the steps that matter stand as methods, word for word, in verl.experimental.separation.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import shlex
import sys
import types
from typing import Any
from unittest import mock

import numpy as np
import peers
import pytest
import torch
from torch import Tensor

import trimtab
from trimtab.dialects import read

ACTOR = "actor_rollout_ref.actor"
SECTION, LOSS = "algorithm.rollout_correction", f"{ACTOR}.policy_loss.rollout_correction"
Settings = dict[str, Any]
close = functools.partial(torch.testing.assert_close, rtol=1e-5, atol=1e-6)


class Queue(types.ModuleType):
    """Fields of rows that are not padded, as TransferQueue keeps them; one batch is all there is."""

    def __init__(self) -> None:
        super().__init__("transfer_queue")
        self.fields: dict[str, Tensor] = {}

        class KVBatchMeta:
            def __init__(self, keys: list[str]) -> None:
                self.keys, self.partition_id, self.extra_info = keys, "train", {}

            def __len__(self) -> int:
                return len(self.keys)

        self.KVBatchMeta = KVBatchMeta

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        tensordict = importlib.import_module("tensordict")
        there = {name: self.fields[name] for name in select_fields if name in self.fields}
        return tensordict.TensorDict(there, batch_size=len(keys))

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any) -> Any:
        self.fields.update({name: fields[name] for name in fields.keys()})  # noqa: SIM118 (a TensorDict)
        return self.KVBatchMeta(keys)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return mock.MagicMock(name=name)


QUEUE = Queue()


@functools.cache
def verl() -> types.SimpleNamespace:
    """verl's modules, with the queue in the place of TransferQueue."""
    names = {
        "v1": "verl.trainer.ppo.v1.trainer_base",
        "sessions": "verl.trainer.ppo.v1.utils",
        "legacy": "verl.experimental.separation.ray_trainer",
        "helper": "verl.trainer.ppo.rollout_corr_helper",
        "algos": "verl.trainer.ppo.core_algos",
        "padding": "verl.workers.utils.padding",
        "config": "verl.utils.config",
        "protocol": "verl.protocol",
        "hydra": "hydra",
        "omegaconf": "omegaconf",
    }
    sys.modules["transfer_queue"] = QUEUE
    try:
        with peers.quiet():
            return types.SimpleNamespace(**{key: importlib.import_module(name) for key, name in names.items()})
    finally:
        del sys.modules["transfer_queue"]


def composed(*overrides: str) -> Any:
    """verl's configuration with overrides as a user types them."""
    required = (f"{ACTOR}.ppo_micro_batch_size_per_gpu=1",)
    hydra = verl().hydra
    with peers.quiet(), hydra.initialize_config_module(config_module="verl.trainer.config", version_base=None):
        return hydra.compose(config_name="ppo_trainer", overrides=[*overrides, *required])


def words_of(settings: Settings) -> list[str]:
    """Settings as overrides; `+` before what the YAML does not have."""
    quoted = {key: f'"{value}"' if isinstance(value, str) else str(value) for key, value in settings.items()}
    return [f"{'+' if key.startswith(LOSS) else ''}{key}={value}" for key, value in quoted.items()]


def worker_of(config: Any) -> Any:
    """The configuration of the actor as its worker makes it from what it was sent."""
    with peers.quiet():
        return verl().config.omega_conf_to_dataclass(config.actor_rollout_ref.actor)


def nested(rows: Tensor, lengths: Tensor) -> Tensor:
    cut = [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]
    with peers.quiet():
        return torch.nested.as_nested_tensor(cut, layout=torch.jagged)


class Rows:
    """Rows whose sampler, trainer and present policy differ; the mask has gaps."""

    def __init__(self, seed: int = 0) -> None:
        make = torch.Generator().manual_seed(seed)
        self.count, self.width = 6, 8
        shape = (self.count, self.width)
        self.lengths = torch.tensor([8, 5, 7, 3, 6, 8])
        self.mask = torch.arange(self.width) < self.lengths[:, None]
        self.mask &= torch.rand(shape, generator=make) > 0.15
        self.mask[:, 0] = True
        self.behavior = -torch.rand(shape, generator=make) * 2 - 0.5
        self.proximal = self.behavior + 0.5 * torch.randn(shape, generator=make)
        self.current = self.proximal + 0.5 * torch.randn(shape, generator=make)
        self.advantages = torch.randn(shape, generator=make)

    def of_worker(self) -> Tensor:
        """The proximal log-probs as the engine returns them: of prompt and answer, one place early."""
        one = torch.zeros(1)
        rows = [
            torch.cat([row[:length], one]) for row, length in zip(self.proximal, self.lengths.tolist(), strict=True)
        ]
        with peers.quiet():
            return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


Step = tuple[Tensor, Tensor, Tensor | None, int]
"""Old log-probs, mask and weights as they reach the loss, and the tokens that a token mean divides by."""


def by_v1(config: Any, rows: Rows) -> Step:
    """PPOTrainer._compute_old_log_prob and _compute_advantage."""
    modules = verl()
    keys = [f"p_{row}_0" for row in range(rows.count)]
    QUEUE.fields = {
        "rollout_log_probs": nested(rows.behavior, rows.lengths),
        "response_mask": nested(rows.mask.long(), rows.lengths),
        "responses": nested(rows.mask.long(), rows.lengths),
        "rm_scores": nested(rows.advantages * 0, rows.lengths),
        "uid": torch.arange(rows.count),
    }
    if not config.actor_rollout_ref.rollout.calculate_log_probs:
        del QUEUE.fields["rollout_log_probs"]  # as the agent loop leaves them out

    def compute_log_prob(batch: Any) -> Any:
        QUEUE.fields |= {"log_probs": rows.of_worker(), "entropy": rows.of_worker()}
        return batch

    trainer = types.SimpleNamespace(
        config=config, actor_rollout_wg=types.SimpleNamespace(compute_log_prob=compute_log_prob)
    )
    batch, metrics = QUEUE.KVBatchMeta(keys), dict[str, float]()
    same = {"compute_advantage_for_multi_trajectories": lambda data, **_: _with_advantages(data, rows)}
    with peers.quiet(), mock.patch.multiple(modules.v1, **same):
        modules.v1.PPOTrainer._compute_old_log_prob(trainer, batch, metrics)
        modules.v1.PPOTrainer._compute_advantage(trainer, batch, metrics)
        found = {name: QUEUE.fields[name].to_padded_tensor(0.0) for name in ("old_log_probs", "response_mask")}
        weights = QUEUE.fields.get("rollout_is_weights")
        weights = None if weights is None else weights.to_padded_tensor(0.0)
    return found["old_log_probs"], found["response_mask"].bool(), weights, int(rows.mask.sum())


def by_legacy(config: Any, rows: Rows) -> Step:
    """_fit_compute_log_prob and _fit_compute_advantage; the tokens are counted after them, by left_right_2_no_padding."""
    modules = verl()
    tensors = {
        "rollout_log_probs": rows.behavior,
        "response_mask": rows.mask.long(),
        "responses": rows.mask.long(),
    }
    batch = modules.protocol.DataProto.from_dict(tensors=tensors)

    def recomputed(_: Any) -> Any:
        found = {"old_log_probs": rows.proximal, "entropys": rows.proximal}
        return modules.protocol.DataProto.from_dict(tensors=found), 0.0

    trainer = types.SimpleNamespace(config=config, metrics={}, timing_raw={}, _compute_old_log_prob=recomputed)
    trainer.reward_tensor, trainer.reward_extra_infos_dict = rows.advantages * 0, {}
    kind = next(each for each in vars(modules.legacy).values() if hasattr(each, "_fit_compute_log_prob"))
    with (
        peers.quiet(),
        mock.patch.object(modules.legacy, "compute_advantage", lambda data, **_: _with_advantages(data, rows)),
    ):
        batch = kind._fit_compute_log_prob(trainer, batch)
        batch = kind._fit_compute_advantage(trainer, batch)
    kept = batch.batch["response_mask"].bool()
    weights = batch.batch.get("rollout_is_weights", None)
    return batch.batch["old_log_probs"], kept, weights, int(kept.sum())


def _with_advantages(data: Any, rows: Rows) -> Any:
    data.batch["advantages"], data.batch["returns"] = rows.advantages, rows.advantages
    return data


def stepped(settings: Settings, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """verl's loss of one step, its gradient, and the old log-probs that the loss was given."""
    config = composed(*words_of(settings))
    actor = worker_of(config)  # before the first step, as the workers make it
    old, mask, weights, tokens = (by_v1 if config.trainer.use_v1 else by_legacy)(config, rows)
    actor.global_batch_info.update(dp_size=1, batch_num_tokens=tokens, global_batch_size=rows.count)
    leaf = rows.current.clone().requires_grad_()
    with peers.quiet():
        loss, _ = verl().algos.get_policy_loss_fn(actor.policy_loss.loss_mode)(
            old_log_prob=old,
            log_prob=leaf,
            advantages=rows.advantages,
            response_mask=mask,
            loss_agg_mode=actor.loss_agg_mode,
            config=actor,
            rollout_is_weights=weights,
        )
    (gradient,) = torch.autograd.grad(loss, leaf, allow_unused=True)
    return loss.detach(), gradient, old


FIRST = {f"{SECTION}.rollout_rs": "token_k2", f"{SECTION}.rollout_rs_threshold": 0.3, f"{SECTION}.rollout_is": "token"}
SECOND = {f"{LOSS}.rollout_rs": "seq_mean_k3", f"{LOSS}.rollout_rs_threshold": 0.12, f"{LOSS}.rollout_is": "token"}
MIXED = {f"{LOSS}.rollout_rs": "token_k1,seq_mean_k2", f"{LOSS}.rollout_rs_threshold": "0.6_1.9,0.13"}
SECTIONS = {
    "neither": {},
    "first": FIRST,
    "second": SECOND,
    "both": {**FIRST, **SECOND},
    "both mixed": {**FIRST, **MIXED},
}
COMBINATIONS = list(itertools.product((False, True), (False, True), SECTIONS, (True, False), ("ppo_clip", "reinforce")))


@pytest.mark.parametrize(("by_loss", "bypass", "sections", "v1", "loss_type"), COMBINATIONS)
def test_each_combination_of_the_switches_computes_what_is_read(
    by_loss: bool, bypass: bool, sections: str, v1: bool, loss_type: str
) -> None:
    settings: Settings = {"trainer.use_v1": v1, f"{ACTOR}.clip_ratio_high": 0.28, **SECTIONS[sections]}
    settings |= {f"{ACTOR}.policy_loss.loss_mode": "bypass_mode"} if by_loss else {}
    settings |= {f"{SECTION}.bypass_mode": True} if bypass else {}
    settings |= {f"{LOSS}.loss_type": loss_type} if loss_type == "reinforce" else {}
    rows, reading = Rows(), read("verl", settings)
    if by_loss and not bypass and not v1 and "both" in sections:
        assert [each.part for each in reading.refused] == ["correction"]
        return
    assert not reading.refused
    theirs, gradient, old = stepped(settings, rows)
    close(old[rows.mask], (rows.behavior if bypass else rows.proximal)[rows.mask])
    assert reading.loss is not None
    leaf = rows.current.clone().requires_grad_()
    ours = trimtab.policy_loss(
        reading.loss,
        current=leaf,
        proximal=rows.proximal,
        behavior=rows.behavior,
        advantages=rows.advantages,
        mask=rows.mask,
        correction=reading.correction,
        reduction=reading.reduction,
    )
    (mine,) = torch.autograd.grad(ours.loss, leaf)
    close(ours.loss.detach(), theirs)
    close(mine, gradient)


def test_the_combinations_differ_from_each_other() -> None:
    """The control: the rows tell one reading from the next, so that the table above cannot pass by chance."""
    switch = {f"{ACTOR}.policy_loss.loss_mode": "bypass_mode"}
    both = {**FIRST, **SECOND, f"{SECTION}.bypass_mode": True}
    found = [
        stepped(each, Rows())[0].item()
        for each in ({}, FIRST, {**FIRST, **switch}, {**FIRST, **SECOND, **switch}, both)
    ]
    found.append(stepped({**both, **switch}, Rows())[0].item())
    assert len({round(each, 6) for each in found}) == len(found)


REMEDIES = [
    {"rollout_is": "token"},
    {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0", "loss_type": "reinforce"},
    {"rollout_rs": "token_k1,seq_mean_k3", "rollout_rs_threshold": "0.5_2.0,0.01"},
    {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01, "rollout_is_batch_normalize": True},
]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("options", REMEDIES)
def test_the_overrides_that_a_finding_prints_are_taken_by_hydra_and_reach_the_worker(
    options: Settings, there: bool
) -> None:
    settings: Settings = {f"{SECTION}.{name}": value for name, value in options.items()}
    settings |= {f"{SECTION}.bypass_mode": True} | ({f"{ACTOR}.policy_loss.loss_mode": "bypass_mode"} if there else {})
    (defect,) = [each for each in read("verl", settings).defects if "also pass" in each.text]
    printed = shlex.split(defect.text.partition("also pass ")[2].partition(" on the command line")[0])
    loss = worker_of(composed(*words_of(settings), *printed)).policy_loss
    assert loss.loss_mode == "bypass_mode"
    assert {name: loss.rollout_correction.get(name) for name in options} == options
    before = worker_of(composed(*words_of(settings))).policy_loss
    assert any(before.rollout_correction.get(name) != value for name, value in options.items())
    mended = read("verl", settings, overrides=[word.removeprefix("+") for word in printed])
    assert not [each for each in mended.defects if "bypass" in each.text]
    with pytest.raises(Exception, match="To append to your config use"):  # the control: without the plus
        composed(*words_of(settings), *(word.removeprefix("+") for word in printed))


def test_without_the_samplers_log_probs_a_correction_is_left_out_in_silence() -> None:
    key, rows = "actor_rollout_ref.rollout.calculate_log_probs", Rows()
    _, kept, weights, _ = by_v1(composed(*words_of(FIRST), f"{key}=true"), rows)
    assert weights is not None
    assert int(kept.sum()) < int(rows.mask.sum())
    _, whole, none, _ = by_v1(composed(*words_of(FIRST), f"{key}=false"), rows)
    assert none is None
    assert torch.equal(whole, rows.mask)
    words = "leaves the correction without the sampler's log-probs"
    said = {value: [each.text for each in read("verl", {**FIRST, key: value}).defects] for value in (False, True)}
    assert any(words in text for text in said[False])
    assert not any(words in text for text in said[True])


def test_what_apply_bypass_mode_sets_on_the_driver_does_not_reach_a_worker() -> None:
    config = composed(f"{SECTION}.bypass_mode=true", f"{SECTION}.rollout_is=token")
    worker, policy_loss = worker_of(config), config.actor_rollout_ref.actor.policy_loss
    batch = types.SimpleNamespace(batch={"rollout_log_probs": torch.ones(1)})
    verl().helper.apply_bypass_mode(batch, config.algorithm.rollout_correction, policy_loss)
    assert (policy_loss.loss_mode, policy_loss.rollout_correction.rollout_is) == ("bypass_mode", "token")
    assert worker.policy_loss.loss_mode == "vanilla"
    assert batch.batch["old_log_probs"] is batch.batch["rollout_log_probs"]
    with pytest.raises(ValueError, match="requires rollout_log_probs in batch"):
        verl().helper.apply_bypass_mode(
            types.SimpleNamespace(batch={}), config.algorithm.rollout_correction, policy_loss
        )


def test_a_section_of_the_loss_that_is_written_takes_nothing_from_the_dataclass() -> None:
    kept = worker_of(composed()).policy_loss.rollout_correction
    assert (kept.rollout_is, kept.loss_type) == ("sequence", "ppo_clip")  # not written: the weight is only logged
    written = worker_of(composed(f"+{LOSS}.loss_type=reinforce")).policy_loss.rollout_correction
    assert written.get("rollout_is", None) is None  # as it is read


def rejected(log_ratio: list[float], option: str, threshold: Any) -> list[bool]:
    ratio = torch.tensor([log_ratio])
    with peers.quiet():
        mask, _ = verl().helper.compute_rollout_rejection_mask(ratio, torch.ones_like(ratio), option, threshold)
    return [not kept for kept in mask[0].bool().tolist()]


def test_k1_bounds_act_on_the_inverse_ratio() -> None:
    # r = 3 and r = 1/3 under "0.5_4.0": documented as r in [0.5, 4], which keeps 3 and rejects 1/3
    three = float(np.log(3))
    assert rejected([three, -three], "token_k1", "0.5_4.0") == [True, False]
    assert rejected([three, -three], "token_k1", "0.25_2.0") == [False, True]  # the reciprocal bounds


def weights(log_ratio: list[float], level: str = "token", threshold: Any = 2.0, **more: Any) -> Tensor:
    ratio = torch.tensor([log_ratio])
    with peers.quiet():
        return verl().helper.compute_rollout_correction_weights(
            ratio, torch.ones_like(ratio), level, threshold, **more
        )[0]


def test_a_band_that_no_weight_meets_divides_by_zero() -> None:
    assert weights([0.0, 5.0], threshold="0.5_2.0").tolist() == [[1.0, 0.0]]
    with pytest.raises(ZeroDivisionError):
        weights([5.0, 5.0], threshold="0.5_2.0")


def test_a_sequence_threshold_bounds_the_product() -> None:
    close(weights([0.1] * 5, "sequence", 9.0)[0, 0], torch.tensor(float(np.exp(0.5))))


def test_normalised_weights_depend_on_the_split_of_the_batch() -> None:
    halves = torch.cat(
        [weights([0.0], rollout_is_batch_normalize=True), weights([0.6], rollout_is_batch_normalize=True)], 1
    )
    assert not torch.allclose(halves, weights([0.0, 0.6], rollout_is_batch_normalize=True))


def advantage(name: str, mask: list[int], **more: Any) -> Tensor:
    """One row of three tokens whose reward, 2, stands on the last, beside one without reward."""
    rewards, tokens = torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]), torch.tensor([mask, [1, 1, 1]])
    return peers.verl_advantage(name, rewards, tokens.float().bool(), group=torch.tensor([0, 0]), **more)[0]


SQUARES = {"old_log_probs": torch.full((2, 3), -1.0), "sum_pi_squared": torch.full((2, 3), 0.5)}
LAST: dict[str, Settings] = {
    "gae": {"values": torch.zeros(2, 3)},
    "reinforce_plus_plus": {},
    "remax": {"reward_baselines": torch.zeros(2)},
    "optimal_token_baseline": SQUARES,
    "tir_optimal_token_baseline": SQUARES,
}


@pytest.mark.parametrize("name", [*LAST, "grpo", "rloo"])
def test_a_rejected_last_token_takes_the_reward_along(name: str) -> None:
    more = LAST.get(name, {})
    whole, cut = (advantage(name, mask, **more) for mask in ([1, 1, 1], [1, 1, 0]))
    assert whole[0, :2].abs().sum() > 0
    assert bool((cut[0, :2].abs().sum() > 0).item()) == (name not in LAST)
    settings = {
        "algorithm.adv_estimator": name,
        f"{SECTION}.rollout_rs": "token_k2",
        f"{SECTION}.rollout_rs_threshold": 1,
    }
    assert any("whole reward" in each.text for each in read("verl", settings).findings) == (name in LAST)


def test_a_session_whose_last_row_is_rejected_gets_no_advantage() -> None:
    def advantages(last: int) -> Tensor:
        """Two sessions of one prompt, the first with two rows; `last` is the mask of the final one."""
        mask = torch.tensor([[1, 1], [last, last], [1, 1]])
        tensors = {"token_level_rewards": torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0]]), "response_mask": mask}
        data = verl().protocol.DataProto.from_dict(
            tensors=tensors, non_tensors={"uid": np.array(["p", "p", "p"], dtype=object)}
        )
        with peers.quiet():
            found = verl().sessions.compute_advantage_for_multi_trajectories(data, ["p_0_0", "p_0_1", "p_1_0"], "grpo")
        return found.batch["advantages"]

    assert advantages(1)[0].abs().sum() > 0
    assert advantages(0)[:2].abs().sum() == 0


def test_the_legacy_trainer_counts_what_rejection_left() -> None:
    rows, settings = Rows(), {f"{SECTION}.rollout_rs": "token_k2", f"{SECTION}.rollout_rs_threshold": 0.1}
    _, kept, _, _ = by_v1(composed(*words_of(settings)), rows)
    whole = torch.ones_like(kept).long()
    data = {"input_ids": whole, "attention_mask": whole, "position_ids": whole, "response_mask": kept.long()}
    tensordict = importlib.import_module("tensordict").TensorDict(data, batch_size=rows.count)
    with peers.quiet():
        counted = verl().padding.left_right_2_no_padding(tensordict)["loss_mask"]
    counted = counted.values() if counted.is_nested else counted
    assert int(counted.sum()) == int(kept.sum()) < int(rows.mask.sum())


def policy_loss(mode: str, current: Tensor, old: Tensor, mask: Tensor | None = None, **settings: Any) -> Tensor:
    mask = torch.ones_like(current).bool() if mask is None else mask
    return peers.verl_loss(mode, current, old, torch.ones_like(current), mask, **settings)[0]


@pytest.mark.parametrize("mode", ["dppo_tv", "dppo_kl"])
def test_dppo_holds_its_ratio_at_three(mode: str) -> None:
    old, current = torch.full((1, 1), -3.0), torch.full((1, 1), -3.0 + float(np.log(10)))
    usual, wide = (
        policy_loss(mode, current, old, clip_ratio_high=1.0, **more) for more in ({}, {"clip_ratio_c": 20.0})
    )
    close(wide / usual, torch.tensor(10 / 3))


def test_clip_ratio_alone_is_not_read() -> None:
    old, current = torch.full((1, 1), -1.0), torch.full((1, 1), -0.5)
    loss = functools.partial(policy_loss, "vanilla", current, old)
    assert loss(clip_ratio=0.5) == loss() == -1.2
    assert loss(clip_ratio_high=0.5) == -1.5


def test_geo_mean_grows_with_the_micro_batches() -> None:
    rows = torch.tensor([[-1.0, -1.1], [-1.2, -1.0]])
    counted = {"global_batch_info": {"dp_size": 1, "batch_num_tokens": 4, "global_batch_size": 2}}

    def ratio(mode: str) -> float:
        parts = sum(policy_loss(mode, each[None], each[None], **counted) for each in rows)
        return float(parts / policy_loss(mode, rows, rows, **counted))

    assert ratio("geo_mean") == pytest.approx(2.0)
    assert ratio("gspo") == pytest.approx(1.0)  # the control


@pytest.mark.parametrize(("mode", "follows"), [("sapo", False), ("geo_mean", False), ("vanilla", True)])
def test_a_forced_reduction_does_not_follow_loss_agg_mode(mode: str, follows: bool) -> None:
    current = torch.tensor([[-1.0, -1.1, -1.2], [-0.6, -1.0, -1.0]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    found = [
        policy_loss(mode, current, current - 0.1 * current.abs(), mask, loss_agg_mode=each)
        for each in ("token-mean", "seq-mean-token-mean")
    ]
    assert (found[0] != found[1]) == follows


def test_without_loss_scale_factor_the_width_divides() -> None:
    losses, mask = torch.ones(1, 2), torch.ones(1, 2)
    wide, wider = torch.cat([losses, losses], 1), torch.cat([mask, mask * 0], 1)
    mode = "seq-mean-token-sum-norm"
    assert peers.verl_aggregate(losses, mask, mode) == 2 * peers.verl_aggregate(wide, wider, mode)
    assert peers.verl_aggregate(losses, mask, mode, loss_scale_factor=4) == peers.verl_aggregate(
        wide, wider, mode, loss_scale_factor=4
    )


def test_the_optimal_token_baseline_compares_places_and_its_successor_trained_tokens() -> None:
    rewards = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])

    def advantages(mask: list[list[int]]) -> list[Tensor]:
        estimators = ("optimal_token_baseline", "tir_optimal_token_baseline")
        rows, more = torch.tensor(mask).bool(), {"group": torch.tensor([0, 0]), **SQUARES}
        return [peers.verl_advantage(name, rewards, rows, **more)[0] for name in estimators]

    by_place, by_token = advantages([[1, 0, 1], [1, 1, 0]])
    assert by_place[0, 2] == 0  # alone at its place: the baseline is its own return
    assert by_token[0, 2] > 0  # beside the other row's second token, whose return is 0
    close(*advantages([[1, 1, 1], [1, 1, 1]]))  # the control: no tool output between
