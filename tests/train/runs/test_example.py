"""The shipped example and its variations from end to end, with a model of the same architecture that is small and random."""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from tests.train.started import ROOT, Launcher, check_records
from trimtab.config.files import plain_settings
from trimtab.config.training import Train

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FEW = ("rollout.groups=2", "rollout.samples=4", "rollout.max_tokens=12", "rollout.slots=8", "learner.lr=1e-3")


def problems(number: int = 24) -> list[dict[str, str]]:
    """Made-up problems in the form of GSM8K."""
    dice, found = random.Random(0), []
    for _ in range(number):
        boxes, each, gone = dice.randint(2, 9), dice.randint(3, 12), dice.randint(1, 5)
        all_of = boxes * each
        found.append(
            {
                "question": f"Mia has {boxes} boxes of {each} pears. She eats {gone}. How many pears are left?",
                "answer": f"She has {boxes}*{each}=<<{boxes}*{each}={all_of}>>{all_of} pears.\n"
                f"Then {all_of}-{gone}={all_of - gone} are left.\n#### {all_of - gone}",
            }
        )
    return found


def save_model(folder: Path) -> None:
    """A random Qwen2 with a byte-level BPE tokenizer trained on the problems."""
    whole = Tokenizer(models.BPE())
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    whole.train_from_iterator([text for row in problems() for text in row.values()], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=whole, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture
def ready(launcher: Launcher) -> Launcher:
    """With the example, a model and problems beside it."""
    shutil.copy(ROOT / "examples/gsm8k.yaml", launcher.folder)
    save_model(launcher.folder / "model")
    rows = "".join(json.dumps(row) + "\n" for row in problems())
    (launcher.folder / "problems.jsonl").write_text(rows)
    return launcher


def test_the_example_reads_as_settings() -> None:
    config = Train.from_settings(plain_settings(str(ROOT / "examples/gsm8k.yaml"), []))
    assert config.task.path == "openai/gsm8k"
    assert config.task.rewards[0].verifier == "numeric"


@pytest.mark.usefixtures("bf16")
def test_the_example_runs_on_a_file_of_ones_own_and_goes_on(ready: Launcher) -> None:
    own = ("model.path=model", "task.path=problems.jsonl", "task.held_out=null", "evaluate.problems=4")
    run = ready.train("gsm8k.yaml", *own, *FEW, "steps=2", "--out", "run")
    assert run.code() == 0, run.errors
    path = ready.folder / "run"
    records = check_records(path, 2, staleness=4, groups=2)
    assert "held-out accuracy" in run.output
    assert (path / "report.html").stat().st_size > 10_000
    rows = records.rollout_table().to_pydict()
    assert all("Think step by step." in prompt for prompt in rows["prompt"])
    assert all(row["question"] not in prompt for row in problems()[-2:] for prompt in rows["prompt"])  # held out
    assert not any(rows["failed"])
    again = ready.train("--resume", "run", "steps=3")
    assert again.code() == 0, again.errors
    assert "continuing at step 2" in again.errors
    check_records(path, 3, staleness=4, groups=2)


def test_a_reasoning_gym_task_runs(ready: Launcher) -> None:
    words = ("model.path=model", "task.name=gym:chain_sum", "task.chat=true", "backend=lockstep", "evaluate.problems=4")
    run = ready.train(*words, *FEW, "steps=1", "--out", "run")
    assert run.code() == 0, run.errors
    records = check_records(ready.folder / "run", 1, staleness=4, groups=2)
    assert records.metrics()[0]["rollout/failed"] == 0.0


def test_a_reward_function_of_ones_own_is_called_with_the_fields_of_the_problem(ready: Launcher) -> None:
    (ready.folder / "mine.py").write_text(
        "def length(prompt, response, answer):\n"
        "    assert 'pears' in prompt and '####' in answer\n"
        "    return {'reward': min(len(response), 100) / 100, 'correct': len(response) > 20}\n"
    )
    own = ("model.path=model", "task.path=problems.jsonl", "task.held_out=null", "evaluate=null", "backend=lockstep")
    run = ready.train(
        "gsm8k.yaml",
        *own,
        *FEW,
        "task.rewards=[{function: mine:length}]",
        "shaping.no_eos=keep",
        "steps=1",
        "--out",
        "run",
    )
    assert run.code() == 0, run.errors
    records = check_records(ready.folder / "run", 1, staleness=4, groups=2)
    rows = records.rollout_table().to_pydict()
    expected = [min(len(text), 100) / 100 for text in rows["response"]]
    assert rows["reward"] == pytest.approx(expected)
    assert records.metrics()[0]["train/skipped"] == 0.0
