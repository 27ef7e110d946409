"""trimtab inside SkyRL: its worker's forward and backward over a real model, after its trainer's reduction of the advantages."""

from __future__ import annotations

import inspect
import sys
import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import typing_extensions
from transformers import AutoModelForCausalLM

typing.TypedDict = typing_extensions.TypedDict  # pydantic asks for it below Python 3.12

import trimtab  # noqa: E402
from tests.plugins import documented  # noqa: E402
from tests.plugins.comparison import Step, same_metrics, same_step  # noqa: E402
from tests.plugins.tiny import Rollouts, rollouts, save_model  # noqa: E402
from trimtab.errors import ConfigError  # noqa: E402
from trimtab.plugins import skyrl as plugin  # noqa: E402
from trimtab.plugins.skyrl import check_config  # noqa: E402

DATA = rollouts()
TOKEN = {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 1.1}
SEQUENCE = {"tis_ratio_type": "sequence", "sequence_tis_ratio_clip_high": 1.2}
GEOMETRIC = {"sequence_mask_metric": "geometric", "geo_mask_low": 0.95, "geo_mask_high": 1.05}
OUTLIER = {"outlier_token_is_threshold_low": 0.6, "outlier_token_is_threshold_high": 1.6}
MASKS = {"token_mask_is_threshold_low": 0.8, "token_mask_is_threshold_high": 1.25}
CASES = (
    (TOKEN, "token_mean"),
    ({**SEQUENCE, **GEOMETRIC}, "token_mean"),
    ({**TOKEN, **GEOMETRIC}, "sequence_mean"),
    ({**TOKEN, **OUTLIER}, "seq_mean_token_sum_norm"),
    ({**TOKEN, **MASKS}, "prompt_mean"),
)


def configuration(*overrides: str) -> Any:
    """As SkyRL's own command line is read, with the key of the plug-in."""
    return plugin.configuration(["trainer.algorithm.use_kl_loss=false", *overrides])


class Strategy:
    """One process in the place of FSDP: its backward and its sums."""

    def backward(self, loss: torch.Tensor, *_: Any) -> None:
        loss.backward()

    def all_reduce(self, metrics: dict[str, float], **_: Any) -> dict[str, float]:
        return dict(metrics)


class Worker:
    """SkyRL's policy worker, its model a real one."""

    def __init__(self, path: Path) -> None:
        from peers import absent

        with absent("flash_attn", asked_by=("skyrl",)):  # for packed samples on a GPU
            from skyrl.backends.skyrl_train.workers.model_wrapper import HFModelWrapper

        model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
        self.model = HFModelWrapper(model, bf16=False, use_sample_packing=False)

    def step(self, config: Any, data: Rollouts = DATA, rows: int = 2, moved: float = 0.1) -> Step:
        from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
        from skyrl.backends.skyrl_train.utils.ppo_utils import (
            PolicyLossRegistry,
            apply_loss_reduction_to_advantages_minibatch,
        )
        from skyrl.backends.skyrl_train.workers.worker import PolicyWorkerBase

        algorithm = config.trainer.algorithm
        algorithm.temperature = 1.0
        width = data.mask.shape[1]
        with torch.no_grad():
            current = self.model(data.tokens, width, attention_mask=data.attention, temperature=1.0)
        make = torch.Generator().manual_seed(9)
        proximal = current + moved * torch.randn(current.shape, generator=make)
        advantages = apply_loss_reduction_to_advantages_minibatch(
            advantages=data.advantages[:, None].expand(-1, width) * data.mask,
            loss_mask=data.mask.long(),
            loss_reduction=algorithm.loss_reduction,
            micro_batch_size=rows,
            max_seq_len=width,
            prompt_boundaries=[(first, first + 2) for first in range(0, len(data.mask), 2)],
        )
        batch = TrainingInputBatch(
            {
                "sequences": data.tokens,
                "attention_mask": data.attention,
                "action_log_probs": proximal,
                "rollout_logprobs": proximal + data.noise,
                "advantages": advantages,
                "loss_mask": data.mask.long(),
                "response_mask": data.mask.long(),
                "base_action_log_probs": None,
                "values": None,
                "returns": None,
            }
        )
        batch.metadata = {"response_length": width}
        worker = object.__new__(PolicyWorkerBase)
        worker.__dict__ |= {
            "cfg": SimpleNamespace(
                algorithm=algorithm, micro_train_batch_size_per_gpu=rows, max_tokens_per_microbatch=-1
            ),
            "model": self.model,
            "strategy": Strategy(),
            "optimizer": None,
            "scheduler": SimpleNamespace(get_last_lr=lambda: [0.0]),
            "mesh_rank": SimpleNamespace(dp_size=1),
            "device_mesh": SimpleNamespace(get_group=lambda _: None),
            "policy_loss_fn": PolicyLossRegistry.get(algorithm.policy_loss_type),
        }
        self.model.zero_grad()
        output = worker.forward_backward(batch)
        gradient = torch.cat([each.grad.flatten() for each in self.model.parameters()])
        return Step(gradient.clone(), output.metrics["policy_loss"], output.metrics)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Worker:
    return Worker(save_model(tmp_path_factory.mktemp("skyrl") / "model"))


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")


def own(settings: dict[str, Any], *more: str) -> Any:
    found = configuration(*more)
    for name, value in settings.items():
        setattr(found.trainer.algorithm.off_policy_correction, name, value)
    return found


def ours(plan: Any, *more: str) -> Any:
    found = configuration("trainer.algorithm.policy_loss_type=trimtab", *more)
    found.trainer.algorithm.trimtab = plan
    return found


def read(settings: dict[str, Any]) -> Any:
    return trimtab.dialects.read("skyrl", {"trainer.algorithm.off_policy_correction": settings}).correction


@pytest.mark.parametrize(
    ("settings", "reduction"), CASES, ids=lambda each: each if isinstance(each, str) else "+".join(each)
)
def test_the_step_of_the_worker_is_skyrls(worker: Worker, settings: dict[str, Any], reduction: str):
    how = f"trainer.algorithm.loss_reduction={reduction}"
    theirs, off = worker.step(own(settings, how)), worker.step(own({}, how))
    plan = {"correction": read(settings).settings(), "metrics": "all"}
    found = worker.step(ours(plan, how))
    rejected = 1 - found.metrics["loss_metrics/trimtab/kept_fraction"]
    assert (rejected > 0) == bool(read(settings).gates), "a gate has to fire"
    assert rejected < 1
    same_step("SkyRL", f"{' '.join(f'{k}={v}' for k, v in settings.items())} {reduction}", theirs, found, off)
    assert same_metrics(theirs.metrics, found.metrics) > 8


def test_what_a_plan_leaves_out_is_skyrls_own(worker: Worker):
    theirs, off = worker.step(own(TOKEN)), worker.step(own({}))
    config = own(TOKEN, "trainer.algorithm.policy_loss_type=trimtab")
    same_step("SkyRL", "nothing asked for: its own settings, our loss", theirs, worker.step(config), off)


def test_the_split_into_micro_batches_changes_nothing(worker: Worker):
    config = ours({"correction": read({**TOKEN, **GEOMETRIC}).settings()})
    one, other = (worker.step(config, rows=rows) for rows in (2, 8))
    assert (one.gradient - other.gradient).abs().max() <= 1e-6 * one.gradient.abs().max()
    assert one.metrics["loss_metrics/trimtab/weight_max"] == pytest.approx(
        other.metrics["loss_metrics/trimtab/weight_max"]
    )


def test_a_rule_that_skyrl_does_not_have(worker: Worker):
    """A gate on k3 of the sequence and a bypass rule: far from SkyRL's step without, and as the library says by hand."""
    off = worker.step(own({}))
    gated = worker.step(ours({"correction": {"preset": "k3-rs", "upper": 0.01}}))
    assert 0 < gated.metrics["loss_metrics/trimtab/kept_fraction"] < 1
    bypass = worker.step(ours({"correction": "bypass-token-tis", "loss": "reinforce"}))
    for step in (gated, bypass):
        assert (step.gradient - off.gradient).abs().max() > 1e-3 * off.gradient.abs().max() > 0


def test_the_command_line_of_the_docs_passes_skyrls_validation(monkeypatch: pytest.MonkeyPatch):
    from skyrl.train.utils import validate_cfg

    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    config = plugin.configuration(documented.words("SkyRL"))
    validate_cfg(config)
    check_config(config)
    assert config.trainer.algorithm.trimtab["correction"]["preset"] == "geo-rs+token-tis"
    with pytest.raises(AssertionError, match="WANDB_API_KEY"):  # a control: the default logger
        validate_cfg(plugin.configuration([each for each in documented.words("SkyRL") if "logger" not in each]))


def test_the_entry_point_checks_and_starts_what_skyrl_starts(monkeypatch: pytest.MonkeyPatch):
    import ray
    from skyrl.train import utils
    from skyrl.train.entrypoints import main_base
    from skyrl.train.utils import utils as inner

    started: list[Any] = []
    monkeypatch.setattr(utils, "validate_cfg", lambda cfg: started.append("validated"))
    monkeypatch.setattr(inner, "initialize_ray", lambda cfg: started.append("ray"))
    monkeypatch.setattr(ray, "get", lambda reference: started.append(reference))
    monkeypatch.setattr(main_base, "skyrl_entrypoint", SimpleNamespace(remote=lambda cfg: cfg))
    words = ["trainer.override_entrypoint=trimtab.plugins.skyrl", "trainer.algorithm.policy_loss_type=trimtab"]
    words += ["trainer.algorithm.trimtab=geo-rs+token-tis", "generator.sampling_params.logprobs=1"]
    monkeypatch.setattr(sys, "argv", ["main_base", *words])
    main_base.main()
    assert started[:2] == ["validated", "ray"]
    assert started[2].trainer.algorithm.trimtab == "geo-rs+token-tis"


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"loss": "dro"}, "needs a loss proportional to the advantage, got loss Dro"),
        ({"loss": "kl-cov"}, "proportional to the advantage"),
        ({"reduction": "token-mean"}, "needs a plan without reduction.*loss_reduction"),
        ({"advantage": "grpo"}, "needs a plan without advantage"),
        ({"kl": 0.1}, "needs a plan without kl.*use_kl_loss"),
        (
            {"correction": {"gates": [{"metric": "ratio", "upper": 1.1}], "denominator": "kept"}},
            "needs denominator trained",
        ),
        ("m2po", "a correction of single sequences"),
        ({"record": "x"}, "needs a plan without record"),
    ],
)
def test_what_cannot_be_honoured_is_refused_before_ray_starts(plan: Any, words: str):
    config = ours(plan, "generator.sampling_params.logprobs=1")
    with pytest.raises(ConfigError, match=words):
        check_config(config)


def test_a_correction_without_the_samplers_log_probs_is_refused():
    config = ours("token-tis")
    config.generator.sampling_params.logprobs = None
    with pytest.raises(ConfigError, match=r"needs the sampler's log-probs.*Set it to 1"):
        check_config(config)


def test_what_is_called_still_looks_the_same():
    from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry, ppo_policy_loss
    from skyrl.backends.skyrl_train.workers.worker_utils import reduce_metrics
    from skyrl.train.entrypoints import main_base

    theirs, mine = (inspect.signature(each).parameters for each in (ppo_policy_loss, plugin.skyrl_loss))
    assert list(theirs) == list(mine)
    assert PolicyLossRegistry.get("trimtab") is plugin.skyrl_loss
    assert reduce_metrics({"a_max": [1.0, 3.0], "b_min": [1.0, 3.0], "c": [1.0, 3.0]}) == {
        "a_max": 3.0,
        "b_min": 1.0,
        "c": 2.0,
    }
    assert "import_module(override_entrypoint).main()" in inspect.getsource(main_base.main)
