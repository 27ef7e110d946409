from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tests.train.batches import batch, policy
from trimtab.config.training import Model, Reward, Task, Tiny, WarmStart
from trimtab.errors import ConfigError, RunError
from trimtab.train.learner.scoring import Scorer
from trimtab.train.messages import Problem
from trimtab.train.policy import warm_start
from trimtab.train.policy.model import load_pretrained
from trimtab.train.policy.tiny import character_tokenizer, tiny_policy
from trimtab.train.policy.warm_start import warm_policy
from trimtab.train.tasks import source


def test_characters_and_tokens_are_one_to_one() -> None:
    made = tiny_policy(Tiny(), "0123456789=+ ", 64, 0)
    ids = made.policy.prompt(Task(), Problem("a", "12 + 3=", "15"))
    assert len(ids) == 7
    stop = np.array([*ids, made.policy.stop[0]], dtype=np.int32)
    assert made.policy.texts([stop, ids[:2], ids[:0]]) == ["12 + 3=", "12", ""]


def test_prompts_of_several_problems_are_those_of_each() -> None:
    """Also where the tokenizer was saved with padding: no prompt may get another's length."""
    made = tiny_policy(Tiny(), "0123456789=+ ", 64, 0).policy
    made.tokenizer.backend_tokenizer.enable_padding(pad_id=0, length=12)
    problems = [Problem(str(place), text, "") for place, text in enumerate(["1=", "12 + 345=", "7"])]
    found = made.prompts(Task(), problems)
    assert [len(ids) for ids in found] == [2, 9, 1]
    assert [ids.tolist() for ids in found] == [made.prompt(Task(), problem).tolist() for problem in problems]
    assert made.prompts(Task(), []) == []
    with pytest.raises(ConfigError, match="Problem 'b' needs a prompt with tokens, got none"):
        made.prompts(Task(), [problems[0], Problem("b", "", "")])


def test_a_saved_tiny_policy_is_loaded_as_it_was(tmp_path: Path) -> None:
    made = tiny_policy(Tiny(), "0123456789=+ ", 64, 0)
    made.model.save_pretrained(tmp_path)
    made.policy.tokenizer.save_pretrained(tmp_path)
    again = load_pretrained(Model(path=str(tmp_path)))
    assert again.policy.stop == made.policy.stop
    assert again.policy.tokenizer("1 + 2").input_ids == made.policy.tokenizer("1 + 2").input_ids
    for name, value in made.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])
    other = load_pretrained(Model(path=str(tmp_path), random=True))
    assert not torch.equal(other.model.lm_head.weight, made.model.lm_head.weight)


def test_the_seed_makes_the_weights_and_leaves_the_global_stream_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = (tiny_policy(Tiny(), "01", 64, seed).model.lm_head.weight for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("path", ["nowhere", "/nowhere/at/all"])
def test_a_model_that_is_not_there_is_an_error_that_names_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="nowhere"):
        load_pretrained(Model(path=path))


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ConfigError, match="heads that divide width"):
        tiny_policy(Tiny(width=30, heads=4), "01", 64, 0)


def test_an_unknown_character_becomes_one_token() -> None:
    assert len(character_tokenizer("01")("0x1").input_ids) == 3


def test_log_probs_are_those_of_the_whole_forward_at_the_temperature() -> None:
    made = policy()
    rows = batch(made)
    with torch.no_grad():
        logits = made.model(input_ids=rows.ids).logits / 0.7
        found = Scorer.of(made.model, 0.7)(rows, entropy=True)
    row, place = 5, 0
    at = int(rows.prompts[row]) - 1 + place
    wanted = logits[row, at].log_softmax(-1)
    assert float(found.log_probs[row, place]) == pytest.approx(float(wanted[rows.tokens[row, place]]), abs=1e-5)
    assert found.entropy is not None
    assert float(found.entropy[row, place]) == pytest.approx(float(-(wanted.exp() * wanted).sum()), abs=1e-5)
    assert torch.equal(found.log_probs[~rows.mask], torch.zeros_like(found.log_probs[~rows.mask]))


def test_a_head_that_is_no_plain_product_is_found_out() -> None:
    model = GPT2LMHeadModel(
        GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=14, n_positions=32, bos_token_id=0, eos_token_id=1)
    )
    assert Scorer.of(model, 1.0).plain_head
    model.lm_head.register_forward_hook(lambda module, given, out: torch.tanh(out))
    assert not Scorer.of(model, 1.0).plain_head


def test_a_warm_start_reaches_its_target_and_comes_from_the_cache_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMTAB_CACHE", str(tmp_path))
    task, size = Task(options={"size": 1}), Tiny(width=16, heads=2, mlp=24, layers=1)
    config = WarmStart(slips=0.0, target=0.9, batch=64, lr=1e-2)
    steps: list[tuple[int, float | None]] = []
    problems = source(task, 0)
    one = warm_policy(size, config, task, problems, seed=0, max_tokens=2, progress=lambda *each: steps.append(each))
    assert steps[-1][1] is not None
    assert steps[-1][1] >= 0.9
    made = len(steps)
    again = warm_policy(size, config, task, problems, seed=0, max_tokens=2, progress=lambda *each: steps.append(each))
    assert len(steps) == made
    assert torch.equal(one.model.lm_head.weight, again.model.lm_head.weight)
    for file in tmp_path.rglob("*.safetensors"):
        file.write_bytes(b"torn")
    warm_policy(size, config, task, problems, seed=0, max_tokens=2, progress=lambda *each: steps.append(each))
    assert len(steps) == 2 * made


def test_a_warm_start_made_by_other_code_is_not_taken_and_one_for_other_rewards_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMTAB_CACHE", str(tmp_path))
    task, size = Task(options={"size": 1}), Tiny(width=16, heads=2, mlp=24, layers=1)

    def made(task: Task) -> int:
        warm_policy(size, WarmStart(target=0.01, batch=64), task, source(task, 0), seed=0, max_tokens=2)
        return len(list(tmp_path.rglob("*.safetensors")))

    assert made(task.but(rewards=(Reward(verifier="regex", pattern="(never)"),))) == 1
    assert made(task) == 1
    copy = tmp_path / "train"
    shutil.copytree(Path(warm_start.__file__).parents[1], copy)
    monkeypatch.setattr(warm_start, "__file__", str(copy / "policy" / "warm_start.py"))
    (copy / "model_card.py").write_text("# no way to the weights\n")
    assert made(task) == 1
    (copy / "engines" / "hf" / "sampling.py").write_text("# another way to the weights\n")
    assert made(task) == 2
    monkeypatch.setattr(warm_start.transformers, "__version__", "0")
    assert made(task) == 3


def test_a_warm_start_that_gets_nowhere_says_what_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_CACHE", str(tmp_path))
    task, size = Task(options={"size": 4}), Tiny(width=8, heads=2, mlp=8, layers=1)
    with pytest.raises(RunError, match=r"Lower model\.warm_start\.target"):
        warm_policy(size, WarmStart(target=0.99, max_steps=25, batch=4), task, source(task, 0), seed=0, max_tokens=5)
