"""Frameworks that no registry carries: our functions as they call them, on what they were recorded to return. Needs none of them."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import trimtab
from tests.dialects.recorded import Case, cases
from tests.plugins.comparison import Step, same_metrics, same_step
from trimtab.config.plan import Plan
from trimtab.errors import ConfigError, FrameworkError
from trimtab.plugins.record import recorder_of


def named(framework: str, *, also: Any = lambda _: True) -> pytest.MarkDecorator:
    found = [case for case in cases("correction") if case.framework == framework and also(case)]
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in found])


def put(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    """A module of a framework that is not here, with what the plug-in takes from it."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        module = ModuleType(".".join(parts[:depth]))
        module.__path__ = []
        module.__spec__ = SimpleNamespace(name=module.__name__, submodule_search_locations=[])
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sys.modules[name].__dict__.update(contents)


# --- prime-rl -----------------------------------------------------------------------------------------------------------


@dataclass
class LossOutputs:
    loss: torch.Tensor
    metrics: dict[str, torch.Tensor]


@pytest.fixture
def prime_rl(monkeypatch: pytest.MonkeyPatch) -> Any:
    put(monkeypatch, "prime_rl.trainer.rl.loss", LossOutputs=LossOutputs)
    monkeypatch.delitem(sys.modules, "trimtab.plugins.prime_rl", raising=False)
    from trimtab.plugins import prime_rl as plugin

    yield plugin
    sys.modules.pop("trimtab.plugins.prime_rl", None)


def prime_step(plugin: Any, case: Case, **kwargs: Any) -> Step:
    """compute_loss: sample by sample, their sum over the tokens of the step."""
    x = case.inputs
    leaf = x["current"].clone().requires_grad_()
    total, bounds = torch.zeros(()), x["cu_seqlens"].tolist()
    metrics: dict[str, list[float]] = {}
    for first, last in itertools.pairwise(bounds):
        inputs = SimpleNamespace(
            trainer_logprobs=leaf[first:last],
            inference_logprobs=x["behavior"][first:last],
            ref_logprobs=None,
            advantages=x["advantages"][first:last],
            loss_mask=x["mask"][first:last],
            loss_weights=None,
        )
        found = plugin.loss(inputs, **kwargs)
        total = total + found.loss
        for name, value in found.metrics.items():
            metrics.setdefault(name, []).append(float(value))
    loss = total / case.runtime["rl_scale"]
    loss.backward()
    assert leaf.grad is not None
    return Step(leaf.grad, loss.item(), {name: sum(values) / len(values) for name, values in metrics.items()})


def without_kl(case: Case) -> bool:
    """prime-rl's own KL is to the sampler; a plan's is to the reference."""
    return case.config["kl_tau"] == 0 and case.config["adv_tau"] == 1


@named("prime-rl", also=without_kl)
def test_prime_rls_loss_comes_out_of_the_custom_loss(prime_rl: Any, case: Case):
    rule = trimtab.dialects.read("prime-rl", case.config).correction
    theirs = Step(case.outputs["grad"], case.outputs["loss"].item(), case.metrics)
    ours = prime_step(prime_rl, case, correction=rule.settings())
    off = prime_step(prime_rl, case, correction="bypass-off")
    assert 0 < case.outputs["kept"].sum() < case.inputs["mask"].sum()
    same_step("prime-rl", f"recorded {case.config}", theirs, ours, off)
    same_metrics(theirs.metrics, ours.metrics)


def test_a_geometric_gate_which_prime_rl_does_not_have(prime_rl: Any):
    case = next(case for case in cases("correction") if case.framework == "prime-rl")
    off = prime_step(prime_rl, case, correction="bypass-off")
    gated = prime_step(prime_rl, case, correction={"preset": "bypass-geo-rs", "lower": 0.8, "upper": 1.25})
    assert 0 < gated.metrics["trimtab/kept_fraction"] < 1
    assert (gated.gradient - off.gradient).abs().max() > 1e-3 * off.gradient.abs().max()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"correction": "token-tis"}, "without proximal log-probs.*bypass form"),
        ({}, "needs a correction, got none"),
        ({"correction": "bypass-token-tis", "loss": "dro"}, "proportional to the advantage"),
        ({"correction": "bypass-token-mis", "reduction": "token-mean"}, "needs a plan without reduction"),
        ({"correction": "bypass-token-mis", "kl": 0.1}, "needs reference log-probs for kl"),
        ({"correction": "bypass-token-mis", "record": "x"}, "needs a plan without record"),
    ],
)
def test_prime_rls_hook_refuses_by_name(prime_rl: Any, plan: Any, words: str):
    inputs = SimpleNamespace(
        trainer_logprobs=torch.zeros(2),
        inference_logprobs=torch.zeros(2),
        ref_logprobs=None,
        advantages=torch.ones(2),
        loss_mask=torch.ones(2, dtype=torch.bool),
        loss_weights=None,
    )
    with pytest.raises(ConfigError, match=words):
        prime_rl.loss(inputs, **plan)


# --- slime --------------------------------------------------------------------------------------------------------------


def slime_step(case: Case, plan: Any) -> tuple[Step, list[torch.Tensor]]:
    """As policy_loss_function calls it, the loss of each token then summed."""
    from trimtab.plugins.slime import tis

    x = case.inputs
    sizes = x["cu_seqlens"].diff().tolist()
    make = torch.Generator().manual_seed(2)
    pg_loss = torch.randn(x["mask"].shape, generator=make).requires_grad_()
    weighted, masks, metrics = tis(
        args=SimpleNamespace(trimtab=plan, context_parallel_size=1),
        pg_loss=pg_loss,
        train_log_probs=list(x["proximal"].split(sizes)),
        rollout_log_probs=list(x["behavior"].split(sizes)),
        loss_masks=list(x["mask"].long().split(sizes)),
        total_lengths=sizes,
        response_lengths=sizes,
    )
    loss = (weighted * torch.cat(masks)).sum()
    loss.backward()
    assert pg_loss.grad is not None
    assert all(value.shape == x["mask"].shape for value in metrics.values())
    return Step(pg_loss.grad, loss.item(), {}), masks


def of_single_samples(case: Case) -> bool:
    rule = trimtab.dialects.read("slime", case.config).correction
    return "behavior" in case.inputs and not rule.needs_whole_step and "current" not in rule.needs


@named("slime", also=of_single_samples)
def test_slimes_weights_and_masks_come_out_of_the_hook(case: Case):
    rule = trimtab.dialects.read("slime", case.config).correction
    step, masks = slime_step(case, {"correction": rule.settings()})
    expected = case.outputs["weight"] * case.outputs["kept"]
    off, _ = slime_step(case, "off")
    assert torch.equal(torch.cat(masks).bool(), case.outputs["kept"] & case.inputs["mask"])
    make = torch.Generator().manual_seed(2)
    values = torch.randn(expected.shape, generator=make)
    theirs = Step(
        torch.where(case.inputs["mask"], expected, 0.0), float((expected * values * case.inputs["mask"]).sum()), {}
    )
    same_step("slime", f"recorded {case.id}", theirs, step, off)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (None, "needs a correction, got none"),
        ({"correction": "token-tis", "loss": "clip"}, "needs a plan without loss"),
        ("bypass-token-tis", "without current log-probs"),
        ("m2po", "single sequences"),
        ({"correction": {"gates": [{"metric": "ratio", "upper": 1.1}], "denominator": "kept"}}, "denominator trained"),
    ],
)
def test_slimes_hook_refuses_by_name(plan: Any, words: str):
    case = next(case for case in cases("correction") if case.framework == "slime")
    with pytest.raises(ConfigError, match=words):
        slime_step(case, plan)


def test_samples_in_parts_are_refused():
    from trimtab.plugins.slime import tis

    one = [torch.zeros(2)]
    with pytest.raises(ConfigError, match="context_parallel_size 1, got 2"):
        tis(
            args=SimpleNamespace(trimtab="token-tis", context_parallel_size=2),
            pg_loss=one[0],
            train_log_probs=one,
            rollout_log_probs=one,
            loss_masks=one,
        )


def slime_args(**more: Any) -> Any:
    return SimpleNamespace(**{"context_parallel_size": 1, "calculate_per_token_loss": False, **more})


@pytest.fixture
def slime(monkeypatch: pytest.MonkeyPatch) -> Any:
    """slime's module of losses, with log-probs that are the logits."""

    def log_probs(logits: torch.Tensor, *, response_lengths: list[int], with_entropy: bool, **_: Any) -> Any:
        parts = list(logits.split(response_lengths))
        return None, {"log_probs": parts, "entropy": [-each for each in parts] if with_entropy else None}

    put(monkeypatch, "slime.backends.megatron_utils.loss", get_log_probs_and_entropy=log_probs)
    from trimtab.plugins import slime as plugin

    return plugin


def slime_loss(plugin: Any, case: Case, args: Any, parts: int = 1, **more: Any) -> Step:
    """As loss_function calls it, micro-batch by micro-batch; divided by the samples, or tokens, of the step as slime does."""
    x = case.inputs
    bounds = x["cu_seqlens"].tolist()
    leaf = (x["proximal"] + 0.0).requires_grad_()
    samples = list(itertools.pairwise(bounds))
    count = x["mask"].sum() if args.calculate_per_token_loss else torch.tensor(float(len(samples)))
    total, logged = torch.zeros(()), {}
    for rows in (samples[part::parts] for part in range(parts)):
        cut = {name: [value[low:high] for low, high in rows] for name, value in x.items() if name != "cu_seqlens"}
        batch = {
            "loss_masks": [each.long() for each in cut["mask"]],
            "log_probs": cut["proximal"],
            "rollout_log_probs": cut["behavior"],
            "advantages": [torch.ones(high - low) for low, high in rows],
            "unconcat_tokens": None,
            "total_lengths": [high - low for low, high in rows],
            "response_lengths": [high - low for low, high in rows],
            "rollout_mask_sums": torch.stack([each.sum() for each in cut["mask"]]),
        } | more
        logits = torch.cat([leaf[low:high] for low, high in rows])
        loss, metrics = plugin.loss(args, batch, logits, None)
        (loss / count).backward()
        total = total + loss.detach() / count
        logged = {name: logged.get(name, 0.0) + float(value / count) for name, value in metrics.items()}
    assert leaf.grad is not None
    return Step(leaf.grad, total.item(), logged)


@pytest.mark.parametrize("by_token", [False, True])
@named("slime", also=of_single_samples)
def test_slimes_weights_come_out_of_the_whole_loss(slime: Any, case: Case, by_token: bool):
    """On policy with advantage 1: minus the weight over the tokens, or over those of the sample and the samples."""
    rule = trimtab.dialects.read("slime", case.config).correction
    ours, off = (
        slime_loss(slime, case, slime_args(calculate_per_token_loss=by_token, trimtab=plan), parts=2)
        for plan in ({"correction": rule.settings()}, "off")
    )
    mask, bounds = case.inputs["mask"], case.inputs["cu_seqlens"]
    sizes = bounds.diff()
    own = torch.stack([each.sum() for each in mask.split(sizes.tolist())]).clamp(min=1)
    over = mask.sum() if by_token else (own * len(sizes)).repeat_interleave(sizes)
    expected = torch.where(mask, case.outputs["weight"] * case.outputs["kept"], 0.0) / over
    name = f"recorded {case.id}, whole loss by {'token' if by_token else 'sample'}"
    same_step("slime", name, Step(-expected, -float(expected.sum()), {}), ours, off)
    assert ours.metrics["loss"] == pytest.approx(ours.loss, rel=1e-5)


def test_slimes_whole_loss_takes_what_is_left_out_from_slimes_arguments(slime: Any):
    case = next(case for case in cases("correction") if case.framework == "slime")
    held = {"eps_clip": 0.1, "eps_clip_high": 0.3, "entropy_coef": 0.01}
    args = slime_args(trimtab={"correction": "off", "metrics": "all"}, advantage_estimator="cispo", **held)
    with_bonus = slime_loss(slime, case, args)
    without = slime_loss(slime, case, slime_args(**{**vars(args), "entropy_coef": 0.0}))
    assert (with_bonus.gradient - without.gradient).abs().max() > 1e-4
    assert slime._own(
        '{"correction": "off"}', '{"advantage_estimator": "cispo", "eps_clip": 0.1}'
    ).loss == trimtab.Cispo(lower=0.9, upper=1.1)
    assert "trimtab/kept_fraction" in with_bonus.metrics


@pytest.mark.parametrize("key", ["use_score_centering", "custom_pg_loss_reducer_function_path"])
def test_what_acts_inside_slimes_own_loss_is_refused_beside_the_whole_one(slime: Any, key: str):
    case = next(case for case in cases("correction") if case.framework == "slime")
    with pytest.raises(ConfigError, match=rf"without --{key.replace('_', '-')}, got it.*slime\.tis goes beside it"):
        slime_loss(slime, case, slime_args(trimtab={"correction": "token-tis", "loss": "cispo"}, **{key: "my.own"}))


def test_slimes_estimator_takes_the_vote_from_a_rejected_row():
    """Rewards 9 (rejected), 1 and 0 of one prompt: ±0.5 about the mean of those that are kept; with all voting −7/3 and −10/3."""
    from trimtab.plugins.slime import sample_advantages

    gate = {
        "gates": [{"metric": "ratio", "level": "sequence", "agg": "mean", "upper": 1.1}],
        "weight": {"level": "one"},
    }
    data: dict[str, Any] = {
        "loss_masks": [torch.ones(2, dtype=torch.long) for _ in range(3)],
        "log_probs": [torch.full((2,), 1.0 if row == 0 else 0.0) - 2 for row in range(3)],
        "rollout_log_probs": [torch.full((2,), -2.0) for _ in range(3)],
        "rewards": [9.0, 1.0, 0.0],
        "sample_indices": [6, 7, 8],
    }
    args = slime_args(
        n_samples_per_prompt=3,
        rewards_normalization=False,
        trimtab={"correction": gate, "advantage": {"kind": "grpo", "std": False, "baseline": "kept"}},
    )
    sample_advantages(args, data)
    assert [each.tolist() for each in data["advantages"]] == [[0.0, 0.0], [0.5, 0.5], [-0.5, -0.5]]
    assert data["returns"] is data["advantages"]
    args.trimtab = {"advantage": {"kind": "grpo", "std": False}}
    sample_advantages(args, data)
    assert data["advantages"][1].tolist() == pytest.approx([-7 / 3] * 2)
    args.rewards_normalization = True
    with pytest.raises(ConfigError, match="--disable-rewards-normalization"):
        sample_advantages(args, data)


def test_hooks_of_slime_share_a_plan_and_each_refuses_what_none_of_them_does(slime: Any):
    case = next(case for case in cases("correction") if case.framework == "slime")
    plan = {"correction": "token-tis", "advantage": "grpo"}
    with pytest.raises(ConfigError, match=r"without advantage.*custom-advantage-function-path"):
        slime_loss(slime, case, slime_args(trimtab=plan))
    named = {"custom_advantage_function_path": "trimtab.plugins.slime.sample_advantages"}
    assert slime_loss(slime, case, slime_args(trimtab=plan, **named)).loss != 0
    with pytest.raises(ConfigError, match="without reduction"):
        slime_loss(slime, case, slime_args(trimtab={"reduction": "token-mean"}, **named))
    with pytest.raises(ConfigError, match="rollouts of one sample each"):
        slime_loss(
            slime,
            case,
            slime_args(trimtab="off"),
            rollout_mask_sums=torch.full((len(case.inputs["cu_seqlens"]) - 1,), 999),
        )


# --- NeMo-RL ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def nemo_rl(monkeypatch: pytest.MonkeyPatch) -> Any:
    kinds = SimpleNamespace(LOGPROB="logprob"), SimpleNamespace(TOKEN_LEVEL="token", SEQUENCE_LEVEL="sequence")
    put(monkeypatch, "nemo_rl.algorithms.loss.interfaces", LossInputType=kinds[0], LossType=kinds[1])
    sys.modules.pop("trimtab.plugins.nemo_rl", None)
    from trimtab.plugins import nemo_rl as plugin

    yield plugin
    sys.modules.pop("trimtab.plugins.nemo_rl", None)


def nemo_step(plugin: Any, case: Case, plan: Any, splits: tuple[slice, ...] = (slice(None),)) -> Step:
    """On policy with advantage 1, where the gradient of the loss is minus the weight over the tokens of the step."""
    x, loss_fn = case.inputs, plugin.PolicyLossFn(plan)
    shift = torch.zeros(len(x["mask"]), 1)
    leaf = x["proximal"].clone().requires_grad_()
    rows = {
        "token_mask": torch.cat([shift, x["mask"].float()], 1),
        "sample_mask": x["sample_mask"].float(),
        "prev_logprobs": torch.cat([shift, x["proximal"]], 1),
        "generation_logprobs": torch.cat([shift, x["behavior"]], 1),
        "advantages": torch.ones(len(shift), x["mask"].shape[1] + 1),
    }
    trained = x["mask"] & x["sample_mask"][:, None]
    total, logged = 0.0, {}
    for part in splits:
        loss, metrics = loss_fn(
            leaf[part],
            {name: value[part] for name, value in rows.items()},
            global_valid_seqs=x["sample_mask"].sum(),
            global_valid_toks=trained.sum(),
        )
        loss.backward()
        total += loss.item()
        logged = {name: logged.get(name, 0.0) + value for name, value in metrics.items()}
    assert leaf.grad is not None
    return Step(leaf.grad, total, logged)


def weighs_only(case: Case) -> bool:
    """Not those that edit the sample mask before the loss, nor weights at which float32 ends."""
    rule = trimtab.dialects.read("nemo-rl", case.config).correction
    weighs = rule.weight is not None and rule.weight.level != "one"
    return weighs and rule.denominator == "trained" and float(case.outputs["weight"].max()) < 1e6


@named("nemo-rl", also=weighs_only)
def test_nemo_rls_weights_come_out_of_the_loss_object(nemo_rl: Any, case: Case):
    rule = trimtab.dialects.read("nemo-rl", case.config).correction
    ours = nemo_step(nemo_rl, case, {"correction": rule.settings()})
    off = nemo_step(nemo_rl, case, "off")
    trained = case.inputs["mask"] & case.inputs["sample_mask"][:, None]
    expected = torch.where(trained, case.outputs["weight"] * case.outputs["kept"], 0.0) / trained.sum()
    same_step("NeMo-RL", f"recorded {case.id}", Step(-expected, -float(expected.sum()), {}), ours, off)


def test_micro_batches_add_up_to_the_step_and_so_do_their_metrics(nemo_rl: Any):
    case = next(case for case in cases("correction") if case.framework == "nemo-rl")
    whole = nemo_step(nemo_rl, case, {"correction": "token-mis", "metrics": "all"})
    parts = nemo_step(nemo_rl, case, {"correction": "token-mis", "metrics": "all"}, (slice(0, 3), slice(3, None)))
    torch.testing.assert_close(whole.gradient, parts.gradient)
    for name in ("loss", "trimtab/tokens", "trimtab/kept_fraction", "trimtab/drift/k3"):
        assert whole.metrics[name] == pytest.approx(parts.metrics[name], rel=1e-5)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"advantage": "grpo"}, "needs a plan without advantage"),
        ({"entropy_bonus": 0.1}, "needs a plan without entropy_bonus"),
        ({"reduction": "prompt-mean"}, "got reduction prompt-mean"),
        ("m2po", "single sequences"),
        ({"correction": {"gates": [{"metric": "ratio", "upper": 1.1}], "denominator": "kept"}}, "denominator trained"),
    ],
)
def test_nemo_rls_loss_object_refuses_by_name(nemo_rl: Any, plan: Any, words: str):
    with pytest.raises(ConfigError, match=words):
        nemo_rl.PolicyLossFn(plan)


# --- ROLL ---------------------------------------------------------------------------------------------------------------


class RollActorWorker:
    """What the plug-in takes of ROLL's base worker."""

    def get_old_log_probs_with_cache(self, data: Any, log_probs: torch.Tensor) -> torch.Tensor:
        return data.batch["old_log_probs"]


@pytest.fixture
def roll(monkeypatch: pytest.MonkeyPatch) -> Any:
    put(monkeypatch, "roll.pipeline.base_worker", ActorWorker=RollActorWorker)
    sys.modules.pop("trimtab.plugins.roll", None)
    from trimtab.plugins import roll as plugin

    yield plugin
    sys.modules.pop("trimtab.plugins.roll", None)


def roll_step(
    plugin: Any,
    case: Case,
    plan: Any,
    *,
    config: Any = None,
    parts: tuple[slice, ...] = (slice(None),),
    out: int | None = None,
    ahead: float = 0.0,
) -> Step:
    """With advantage 1, as for NeMo-RL; the strategy hands out the log-probs in place of a model's.

    `out` is a row that ROLL's own masks take out; the policy is `ahead` of the proximal one.
    """
    x, worker = case.inputs, plugin.actor_worker(plan)()
    worker.pipeline_config = config or SimpleNamespace()
    leaf = (x["proximal"] + ahead).requires_grad_()
    first = torch.zeros(len(leaf), 1)
    columns = {
        "input_ids": torch.zeros(len(leaf), leaf.shape[1] + 1, dtype=torch.long),
        "response_mask": torch.cat([first, x["mask"].float()], 1),
        "old_log_probs": x["proximal"],
        "infer_logprobs": x["behavior"],
        "advantages": torch.ones_like(x["proximal"]),
    }
    masks = {"response_mask": x["mask"]}
    if out is not None:
        masks["final_response_mask"] = columns["final_response_mask"] = x["mask"].clone()
        masks["final_response_mask"][out] = False
    counts = {
        "batch_num_tokens": {name: mask.sum() for name, mask in masks.items()},
        "global_valid_samples": {name: mask.any(1).sum() for name, mask in masks.items()},
    }
    total, logged = 0.0, {}
    for part in parts:
        worker.strategy = SimpleNamespace(op_compute_log_probs=lambda logits, **_: logits)
        data = SimpleNamespace(
            batch={name: value[part] for name, value in columns.items()},
            meta_info=counts,
        )
        loss, metrics = worker.loss_func(data, leaf[part])
        loss.backward()
        total += loss.item()
        logged |= metrics
    assert leaf.grad is not None
    return Step(leaf.grad, total, logged)


def rejects_nothing_missing(case: Case) -> bool:
    return bool(torch.isfinite(case.outputs["weight"]).all()) and float(case.outputs["weight"].max()) < 1e6


@named("roll", also=rejects_nothing_missing)
def test_rolls_weights_come_out_of_the_worker(roll: Any, case: Case):
    rule = trimtab.dialects.read("roll", {"train_infer_correction": case.config}).correction
    plan = {"correction": rule.but(denominator="trained").settings(), "reduction": "token-mean"}
    ours = roll_step(roll, case, plan)
    off = roll_step(roll, case, {"correction": "off", "reduction": "token-mean"})
    mask = case.inputs["mask"]
    expected = torch.where(mask, case.outputs["weight"] * case.outputs["kept"], 0.0) / mask.sum()
    same_step("ROLL", f"recorded {case.id}", Step(-expected, -float(expected.sum()), {}), ours, off)


def test_micro_batches_of_roll_add_up_and_metrics_say_how_they_combine(roll: Any):
    case = next(case for case in cases("correction") if case.framework == "roll")
    plan = {"correction": "token-mis", "reduction": "token-mean", "metrics": "all"}
    whole, parts = (roll_step(roll, case, plan, parts=each) for each in ((slice(None),), (slice(0, 2), slice(2, None))))
    torch.testing.assert_close(whole.gradient, parts.gradient)
    assert whole.loss == pytest.approx(parts.loss, rel=1e-5)
    assert {name.rpartition("@")[2] for name in whole.metrics} <= {"sum", "mean", "max", "min"}
    assert "trimtab/ratio/max@max" in whole.metrics
    assert "trimtab/kept_fraction@mean" in whole.metrics


def test_what_a_plan_leaves_out_is_as_rolls_own_keys_say(roll: Any):
    case = next(case for case in cases("correction") if case.framework == "roll")
    config = SimpleNamespace(loss_agg_mode="seq-mean-token-mean", pg_clip=0.1, rl_loss_coef=0.5)
    step = roll_step(roll, case, "token-tis", config=config)
    mask = case.inputs["mask"]
    leaf = case.inputs["proximal"].clone().requires_grad_()
    by_hand = trimtab.policy_loss(
        trimtab.Clip(low=0.1, high=0.1),
        current=leaf,
        proximal=case.inputs["proximal"],
        behavior=case.inputs["behavior"],
        mask=mask,
        advantages=torch.full_like(leaf, 0.5),
        correction=trimtab.preset("token-tis"),
        reduction="seq-mean-token-mean",
    )
    by_hand.loss.backward()
    torch.testing.assert_close(step.gradient, leaf.grad)


def test_a_row_that_rolls_own_masks_take_out_is_not_trained_and_not_counted(roll: Any):
    """RLVR's max_len_mask and difficulty_mask act in final_response_mask alone; response_mask still has those rows."""
    case = next(case for case in cases("correction") if case.framework == "roll")
    plan = {"correction": "token-tis", "reduction": "token-mean"}
    whole = roll_step(roll, case, plan)
    step = roll_step(roll, case, plan, out=0)
    mask = case.inputs["mask"].clone()
    mask[0] = False
    assert step.gradient[0].abs().max() == 0 < whole.gradient[0].abs().max()
    scale = case.inputs["mask"].sum() / mask.sum()  # the others share what its tokens counted
    torch.testing.assert_close(step.gradient[1:], whole.gradient[1:] * scale)


def test_the_variant_of_rolls_own_loss_acts_where_a_plan_names_none(roll: Any):
    case = next(case for case in cases("correction") if case.framework == "roll")
    config = SimpleNamespace(
        loss_agg_mode="seq-mean-token-mean", actor_train=SimpleNamespace(pg_variant="cispo"), sequence_length=16
    )
    theirs = roll_step(roll, case, "token-tis", config=config, ahead=0.5)
    named = {"correction": "token-tis", "loss": {"kind": "cispo", "lower": 0.9, "upper": 1.1}}
    torch.testing.assert_close(theirs.gradient, roll_step(roll, case, named, ahead=0.5).gradient)
    clipped = roll_step(roll, case, "token-tis", ahead=0.5)
    assert (theirs.gradient - clipped.gradient).abs().max() > 1e-3
    topr = SimpleNamespace(actor_train=SimpleNamespace(pg_variant="topr"))
    with pytest.raises(ConfigError, match="ROLL pg_variant topr is not supported"):
        roll_step(roll, case, "token-tis", config=topr)
    torch.testing.assert_close(theirs.gradient, roll_step(roll, case, named, config=topr, ahead=0.5).gradient)


@pytest.mark.parametrize(
    ("plan", "config", "words"),
    [
        ({"advantage": "grpo"}, {}, "needs a plan without advantage"),
        ("m2po", {}, "single sequences"),
        ({"reduction": "prompt-mean"}, {}, "got reduction prompt-mean"),
        (
            "token-tis",
            {"train_infer_correction": {"is_weight": {"enabled": True}}},
            "train_infer_correction off beside a correction",
        ),
        ("token-tis", {"loss_agg_mode": "token-mean", "length_loss_weight": True}, "rows weigh by their length"),
        (
            {"correction": {"gates": [{"metric": "ratio", "upper": 1.1}], "denominator": "kept"}},
            {},
            "denominator trained",
        ),
    ],
)
def test_rolls_worker_refuses_by_name(roll: Any, plan: Any, config: dict[str, Any], words: str):
    case = next(case for case in cases("correction") if case.framework == "roll")
    with pytest.raises(ConfigError, match=words):
        roll_step(roll, case, plan, config=SimpleNamespace(**config))


def test_a_batch_of_rolls_without_the_engines_log_probs_is_refused_where_a_rule_needs_them(roll: Any):
    with pytest.raises(ConfigError, match=r"needs the engine's log-probs.*generating_args.logprobs"):
        roll._behavior({"infer_logprobs": []}, needed=True)
    assert roll._behavior({}, needed=False) is None


# --- absent frameworks --------------------------------------------------------------------------------------------------


def test_a_framework_that_is_not_here_is_one_error_that_names_the_versions_tried():
    from trimtab.plugins.versions import require, require_module

    with pytest.raises(
        FrameworkError,
        match=r"needs nothing-here, got no package.*tried with 1\.0, 1\.1: pip install nothing-here==1\.1",
    ):
        require("nothing-here", "nothing-here", "1.0", "1.1")
    with pytest.raises(FrameworkError, match=r"needs torch 0\.1, got 2.*tried with 0\.1"):
        require("torch", "torch", "0.1")
    with pytest.raises(ImportError, match=r"got no module nothing_here.inside.*tried with revision abc"):
        require_module("Nothing", "nothing_here.inside", "abc")


# --- records ------------------------------------------------------------------------------------------------------------


def test_the_record_key_finds_the_recorder_which_takes_what_the_plug_ins_hand_it(tmp_path):
    """Tokens of prompt and answer, the rest under the answer only."""
    recorder = recorder_of(Plan(record=str(tmp_path / "records")), "here")
    behavior = torch.tensor([[-1.0, -2.0], [-0.5, 0.0]])
    taken = recorder.add(
        step=0,
        tokens=torch.tensor([[5, 6, 7, 8], [0, 6, 7, 0]]),
        attention=torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0]]),
        mask=torch.tensor([[True, True], [True, False]]),
        behavior=behavior,
        proximal=behavior + 0.1,
        reference=None,
        advantages=torch.tensor([1.0, -1.0]),
        rewards=torch.tensor([1.0, 0.0]),
        groups=torch.tensor([0, 0]),
        learner_version=0,
    )
    recorder.close()
    assert taken
    assert (recorder.written, recorder.dropped, recorder.error) == (1, 0, None)
    assert recorder_of(Plan(), "here") is None
