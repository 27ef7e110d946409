"""The lines of docs/plugins.md for TRL: `GRPOTrainer(…, trimtab=…)` and `trainer.train()`, with TRL's own arguments.

Only the sampler is stood in for: TRL's `VLLMGeneration`, which hands prompts to vLLM and weights to its engine.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset
from transformers import PrinterCallback
from trl.trainer import grpo_trainer

import trimtab
from tests.plugins.commands.engine import RoundedEngine
from tests.plugins.commands.figures import Run, judge, keep_gradients, kept_gradients
from tests.plugins.commands.made import prompts, save
from trimtab.plugins.trl import GRPOTrainer

IS = "vllm_importance_sampling_"
OWN = {f"{IS}mode": "sequence_mask", f"{IS}clip_max": 1.2, f"{IS}clip_min": None}
WIDTH = 12
KEPT, ZEROED = "trimtab/kept_fraction", "trimtab/weight/touched_high"
"""A gate takes tokens out; TRL's mask leaves them in with weight 0."""


class RoundedGeneration:
    """As TRL calls `VLLMGeneration`: weights before a step, tokens and their log-probs for prompts."""

    def __init__(self, model: Any, **_: Any) -> None:
        self.model, self.engine, self.step = model, RoundedEngine(model.name_or_path), 0

    def sync_weights(self) -> None:
        self.step += 1
        self.engine.load(self.model.state_dict().items(), self.step)

    def generate(self, prompts: list[list[int]], **_: Any) -> tuple[Any, list[list[int]], list[Any], Any]:
        found = [self.engine.sample(list(prompt), WIDTH) for prompt in prompts]
        return None, [tokens for tokens, _ in found], [[[each] for each in row] for _, row in found], None


def reward(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text) * 7 % 5) for text in completions]


def run(folder: Path, name: str, kind: type, plan: Any = None, **settings: Any) -> Run:
    """The lines of the page, with what makes them small."""
    small: dict[str, Any] = {
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
    }
    plain = {
        "optim": "sgd",
        "learning_rate": 0.3,
        "max_grad_norm": 1e9,
        "lr_scheduler_type": "constant",
        "max_steps": 2,
        "seed": 3,
    }
    shape = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "num_generations": 4,
        "max_completion_length": WIDTH,
    }
    trainer = kind(
        model=str(folder / "model"),
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": prompts()}),
        args=trl.GRPOConfig(
            str(folder / "out"), use_vllm=True, vllm_mode="colocate", **small, **plain, **shape, **settings
        ),
        **({} if plan is None else {"trimtab": plan}),
    )
    trainer.remove_callback(PrinterCallback)
    keeping = keep_gradients(folder / name)
    trainer.train()
    keeping.remove()
    logged = [each for each in trainer.state.log_history if KEPT in each]
    kept = [each[KEPT] - (each[ZEROED] if name == "ours" else 0) for each in logged]
    return Run(kept_gradients(folder / name), kept)


def main() -> int:
    grpo_trainer.VLLMGeneration = RoundedGeneration
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save(folder / "model")
        read = trimtab.dialects.read("trl", {"use_vllm": True, "max_completion_length": WIDTH, **OWN}).correction
        assert read is not None
        runs = {
            "documented": run(folder, "documented", GRPOTrainer, "geo-rs+token-tis"),
            "theirs": run(folder, "theirs", trl.GRPOTrainer, **OWN),
            "ours": run(folder, "ours", GRPOTrainer, {"correction": read.settings(), "metrics": "all"}, **OWN),
            "off": run(folder, "off", trl.GRPOTrainer, **OWN | {f"{IS}correction": False}),
        }
        return judge("TRL", runs)


if __name__ == "__main__":
    sys.exit(main())
