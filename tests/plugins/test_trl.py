"""trimtab inside TRL: a real trainer for two steps, its sampler stood in for by the model itself with noise on its log-probs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl.trainer import grpo_trainer

import trimtab
import trimtab.plugins.trl
from tests.plugins.comparison import Step, same_metrics, same_step
from tests.plugins.recording import RecordStandIn
from tests.plugins.tiny import EOS, VOCABULARY, save_model
from trimtab.config.plan import Plan
from trimtab.errors import ConfigError
from trimtab.plugins.trl import GRPOTrainer

TRAINER: list[Any] = []
WIDTH = 8


class Sampler:
    """In the place of vLLM: random answers of unequal length, with the model's log-probs and noise."""

    def __init__(self, **_: Any) -> None:
        self.calls = 0

    def sync_weights(self) -> None:
        return

    def generate(self, prompts: list[list[int]], **_: Any) -> tuple[Any, list[list[int]], list[Any], Any]:
        self.calls += 1
        trainer = TRAINER[-1]
        make = torch.Generator().manual_seed(100 * self.calls + trainer.accelerator.process_index)
        completions, log_probs = [], []
        for place, prompt in enumerate(prompts):
            length = int(torch.randint(2, WIDTH, (), generator=make))
            words = torch.randint(2, VOCABULARY, (length,), generator=make).tolist()
            words.append(EOS)
            model = trainer.accelerator.unwrap_model(trainer.model)
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([prompt + words])).logits[0, len(prompt) - 1 : -1]
            chosen = logits.log_softmax(-1).gather(-1, torch.tensor(words)[:, None])[:, 0]
            far = 0.1 if place % 2 == 0 else 0.5
            noisy = chosen + far * torch.randn(len(words), generator=make)
            completions.append(words)
            log_probs.append([[value] for value in noisy.tolist()])
        return None, completions, log_probs, None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("trl") / "model")


@pytest.fixture(autouse=True)
def sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch.setattr)


def stand_in(put: Any) -> None:
    put(grpo_trainer, "VLLMGeneration", Sampler)


def reward(completions: list[str], **_: Any) -> list[float]:
    return [float((len(text) * 7) % 5) for text in completions]


def trainer_of(model: Path, kind: type, folder: str, plan: Any = None, **settings: Any) -> Any:
    """A trainer of plain descent, so that the change of the weights is the gradient."""
    common = {
        "output_dir": folder,
        "use_cpu": True,
        "bf16": False,
        "fp16": False,
        "report_to": [],
        "max_steps": 2,
        "learning_rate": 0.05,
        "optim": "sgd",
        "max_grad_norm": 1e9,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": WIDTH,
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_vllm": True,
        "vllm_mode": "colocate",
        "beta": 0.0,
        "gradient_checkpointing": False,
        "seed": 3,
    }
    words = [" ".join(f"w{(7 * row + place) % 30 + 2}" for place in range(3 + row % 3)) for row in range(16)]
    torch.manual_seed(0)
    made = kind(
        model=AutoModelForCausalLM.from_pretrained(model, attn_implementation="eager"),
        processing_class=PreTrainedTokenizerFast.from_pretrained(model),
        reward_funcs=reward,
        args=trl.GRPOConfig(**(common | settings)),
        train_dataset=Dataset.from_dict({"prompt": words}),
        **({} if plan is None else {"trimtab": plan}),
    )
    TRAINER.append(made)
    return made


class Gradients(TrainerCallback):
    """What the optimiser is handed, step by step."""

    def __init__(self) -> None:
        self.found: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.found.append(torch.cat([each.grad.flatten().clone() for each in model.parameters()]))


def run(model: Path, kind: type, tmp_path: Path, plan: Any = None, **settings: Any) -> Step:
    trainer, seen = trainer_of(model, kind, str(tmp_path), plan, **settings), Gradients()
    trainer.add_callback(seen)
    trainer.train()
    logs = [each for each in trainer.state.log_history if "loss" in each]
    metrics = {f"{name}@{number}": value for number, each in enumerate(logs) for name, value in each.items()}
    floats = {name: value for name, value in metrics.items() if isinstance(value, float)}
    return Step(torch.cat(seen.found), float(logs[0]["loss"]), floats)


IS = "vllm_importance_sampling_"
TRUNCATE = {f"{IS}mode": "token_truncate", f"{IS}clip_max": 1.1, f"{IS}clip_min": None}
MASK = {f"{IS}mode": "sequence_mask", f"{IS}clip_max": 1.5, f"{IS}clip_min": None}
OFF = {f"{IS}correction": False}
TIMES = ("num_tokens", "step_time", "time", "train_runtime", "epoch", "grad_norm", "loss")
OWN = (
    ("truncate", {**TRUNCATE, "loss_type": "dapo"}),
    ("mask", {**MASK, "loss_type": "grpo"}),
    ("dr_grpo", {**TRUNCATE, "loss_type": "dr_grpo"}),
    ("cispo", {**TRUNCATE, "loss_type": "cispo", "epsilon_high": 5.0}),
    ("gspo", {**MASK, "loss_type": "grpo", "importance_sampling_level": "sequence"}),
    ("two iterations, clipped", {**TRUNCATE, "loss_type": "dapo", "num_iterations": 2, "epsilon": 0.01}),
    ("kl", {**TRUNCATE, "loss_type": "dapo", "beta": 0.1}),
)


def reading(settings: dict[str, Any]) -> Any:
    return trimtab.dialects.read("trl", {"use_vllm": True, "max_completion_length": WIDTH, **settings})


def own_metrics(step: Step) -> dict[str, float]:
    return {name: value for name, value in step.metrics.items() if not name.startswith(("trimtab/", *TIMES))}


@pytest.mark.parametrize(("name", "settings"), OWN, ids=[name for name, _ in OWN])
def test_two_steps_of_the_trainer_are_trls(model: Path, tmp_path: Path, name: str, settings: dict[str, Any]):
    found = reading(settings)
    theirs = run(model, trl.GRPOTrainer, tmp_path, **settings)
    off = run(model, trl.GRPOTrainer, tmp_path, **settings | OFF)
    weight = Plan(correction=found.correction)
    whole = Plan(correction=found.correction, loss=found.loss, reduction=found.reduction, kl=found.kl)
    for level, plan in (("weight", weight), ("loss", whole)):
        ours = run(model, GRPOTrainer, tmp_path, plan, **settings)
        same_step("TRL", f"{name}, {level}", theirs, ours, off)
        assert same_metrics(own_metrics(theirs), ours.metrics | _sampling(theirs, level), rtol=1e-4) > 10
        assert any(key.startswith("trimtab/kept_fraction") for key in ours.metrics)


def _sampling(theirs: Step, level: str) -> dict[str, float]:
    """Where the loss is ours TRL still logs its own weights, as its settings say."""
    return {} if level == "weight" else {k: v for k, v in theirs.metrics.items() if k.startswith("sampling/")}


def test_the_split_into_micro_batches_changes_nothing(model: Path, tmp_path: Path):
    plan = Plan(correction=reading(MASK).correction, loss="clip", reduction="token-mean")
    one, other = (
        run(
            model,
            GRPOTrainer,
            tmp_path,
            plan,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=8 // rows,
            steps_per_generation=8 // rows,
            max_steps=1,
            **MASK,
        )
        for rows in (4, 8)
    )
    assert (one.gradient - other.gradient).abs().max() <= 1e-6 * one.gradient.abs().max()


def test_a_rule_that_trl_does_not_have_takes_rows_and_their_votes(model: Path, tmp_path: Path):
    rule = trimtab.preset("geo-rs+token-tis", lower=0.8, upper=1.25)
    plain = run(model, GRPOTrainer, tmp_path, rule)
    voting = run(
        model, GRPOTrainer, tmp_path, {"correction": rule.settings(), "advantage": {"kind": "grpo", "baseline": "kept"}}
    )
    assert 0 < plain.metrics["trimtab/kept_fraction@0"] < 1
    assert voting.metrics["trimtab/nonvoting_rows@0"] > 0
    apart = (plain.gradient - voting.gradient).abs().max()
    assert apart > 1e-3 * plain.gradient.abs().max() > 0


def test_a_rule_over_the_whole_step_is_decided_once_and_cut_with_the_batch(model: Path, tmp_path: Path):
    """Weights over their mean: with the whole generation batch in one micro-batch, the library's own numbers."""
    rule = trimtab.preset("token-tis", upper=1.3).but(normalize="batch")
    plan = {"correction": rule.settings(), "loss": "clip", "reduction": "token-mean"}
    split = run(model, GRPOTrainer, tmp_path, plan, max_steps=1)
    whole = run(
        model, GRPOTrainer, tmp_path, plan, per_device_train_batch_size=8, gradient_accumulation_steps=1, max_steps=1
    )
    assert (split.gradient - whole.gradient).abs().max() <= 1e-6 * whole.gradient.abs().max()
    assert split.gradient.abs().max() > 0


def sampled_by_the_model(prompts: list[str], trainer: Any) -> dict[str, Any]:
    words = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
    sampler = trainer.__dict__.setdefault("stand_in", Sampler())
    _, completions, log_probs, _ = sampler.generate(words)
    return {
        "prompt_ids": words,
        "completion_ids": completions,
        "logprobs": [[x[0] for x in row] for row in log_probs],
    }


def test_a_rollout_function_without_vllm_is_corrected_too(model: Path, tmp_path: Path):
    def step(plan: Any) -> Step:
        return run(model, _with_rollout(sampled_by_the_model), tmp_path, plan, use_vllm=False, max_steps=1)

    on, off = step("token-tis"), step(None)
    assert (on.gradient - off.gradient).abs().max() > 1e-3 * off.gradient.abs().max() > 0


def test_where_trl_scores_nothing_before_the_step_the_remedy_is_the_key_that_is_off(model: Path, tmp_path: Path):
    plan = {"correction": "geo-rs+token-tis", "advantage": {"kind": "grpo"}}
    without = {"use_vllm": False, "max_steps": 1, "steps_per_generation": 2}
    with pytest.raises(
        ConfigError, match=r"needs proximal log-probs before the step, got none.*by default: set use_vllm\."
    ):
        run(model, _with_rollout(sampled_by_the_model), tmp_path, plan, **without)
    run(
        model, _with_rollout(sampled_by_the_model), tmp_path, plan, **without, gradient_accumulation_steps=1
    )  # no multiple


def _with_rollout(rollout: Any) -> Any:
    return lambda **given: GRPOTrainer(rollout_func=rollout, **given)


def test_a_greatest_ratio_is_the_greatest_of_the_micro_batches_and_counts_are_not_averaged(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """TRL averages what it is handed over the micro-batches of a step, of which there are two here."""
    seen: list[float] = []
    theirs = trimtab.plugins.trl.policy_loss

    def watched(*given: Any, **named: Any) -> Any:
        found = theirs(*given, **named)
        seen.append(float(found.metrics["ratio/max"]))
        return found

    monkeypatch.setattr(trimtab.plugins.trl, "policy_loss", watched)
    plan = {"correction": "token-tis", "loss": "clip", "metrics": "all"}
    step = run(model, GRPOTrainer, tmp_path, plan, max_steps=1)
    assert len(seen) == 2
    assert seen[0] != seen[1]
    assert step.metrics["trimtab/ratio/max@0"] == pytest.approx(max(seen))
    assert "trimtab/tokens@0" not in step.metrics


def test_how_many_metrics_are_logged_is_a_setting(model: Path, tmp_path: Path):
    few, many = (
        run(model, GRPOTrainer, tmp_path, {"correction": "token-tis", "metrics": how}, max_steps=1)
        for how in ("few", "all")
    )
    ours = [{name for name in each.metrics if name.startswith("trimtab/")} for each in (few, many)]
    assert ours[0] < ours[1]
    assert 5 < len(ours[0]) < 30 < len(ours[1])


@pytest.mark.parametrize(
    ("plan", "settings", "words"),
    [
        ("token-tis", {"use_vllm": False}, "needs log-probs of the sampler"),
        ("bypass-token-tis", {}, "without current log-probs.*name a loss too"),
        (
            {"correction": {"gates": [{"metric": "ratio", "upper": 1.1}], "denominator": "kept"}},
            {},
            "needs denominator trained",
        ),
        ({"loss": "clip", "reduction": "prompt-mean"}, {}, "got reduction prompt-mean"),
        ({"loss": "clip", "kl": 0.1}, {}, "needs beta above 0 beside kl"),
        ({"loss": "clip"}, {"loss_type": "bnpo"}, "needs a reduction, got none beside loss_type bnpo"),
        ({"loss": "clip"}, {"top_entropy_quantile": 0.5}, "needs top_entropy_quantile 1.0, got 0.5"),
        (
            {"loss": "clip", "correction": "token-tis"},
            {"off_policy_mask_threshold": 0.1},
            "Two corrections would multiply",
        ),
        ("token-tis", {"loss_type": "vespo", f"{IS}mode": "token_truncate"}, "add `loss: vespo`"),
        ({"advantage": "gae"}, {}, "got gae"),
        ({"shaping": {"scale": 2.0}}, {}, "needs an advantage beside shaping"),
        (
            {"correction": "bypass-geo-rs", "loss": "clip", "advantage": {"kind": "grpo", "baseline": "kept"}},
            {},
            "needs advantage.baseline all beside a bypass correction, got kept",
        ),
        (
            {
                "correction": {"gates": [{"metric": "ratio", "upper": 1.1, "when": "negative_advantage"}]},
                "advantage": "grpo",
            },
            {},
            "needs a gate without `when` beside an advantage",
        ),
        (
            "m2po",
            {"steps_per_generation": 4},
            "needs steps_per_generation equal to gradient_accumulation_steps, got 4 and 2",
        ),
        ("token-tiss", {}, "There is no preset"),
    ],
)
def test_what_cannot_be_honoured_is_refused_when_the_trainer_is_made(
    model: Path, tmp_path: Path, plan: Any, settings: Any, words: str
):
    with pytest.raises(ConfigError, match=words):
        trainer_of(model, GRPOTrainer, str(tmp_path), plan, **settings)


def test_a_record_is_every_generation_batch_with_its_log_probs(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kept = RecordStandIn.put(monkeypatch)
    run(model, GRPOTrainer, tmp_path, {"correction": "token-tis", "record": str(tmp_path / "records")})
    assert [each["step"] for each in kept] == [0, 1]
    first = kept[0]
    rows, width = first["mask"].shape
    assert first["tokens"].shape == first["attention"].shape
    assert first["tokens"].shape[1] > width
    assert first["behavior"].shape == first["proximal"].shape == (rows, width)
    assert (first["behavior"] - first["proximal"])[first["mask"]].abs().max() > 0.1
    assert len(first["rewards"]) == len(first["groups"]) == len(first["advantages"]) == rows


def test_a_record_without_a_recorder_is_refused_when_the_trainer_is_made(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("trimtab.plugins.record.HOME", "trimtab.records.nowhere")
    with pytest.raises(ConfigError, match=r"needs trimtab\.Recorder for record"):
        trainer_of(model, GRPOTrainer, str(tmp_path), {"correction": "token-tis", "record": str(tmp_path / "other")})


def test_the_private_methods_still_look_the_same():
    wanted = {
        "_generate_and_score_completions": ["self", "inputs"],
        "_compute_loss": ["self", "model", "inputs"],
        "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
    }
    for name, parameters in wanted.items():
        assert list(inspect.signature(getattr(trl.GRPOTrainer, name)).parameters) == parameters
    forward = inspect.signature(trl.GRPOTrainer._get_per_token_logps_and_entropies).parameters
    from trimtab.plugins.trl import INPUTS

    assert list(forward)[:5] == ["self", "model", "input_ids", "attention_mask", "logits_to_keep"]
    assert {*INPUTS, "compute_entropy", "compute_aux_loss"} <= {*forward}
    source = inspect.getsource(trl.GRPOTrainer._compute_loss)
    for read in (
        "num_items_in_batch",
        "current_gradient_accumulation_steps",
        "steps_per_generation",
        "importance_sampling_ratio",
    ):
        assert read in source


# --- two ranks ----------------------------------------------------------------------------------------------------------


def _on_rank(rank: int, folder: str, model: str) -> None:
    import os

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": (Path(folder) / "port").read_text(), "ACCELERATE_USE_CPU": "1"}
    torch.set_num_threads(1)
    stand_in(setattr)
    settings = {**MASK, "loss_type": "dapo", "per_device_train_batch_size": 2, "max_steps": 1}
    found = reading(settings)
    whole = Plan(correction=found.correction, loss=found.loss, reduction=found.reduction)
    steps = {
        "theirs": run(Path(model), trl.GRPOTrainer, Path(folder), **settings),
        "off": run(Path(model), trl.GRPOTrainer, Path(folder), **settings | OFF),
        "weight": run(Path(model), GRPOTrainer, Path(folder), Plan(correction=found.correction), **settings),
        "loss": run(Path(model), GRPOTrainer, Path(folder), whole, **settings),
    }
    if rank == 0:
        torch.save(
            {name: {"gradient": each.gradient, "loss": torch.tensor(each.loss)} for name, each in steps.items()},
            Path(folder) / "found.pt",
        )


def test_two_ranks_take_trls_step(model: Path, tmp_path: Path):
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        (tmp_path / "port").write_text(str(free.getsockname()[1]))
    mp.spawn(_on_rank, args=(str(tmp_path), str(model)), nprocs=2, join=True)
    found = {
        name: Step(each["gradient"], each["loss"].item(), {})
        for name, each in torch.load(tmp_path / "found.pt", weights_only=True).items()
    }
    for level in ("weight", "loss"):
        same_step("TRL", f"two ranks, {level}", found["theirs"], found[level], found["off"])
