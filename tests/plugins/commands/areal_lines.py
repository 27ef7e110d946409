"""The lines of docs/plugins.md for AReaL: its configuration file, its data and its RLVR workflow, and a plan as JSON for `trimtab=`.

`python -m tests.plugins.commands.areal_lines PLAN --config FILE`; an empty plan trains with AReaL's own trainer.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from areal.api.cli_args import GRPOConfig, load_expr_config
from areal.trainer.rl_trainer import PPOTrainer as AReaLTrainer
from datasets import Dataset

from tests.plugins.commands.figures import keep_gradients
from tests.plugins.commands.made import prompts
from trimtab.plugins.areal import PPOTrainer


def reward(prompt: str, completion: str, prompt_ids: list[int], completion_ids: list[int], **_: Any) -> float:
    return float(len(completion) * 7 % 5)


def main(plan: str, words: list[str]) -> None:
    config, _ = load_expr_config(words, GRPOConfig)
    data = Dataset.from_list([{"messages": [{"role": "user", "content": text}]} for text in prompts()])
    settings = {"reward_fn": f"{__spec__.name}.reward", "gconfig": config.gconfig, "tokenizer": config.tokenizer_path}
    keep_gradients(os.environ["KEPT_GRADIENTS"])
    kind, more = (PPOTrainer, {"trimtab": json.loads(plan)}) if plan else (AReaLTrainer, {})
    with kind(config, train_dataset=data, **more) as trainer:
        trainer.train(workflow="areal.workflow.rlvr.RLVRWorkflow", workflow_kwargs=settings)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
