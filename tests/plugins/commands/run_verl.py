"""`python -m verl.trainer.main_ppo` as docs/plugins.md has it: Ray, TransferQueue, verl's v1 trainer, its agent loop and its FSDP2 worker.

Only the rollout engine is stood in for (`verl_engine.py`): it answers the agent loop's requests and takes the trainer's weights.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

import trimtab
from tests.plugins import documented
from tests.plugins.commands.figures import Run, judge, kept_gradients
from tests.plugins.commands.made import save, save_rows
from tests.plugins.commands.process import finish

OWN = {"rollout_is": "token", "rollout_is_threshold": 1.1, "rollout_rs": "seq_mean_k3", "rollout_rs_threshold": "0.02"}
KEPT = "trimtab/kept_fraction"
PLAN, LOSS = "+algorithm.rollout_correction.trimtab", "actor_rollout_ref.actor.policy_loss"
OURS = (
    "algorithm.adv_estimator=trimtab",
    f"{LOSS}.loss_mode=trimtab",
    f"{LOSS}._target_=trimtab.plugins.verl.LossSettings",
)
NEW = (
    f"{PLAN}.correction.preset=geo-rs+token-mis",
    f"{PLAN}.correction.upper=1.05",
    f"{PLAN}.correction.token_upper=1.2",
    f"{PLAN}.advantage=grpo",
    f"+{LOSS}.trimtab.loss=topr",
)
"""Token masks after a geometric gate, the baseline of those rows that are left, and TOPR: verl has none of them."""


def words_of(folder: Path) -> list[str]:
    """What a run without a GPU changes: where model, data and reward are, the engine, and one small fp32 worker of plain descent."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return [
        f"data.train_files={folder / 'rows.parquet'}",
        f"data.val_files={folder / 'rows.parquet'}",
        "data.train_batch_size=4",
        "data.max_prompt_length=8",
        "data.max_response_length=12",
        "data.dataloader_num_workers=0",
        "data.shuffle=false",
        f"reward.custom_reward_function.path={folder / 'reward.py'}",
        "reward.num_workers=1",
        f"actor_rollout_ref.model.path={folder / 'model'}",
        "actor_rollout_ref.model.use_remove_padding=false",
        "+actor_rollout_ref.model.override_config.attn_implementation=eager",
        "actor_rollout_ref.model.enable_gradient_checkpointing=false",
        f"{rollout}.name=rounded",
        f"{rollout}.n=4",
        f"{rollout}.calculate_log_probs=true",
        f"{rollout}.agent.num_workers=1",
        f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.log_prob_micro_batch_size_per_gpu=4",
        f"{actor}.strategy=fsdp2",
        f"{actor}.fsdp_config.strategy=fsdp2",
        f"{actor}.fsdp_config.model_dtype=fp32",
        f"{actor}.fsdp_config.dtype=float32",
        *(f"+{actor}.fsdp_config.mixed_precision.{each}_dtype=fp32" for each in ("param", "reduce", "buffer")),
        f"{actor}.fsdp_config.use_torch_compile=false",
        f"{actor}.use_torch_compile=false",
        f"{actor}.ppo_mini_batch_size=4",
        f"{actor}.ppo_micro_batch_size_per_gpu=4",
        f"{actor}.optim.optimizer=SGD",
        f"{actor}.optim.lr=0.001",
        f"{actor}.optim.weight_decay=0.0",
        f"{actor}.optim.clip_grad=1e9",
        "trainer.n_gpus_per_node=1",
        "trainer.total_training_steps=2",
        "trainer.val_before_train=false",
        "trainer.device=cpu",
        "trainer.logger=[file]",
        "trainer.resume_mode=disable",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "ray_kwargs.ray_init.num_cpus=8",
        "+ray_kwargs.ray_init.num_gpus=1",
    ]


def prepare(folder: Path) -> None:
    """A model, eight prompts and a reward."""
    save(folder / "model")
    save_rows(folder / "rows.parquet", data_source="made", reward_model={"style": "rule", "ground_truth": ""})
    (folder / "reward.py").write_text(
        "def compute_score(data_source, solution_str, **_):\n    return float(len(solution_str) * 7 % 5)\n"
    )


def run(folder: Path, name: str, *words: str) -> Run:
    """The command in a process of its own."""
    more = {
        "KEPT_GRADIENTS": str(folder / name),
        "VERL_USE_EXTERNAL_MODULES": "tests.plugins.commands.verl_engine",
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",
        "VERL_FILE_LOGGER_PATH": str(folder / f"{name}.jsonl"),
    }
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *words, *words_of(folder)]
    finish("verl", name, command, folder, more)
    logged = [json.loads(line)["data"] for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    return Run(kept_gradients(folder / name), [each[KEPT] for each in logged if KEPT in each])


def plan_file(folder: Path) -> Path:
    """verl's own settings as trimtab reads them."""
    found = trimtab.dialects.read("verl", {"algorithm.rollout_correction": OWN, "algorithm.adv_estimator": "grpo"})
    assert found.correction is not None
    assert found.advantage is not None
    plan = {"correction": found.correction.settings(), "advantage": found.advantage.model_dump(), "metrics": "all"}
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))
    return path


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="trimtab-verl-"))
    prepare(folder)
    own = [f"algorithm.rollout_correction.{key}={value}" for key, value in OWN.items()]
    runs = {
        "documented": run(folder, "documented", *documented.words("verl")),
        "theirs": run(folder, "theirs", "algorithm.adv_estimator=grpo", *own),
        "ours": run(folder, "ours", *OURS, f"{PLAN}={plan_file(folder)}"),
        "off": run(folder, "off", "algorithm.adv_estimator=grpo"),
        "a rule verl does not have": run(folder, "new", *OURS, *NEW),
    }
    code = judge("verl", runs)
    if code == 0:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
