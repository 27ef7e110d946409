"""trimtab inside verl: the loss in its actor worker, the correction and the advantages on its driver."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from omegaconf import OmegaConf, open_dict

import trimtab
from tests.plugins import documented
from tests.plugins.comparison import Step, same_metrics, same_step
from tests.plugins.recording import RecordStandIn
from tests.plugins.tiny import Rollouts, rollouts, save_model
from tests.plugins.verl_worker import Trainer, composed, configuration, reset, start
from trimtab.config.correction import Correction
from trimtab.errors import ConfigError

TIS = {"rollout_is": "token", "rollout_is_threshold": 1.1}
SEQUENCE = {"rollout_is": "sequence", "rollout_is_threshold": 1.2}
BAND = {"rollout_is": "token", "rollout_is_threshold": "0.9_1.1"}
K3 = {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": "0.01"}
K1 = {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.9_1.1"}
NORM = {**TIS, "rollout_is_batch_normalize": True}
OURS = (
    "actor_rollout_ref.actor.policy_loss.loss_mode=trimtab",
    "actor_rollout_ref.actor.policy_loss._target_=trimtab.plugins.verl.LossSettings",
)
DATA = rollouts()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("verl") / "model")


@pytest.fixture(scope="module")
def worker(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    start(0, 1, tmp_path_factory.mktemp("store") / "store")
    trainer = Trainer(configuration(model))
    first = {name: each.detach().clone() for name, each in trainer.worker.actor.engine.module.named_parameters()}
    return trainer, first


class Runs:
    """Steps of one worker from the same weights, each with its own configuration."""

    def __init__(self, trainer: Trainer, first: dict[str, torch.Tensor], model: Path) -> None:
        self.trainer, self.first, self.model = trainer, first, model

    def configuration(self, *overrides: str, rule: Correction | None = None, own: dict[str, Any] | None = None) -> Any:
        config = configuration(self.model, *overrides)
        section = config.algorithm.rollout_correction
        with open_dict(config):
            section.update(own or {})
            if rule is not None:
                section.trimtab = {"correction": rule.settings(), "metrics": "all"}
        return config

    def step(self, config: Any, data: Rollouts = DATA) -> tuple[Step, dict[str, Any], Any]:
        """One update of the actor, after the correction on the driver."""
        reset(self.trainer, config, self.first)
        before = self.trainer.weights()
        batch = self.trainer.batch(data)
        batch.batch["old_log_probs"] = self.trainer.log_probs(batch)
        batch.batch["rollout_log_probs"] = batch.batch["old_log_probs"] + data.noise
        bypass = config.algorithm.rollout_correction.bypass_mode
        if bypass:
            batch.batch["old_log_probs"] = batch.batch["rollout_log_probs"].clone()
        on_driver = {} if bypass else self.trainer.correct(batch)
        metrics = self.trainer.update(batch, v1=config.trainer.use_v1)
        floats = {name: float(np.mean(value)) for name, value in metrics.items() if not isinstance(value, str)}
        return Step(self.trainer.weights() - before, floats["actor/pg_loss"], floats), on_driver, batch


@pytest.fixture(scope="module")
def runs(worker: Any, model: Path) -> Runs:
    return Runs(*worker, model)


def said(own: dict[str, Any]) -> str:
    return " ".join(f"{key.removeprefix('rollout_')}={value}" for key, value in own.items())


def read(settings: dict[str, Any], mode: str = "token-mean", v1: bool = True) -> Correction:
    said = {"algorithm.rollout_correction": settings, "actor_rollout_ref.actor.loss_agg_mode": mode}
    found = trimtab.dialects.read("verl", {**said, "trainer.use_v1": v1}).correction
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("own", "mode", "v1"),
    [
        (TIS, "token-mean", True),
        ({**TIS, **K3}, "token-mean", True),
        ({**TIS, **K3}, "token-mean", False),
        ({**TIS, **K3}, "seq-mean-token-mean", True),
        (K3, "seq-mean-token-sum", True),
        ({**SEQUENCE, **K1}, "token-mean", True),
        ({**SEQUENCE, **K1}, "seq-mean-token-mean", False),
    ],
    ids=str,
)
def test_the_step_of_the_worker_is_verls(runs: Runs, own: dict[str, Any], mode: str, v1: bool):
    shape = (f"actor_rollout_ref.actor.loss_agg_mode={mode}", f"trainer.use_v1={v1}")
    theirs, logged, batch = runs.step(runs.configuration(*shape, own=own))
    off, _, _ = runs.step(runs.configuration(*shape))
    if "rollout_rs" in own:
        kept = batch.batch["response_mask"].sum()
        assert 0 < kept < DATA.mask.sum(), "the gate has to fire, and not on everything"
    for loss in ((), OURS):  # verl's loss with our weights, then ours
        ours, seen, _ = runs.step(runs.configuration(*shape, *loss, rule=read(own, mode, v1)))
        same_step("verl", f"{said(own)} {mode} v1={v1} {'trimtab' if loss else 'vanilla'}", theirs, ours, off)
        same_metrics(logged, seen, "rollout_corr/")
        same_metrics(theirs.metrics, ours.metrics, "actor/")


@pytest.mark.parametrize("own", [BAND, NORM], ids=["icepop", "normalised"])
def test_what_else_the_driver_weighs_is_verls(runs: Runs, own: dict[str, Any]):
    theirs, logged, _ = runs.step(runs.configuration(own=own))
    off, _, _ = runs.step(runs.configuration())
    ours, seen, _ = runs.step(runs.configuration(*OURS, rule=read(own)))
    same_step("verl", said(own), theirs, ours, off)
    same_metrics(logged, seen, "rollout_corr/")


def test_a_second_mini_batch_clips_and_is_verls_too(runs: Runs):
    two = ("actor_rollout_ref.actor.ppo_mini_batch_size=4", "actor_rollout_ref.actor.optim.lr=0.3")
    theirs, _, _ = runs.step(runs.configuration(*two, own=TIS))
    off, _, _ = runs.step(runs.configuration(*two))
    ours, _, _ = runs.step(runs.configuration(*two, *OURS, rule=read(TIS)))
    assert theirs.metrics["actor/pg_clipfrac"] > 0
    same_step("verl", "two mini-batches, clipped", theirs, ours, off)
    same_metrics(theirs.metrics, ours.metrics, "actor/")


def test_the_split_into_micro_batches_changes_nothing(runs: Runs):
    rule = read({**TIS, **K3})
    one, other = (
        runs.step(runs.configuration(*OURS, f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={size}", rule=rule))
        for size in (2, 8)
    )
    size = one[0].gradient.abs().max()
    assert (one[0].gradient - other[0].gradient).abs().max() <= 1e-6 * size
    assert one[1] == other[1]


@pytest.mark.parametrize("gate", [{}, {"rollout_rs": "token_k2", "rollout_rs_threshold": "0.005"}], ids=["", "gated"])
def test_a_bypass_rule_acts_in_the_worker(runs: Runs, gate: dict[str, Any]):
    """verl's REINFORCE with the weight of current over rollout, against ours in its place; it counts before it rejects."""
    bypass = "algorithm.rollout_correction.bypass_mode=true"
    own = {**TIS, **gate, "loss_type": "reinforce"}
    inside = [f"+actor_rollout_ref.actor.policy_loss.rollout_correction.{key}={value}" for key, value in own.items()]
    theirs, _, _ = runs.step(
        runs.configuration(bypass, "actor_rollout_ref.actor.policy_loss.loss_mode=bypass_mode", *inside)
    )
    rule = trimtab.dialects.read(
        "verl",
        {
            "actor_rollout_ref.actor.policy_loss": {"loss_mode": "bypass_mode", "rollout_correction": own},
            "algorithm.rollout_correction.bypass_mode": True,
        },
    ).correction
    assert rule is not None
    config = runs.configuration(bypass, *OURS)
    off = runs.configuration(bypass, *OURS)
    with open_dict(config), open_dict(off):
        config.actor_rollout_ref.actor.policy_loss.trimtab = {"correction": rule.settings(), "loss": "reinforce"}
        off.actor_rollout_ref.actor.policy_loss.trimtab = {"correction": "bypass-off", "loss": "reinforce"}
    ours, off_step = runs.step(config)[0], runs.step(off)[0]
    same_step("verl", f"bypass reinforce{' with a gate' if gate else ''}", theirs, ours, off_step)
    same_metrics(theirs.metrics, ours.metrics, "actor/ppo_kl")


def test_a_rule_and_a_loss_that_verl_does_not_have(runs: Runs):
    """Token masks after a geometric gate, under CISPO by sequence: the same numbers as the library's by hand."""
    rule = trimtab.preset("geo-rs+token-mis", lower=0.9, upper=1.1, token_upper=1.2)
    config = runs.configuration(*OURS, rule=rule)
    with open_dict(config):
        config.actor_rollout_ref.actor.policy_loss.trimtab = {"loss": {"kind": "topr", "level": "token"}}
    step, seen, batch = runs.step(config)
    old = batch.batch["old_log_probs"].clone().requires_grad_()
    by_hand = trimtab.policy_loss(
        trimtab.Topr(level="token"),
        current=old,
        proximal=old.detach(),
        behavior=batch.batch["rollout_log_probs"],
        mask=DATA.mask,
        advantages=DATA.advantages,
        correction=rule,
    )
    assert abs(step.loss - by_hand.loss.item()) <= 1e-6
    assert 0 < seen["trimtab/kept_fraction"] < 1
    assert abs(seen["trimtab/kept_fraction"] - by_hand.metrics["kept_fraction"].item()) < 1e-6
    assert step.gradient.abs().max() > 1e-4


def test_how_many_metrics_are_logged_is_a_setting_and_none_is_averaged_that_should_not_be(runs: Runs):
    config = runs.configuration(*OURS, rule=read(TIS))
    few = configuration(runs.model, *OURS, "+algorithm.rollout_correction.trimtab.correction=token-tis")
    (all_step, many, _), (few_step, some, _) = runs.step(config), runs.step(few)
    ours = {name for name in many if name.startswith("trimtab/")}
    assert {name for name in some if name.startswith("trimtab/")} < ours
    assert "trimtab/weight/max" in ours
    in_worker = [name for name in few_step.metrics if name.startswith("trimtab/")]
    assert in_worker
    assert not any(name.endswith("max") for name in in_worker)
    assert all_step.metrics.keys() == few_step.metrics.keys()  # the worker's own plan is empty in both


def test_the_command_line_of_the_docs_is_a_configuration(runs: Runs):
    """What it says of trimtab; `make plugin-commands` runs the whole."""
    config = composed(runs.model, *(each for each in documented.words("verl") if "trimtab" in each))
    step, seen, _ = runs.step(config)
    assert step.gradient.abs().max() > 1e-4
    assert 0 < seen["trimtab/kept_fraction"] < 1


def test_without_our_key_verl_corrects_by_itself(runs: Runs):
    from verl.trainer.ppo import rollout_corr_helper

    _, logged, batch = runs.step(runs.configuration(own=TIS))
    assert rollout_corr_helper.compute_rollout_correction_and_add_to_batch.__module__ == "trimtab.plugins.verl"
    assert "rollout_is_weights" in batch.batch
    assert not any(name.startswith("trimtab/") for name in logged)


def test_a_record_is_the_batch_before_rejection(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kept = RecordStandIn.put(monkeypatch)
    config = runs.configuration(rule=read({**TIS, **K3}))
    with open_dict(config):
        config.algorithm.rollout_correction.trimtab.record = str(tmp_path / "records")
    runs.step(config)
    (batch,) = kept
    assert torch.equal(batch["mask"].bool(), DATA.mask)
    assert torch.equal(batch["tokens"], DATA.tokens)
    torch.testing.assert_close(batch["behavior"] - batch["proximal"], DATA.noise)
    torch.testing.assert_close(batch["rewards"], DATA.rewards)


def test_the_v1_driver_records_without_token_ids_and_without_a_correction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What `_compute_advantage` of the v1 trainer hands to the correction: no input_ids, no attention_mask."""
    from verl import DataProto

    from trimtab.plugins import verl as plugin

    kept = RecordStandIn.put(monkeypatch)
    columns = {"old_log_probs": -DATA.noise, "rollout_log_probs": torch.zeros_like(DATA.noise)}
    columns |= {"response_mask": DATA.mask.long(), "token_level_rewards": torch.zeros_like(DATA.noise)}
    batch = DataProto.from_dict(tensors=columns, non_tensors={"uid": np.array(["u"] * len(DATA.mask), dtype=object)})
    own = OmegaConf.create({"rollout_is": None, "rollout_rs": None, "trimtab": {"record": str(tmp_path)}})
    plugin.correct_batch(batch, own)
    (given,) = kept
    assert given["tokens"] is None
    assert torch.equal(given["mask"].bool(), DATA.mask)
    torch.testing.assert_close(given["behavior"] - given["proximal"], DATA.noise)


# --- advantages ---------------------------------------------------------------------------------------------------------


def advantages_of(plan: dict[str, Any], mask: torch.Tensor, rewards: list[float], **config: Any) -> torch.Tensor:
    """As `compute_advantage` of verl's driver calls a registered estimator."""
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    tokens = torch.zeros(mask.shape)
    tokens[:, 0] = torch.tensor(rewards)
    data = DataProto.from_dict(
        tensors={"token_level_rewards": tokens, "response_mask": mask.long()},
        non_tensors={"uid": np.array(["one"] * len(rewards), dtype=object)},
    )
    algorithm = OmegaConf.create({"rollout_correction": {"trimtab": plan}, **config})
    return compute_advantage(data, adv_estimator="trimtab", config=algorithm).batch["advantages"]


def test_a_rejected_row_has_no_vote():
    """Rewards 100 (rejected), 1 and 0: the mean of the others is 0.5; verl's own grpo makes −32.7 and −33.7 of them."""
    mask = torch.tensor([[False, False], [True, True], [True, False]])
    plan = {"advantage": {"kind": "grpo", "std": False, "baseline": "kept"}}
    found = advantages_of(plan, mask, [100.0, 1.0, 0.0])
    assert found.tolist() == [[0.0, 0.0], [0.5, 0.5], [-0.5, 0.0]]
    voting = advantages_of({"advantage": {"kind": "grpo", "std": False}}, mask, [100.0, 1.0, 0.0])
    torch.testing.assert_close(voting[1:, 0], torch.tensor([-32.6667, -33.6667]), rtol=1e-4, atol=0.0)


def test_an_estimator_is_verls_own_where_nothing_is_rejected():
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    mask, rewards = torch.ones(4, 3, dtype=torch.bool), [1.0, 0.0, 0.5, 0.25]
    tokens = torch.zeros(4, 3)
    tokens[:, 0] = torch.tensor(rewards)
    theirs, _ = compute_grpo_outcome_advantage(tokens, mask.float(), np.array(["one"] * 4, dtype=object))
    torch.testing.assert_close(advantages_of({"advantage": "grpo"}, mask, rewards), theirs)


# --- refusals -----------------------------------------------------------------------------------------------------------


def worker_settings(plan: Any) -> Any:
    from verl.utils.config import omega_conf_to_dataclass

    section = {"_target_": "trimtab.plugins.verl.LossSettings", "loss_mode": "trimtab", "trimtab": plan}
    return omega_conf_to_dataclass(OmegaConf.create(section))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("token-tis", "needs a correction without proximal log-probs.*Set it at algorithm.rollout_correction.trimtab"),
        ({"kl": 0.1}, "needs a plan without kl.*use_kl_loss"),
        ({"entropy_bonus": 0.1}, "needs a plan without entropy_bonus"),
        ({"advantage": "grpo"}, "needs a plan without advantage.*on the driver"),
        ({"reduction": "prompt-mean"}, "needs reduction .*, got reduction prompt-mean"),
        ({"correction": {"preset": "bypass-geo-rs"}}, None),
        ({"record": "runs"}, "needs a plan without record"),
        ({"losss": "clip"}, "Plan has no field 'losss'"),
    ],
)
def test_the_worker_refuses_when_it_is_made(plan: Any, words: str | None):
    if words is None:
        assert worker_settings(plan).trimtab is not None
        return
    with pytest.raises(Exception, match=words):  # hydra wraps what a constructor raises
        worker_settings(plan)


def test_the_worker_refuses_counts_it_cannot_take_and_rules_over_the_step():
    kept = trimtab.preset("bypass-geo-rs").but(denominator="kept")
    normalised = trimtab.preset("bypass-token-tis").but(normalize="batch")
    for rule, words in ((kept, "needs denominator trained, got denominator kept"), (normalised, "single sequences")):
        with pytest.raises(Exception, match=words):
            worker_settings({"correction": rule.settings()})


@pytest.mark.parametrize(
    ("settings", "root", "words"),
    [
        ({"trimtab": "bypass-token-tis"}, {}, "Current log-probs exist in the worker only"),
        ({"trimtab": {"loss": "clip"}}, {}, "policy_loss.trimtab"),
        ({"trimtab": "opsm"}, {}, "does not look at the advantage|Current log-probs"),
        ({"trimtab": "token-tis", "rollout_is": "token"}, {}, "needs rollout_is null beside it"),
    ],
)
def test_the_driver_refuses_by_name(settings: dict[str, Any], root: dict[str, Any], words: str):
    from trimtab.plugins.verl import correct_batch

    config = OmegaConf.create({"algorithm": {"rollout_correction": settings}, **root})
    with pytest.raises(ConfigError, match=words):
        correct_batch(None, config.algorithm.rollout_correction)


@pytest.mark.parametrize(
    ("rule", "actor", "v1", "words"),
    [
        ("kept", {"loss_agg_mode": "token-mean"}, True, "needs denominator trained, got kept"),
        ("kept", {"loss_agg_mode": "seq-mean-token-sum"}, False, "needs denominator trained, got kept"),
        ("trained", {"policy_loss": {"loss_mode": "geo_mean"}}, True, "loss_mode geo_mean"),
        (
            "trained",
            {"loss_agg_mode": "seq-mean-token-mean", "policy_loss": {"loss_mode": "gspo"}},
            True,
            "sequence statistics",
        ),
    ],
)
def test_a_denominator_that_verl_does_not_take_is_refused(rule: str, actor: dict[str, Any], v1: bool, words: str):
    from trimtab.plugins.verl import correct_batch

    gate = trimtab.Correction(gates=(trimtab.Gate(metric="ratio", upper=1.1),), denominator=rule)
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"actor": actor},
            "trainer": {"use_v1": v1},
            "algorithm": {"rollout_correction": {"trimtab": {"correction": gate.settings()}}},
        }
    )
    with pytest.raises(ConfigError, match=words):
        correct_batch(None, config.algorithm.rollout_correction)


@pytest.mark.parametrize(
    ("plan", "config", "words"),
    [
        ({}, {}, "needs an advantage, got none"),
        ({"advantage": "gae"}, {}, "got gae"),
        ({"advantage": "reinforce++"}, {"use_kl_in_reward": True}, "use_kl_in_reward false"),
        ({"advantage": "grpo", "shaping": {"no_eos": "zero"}}, {}, "shaping without no_eos"),
    ],
)
def test_the_estimator_refuses_by_name(plan: dict[str, Any], config: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        advantages_of(plan, torch.ones(2, 2, dtype=torch.bool), [1.0, 0.0], **config)


def test_what_is_replaced_or_called_by_position_still_looks_the_same():
    from omegaconf import DictConfig
    from verl.trainer.ppo import rollout_corr_helper
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
    from verl.workers.config import PolicyLossConfig

    from trimtab.plugins.verl import _THEIRS, trimtab_loss

    assert list(inspect.signature(_THEIRS).parameters) == ["batch", "rollout_corr_config"]
    assert _THEIRS.__module__ == rollout_corr_helper.__name__
    theirs, ours = (inspect.signature(each).parameters for each in (compute_policy_loss_vanilla, trimtab_loss))
    assert list(theirs) == list(ours)
    assert list(inspect.signature(DictConfig._get_root).parameters) == ["self"]
    assert "rollout_correction" in PolicyLossConfig.__dataclass_fields__


# --- two ranks ----------------------------------------------------------------------------------------------------------


def _on_rank(rank: int, folder: str, model: str) -> None:
    torch.set_num_threads(1)
    start(rank, 2, Path(folder) / "store")
    trainer = Trainer(configuration(Path(model)))
    first = {name: each.detach().clone() for name, each in trainer.worker.actor.engine.module.named_parameters()}
    runs, rows = Runs(trainer, first, Path(model)), slice(rank * 4, rank * 4 + 4)
    mine = Rollouts(**{name: value[rows] for name, value in vars(DATA).items()})
    own = {**TIS, **K3}
    settings = {"theirs": ((), own, None), "ours": (OURS, None, read(own)), "off": ((), None, None)}
    found = {}
    for name, (overrides, theirs, rule) in settings.items():
        step, _, _ = runs.step(runs.configuration(*overrides, own=theirs, rule=rule), mine)
        found[name] = {"gradient": step.gradient, "loss": torch.tensor(step.loss)}
    torch.save(found, Path(folder) / f"rank{rank}.pt")


def test_two_ranks_take_verls_step(model: Path, tmp_path: Path):
    mp.spawn(_on_rank, args=(str(tmp_path), str(model)), nprocs=2, join=True)
    found = torch.load(tmp_path / "rank0.pt", weights_only=True)
    theirs, ours, off = (Step(each["gradient"], each["loss"].item(), {}) for each in found.values())
    same_step("verl", "two ranks, tis+k3", theirs, ours, off)
