"""What saves the learner memory or time: each does what it says, and the numbers stay those of the plain learner."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from tests.train.batches import batch, policy
from trimtab.config.training import Train
from trimtab.errors import CheckpointError, ConfigError
from trimtab.train.learner.learner import Learner
from trimtab.train.learner.rows import Rows
from trimtab.train.learner.scoring import Scorer
from trimtab.train.learner.shared_prefix import shared_prefix

BASE = {"minibatches": 1, "warmup": 1, "lr": 1e-2}


def learner(model: PreTrainedModel, **options: Any) -> Learner:
    return Learner(Train.from_settings({"learner": BASE | options}), copy.deepcopy(model))


def without_fast_trunk(of: Learner) -> Learner:
    """The same with transformers' own trunk, as all the options have it."""
    of.scorer = Scorer(of.model, 1.0, plain_head=True)
    return of


def gradients(of: Learner) -> Tensor:
    return torch.cat([each.grad.flatten() for each in of.model.parameters() if each.grad is not None])


def log_probs(model: PreTrainedModel, rows: Rows) -> Tensor:
    return Scorer.of(model.eval(), 1.0).all(rows, 10_000).log_probs


def held_for_backward(of: Learner, rows: Rows) -> int:
    """Bytes that a forward pass keeps for the way back."""
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        of.scorer(rows).log_probs.sum()
    weights = {each.untyped_storage().data_ptr() for each in of.model.parameters()}
    return sum(size for place, size in seen.items() if place not in weights)


def test_gradient_checkpointing_holds_less_and_gives_the_same_gradient() -> None:
    made = policy()
    rows = batch(made, groups=8)
    saving, plain = learner(made.model, gradient_checkpointing=True), without_fast_trunk(learner(made.model))
    assert saving.scorer.fast is None
    assert held_for_backward(saving, rows) < 0.5 * held_for_backward(plain, rows)
    assert saving.learn(rows).outcome == plain.learn(rows).outcome == "updated"
    torch.testing.assert_close(gradients(saving), gradients(plain), rtol=1e-4, atol=1e-7)


@pytest.mark.usefixtures("bf16")
def test_autocast_rounds_the_trunk_and_keeps_weights_log_probs_and_optimiser_in_float32() -> None:
    made = policy()
    rows = batch(made, groups=8)
    narrow, wide = learner(made.model, autocast="bf16"), learner(made.model)
    with torch.no_grad():
        rounded, exact = narrow.scorer(rows).log_probs, wide.scorer(rows).log_probs
    assert rounded.dtype == torch.float32
    off = float((rounded - exact).abs().max())
    assert 1e-5 < off < 0.1, "as much as bf16 rounds, and not nothing"
    plain = without_fast_trunk(learner(made.model))
    assert held_for_backward(narrow, rows) < 0.8 * held_for_backward(plain, rows)
    assert narrow.learn(rows).outcome == "updated"
    kept = [*narrow.model.parameters(), *(each["exp_avg"] for each in narrow.optimizer.state.values())]
    assert {each.dtype for each in kept} == {torch.float32}
    wide.learn(rows)
    similar = torch.nn.functional.cosine_similarity(gradients(narrow), gradients(wide), dim=0)
    assert 0.98 < float(similar) < 1.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_compiled_layers_give_the_same_gradient() -> None:
    made = policy()
    rows = batch(made)
    compiled, plain = learner(made.model, compile=True), learner(made.model)
    layers = [each for each in compiled.model.modules() if type(each).__name__ == "Qwen2DecoderLayer"]
    assert all(each._compiled_call_impl is not None for each in layers)
    assert compiled.learn(rows).outcome == plain.learn(rows).outcome == "updated"
    torch.testing.assert_close(gradients(compiled), gradients(plain), rtol=1e-3, atol=1e-6)
    assert dict(compiled.weights()).keys() == dict(plain.weights()).keys()


@pytest.mark.filterwarnings("ignore")
def test_adapters_train_alone_and_samplers_get_the_merged_weights(tmp_path: Path) -> None:
    made = policy()
    rows = batch(made)
    mine = learner(made.model, lora={"rank": 4, "alpha": 8.0})
    for _ in range(3):
        assert mine.learn(rows).outcome == "updated"
    published = dict(mine.weights())
    fresh = copy.deepcopy(made.model)
    assert published.keys() == dict(fresh.named_parameters()).keys()
    before = log_probs(fresh, rows)
    fresh.load_state_dict(published)
    wanted = mine.scorer.all(rows, 10_000).log_probs
    torch.testing.assert_close(log_probs(fresh, rows), wanted, rtol=0, atol=1e-5)
    assert float((wanted - before).abs().max()) > 1e-2, "training has to have moved the policy"
    frozen = [name for name in published if "norm" in name or "embed" in name or name == "lm_head.weight"]
    assert all(torch.equal(published[name], made.model.state_dict()[name]) for name in frozen)
    mine.save(tmp_path)
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(log_probs(saved, rows), wanted, rtol=0, atol=1e-5)
    peft = pytest.importorskip("peft")
    adapted = peft.PeftModel.from_pretrained(copy.deepcopy(made.model), tmp_path / "adapter")
    torch.testing.assert_close(log_probs(adapted.merge_and_unload(), rows), wanted, rtol=0, atol=1e-5)
    again = learner(made.model, lora={"rank": 4, "alpha": 8.0})
    again.load(tmp_path)
    assert torch.equal(again.scorer.all(rows, 10_000).log_probs, wanted)
    for each in (mine, again):
        each.version = 3
        each.learn(rows)
    assert all(
        torch.equal(one, other) for one, other in zip(mine.model.parameters(), again.model.parameters(), strict=True)
    )
    with pytest.raises(CheckpointError, match="frozen weights its adapters were trained on"):
        learner(policy(1).model, lora={"rank": 4, "alpha": 8.0}).load(tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ranks": 2}, "learner.ranks 2 needs learner.shard ddp or fsdp, got none"),
        ({"lora": {}, "shard": "fsdp"}, "learner.lora needs learner.shard none or ddp, got fsdp"),
        ({"lora": {}, "compile": True}, "learner.lora needs learner.compile false"),
        (
            {"compile": True, "gradient_checkpointing": True},
            "learner.compile needs learner.gradient_checkpointing false",
        ),
        ({"device": "tpu"}, "device"),
    ],
)
def test_what_cannot_be_combined_is_refused_by_name(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Train.from_settings({"learner": options})
    with pytest.raises(ConfigError, match=r"learner\.autocast bf16 needs model\.dtype fp32, got bf16"):
        Train.from_settings({"learner": {"autocast": "bf16"}, "model": {"dtype": "bf16"}})


@pytest.mark.parametrize("fast", [True, False])
def test_a_padding_token_that_was_sampled_is_trained_like_any_other(fast: bool) -> None:
    made = policy()
    pad = made.model.config.pad_token_id
    assert pad is not None
    mine = learner(made.model)
    ids = torch.tensor([[5, 6, pad, 7, 8]])
    rows = Rows.bare(ids, torch.tensor([2]), torch.tensor([3]), torch.tensor([0]))
    trunk = shared_prefix(mine.model) if fast else None
    Scorer(mine.model, 1.0, True, trunk)(rows).log_probs.sum().backward()
    row = mine.model.get_input_embeddings().weight.grad[pad]
    other = copy.deepcopy(made.model)
    other.get_input_embeddings().padding_idx = None
    other(input_ids=ids).logits[0, 1:4].log_softmax(-1).gather(1, ids[0, 2:].unsqueeze(1)).sum().backward()
    torch.testing.assert_close(row, other.get_input_embeddings().weight.grad[pad], rtol=1e-4, atol=1e-6)
    assert float(row.norm()) > 1e-4
    untouched = copy.deepcopy(made.model)  # as transformers makes it, the row would stay
    untouched(input_ids=ids).logits[0, 1:4].log_softmax(-1).gather(1, ids[0, 2:].unsqueeze(1)).sum().backward()
    assert not bool(untouched.get_input_embeddings().weight.grad[pad].any())
