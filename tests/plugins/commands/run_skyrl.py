"""`python -m skyrl.train.entrypoints.main_base` as docs/plugins.md has it: validation, Ray, SkyRL's trainer, generator and FSDP worker.

Stood in for: vLLM's server (`server.py`), its transfer of weights over NCCL, and CUDA (`skyrl_cpu`).
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import trimtab
from tests.plugins import documented
from tests.plugins.commands.figures import Run, judge, kept_gradients
from tests.plugins.commands.made import save, save_rows
from tests.plugins.commands.process import TREE, finish, numbers, served

OWN = {
    "tis_ratio_type": "token",
    "token_tis_ratio_clip_high": 1.1,
    "sequence_mask_metric": "geometric",
    "geo_mask_low": 0.95,
    "geo_mask_high": 1.05,
}
KEPT = "policy/loss_metrics/trimtab/kept_fraction"
OURS = ("trainer.override_entrypoint=trimtab.plugins.skyrl", "trainer.algorithm.policy_loss_type=trimtab")
NEW = ("trainer.algorithm.trimtab.correction.preset=k3-rs", "trainer.algorithm.trimtab.correction.upper=0.01")
"""A gate on k3 of the sequence, which SkyRL does not have."""


def words_of(folder: Path, address: str) -> list[str]:
    """What a run without a GPU changes: where model and data are, the engine, and one small fp32 worker."""
    precision = "trainer.policy.fsdp_config.mixed_precision"
    return [
        f"data.train_data=[{folder / 'rows.parquet'}]",
        "data.val_data=[]",
        "data.dataloader.num_workers=0",
        f"trainer.policy.model.path={folder / 'model'}",
        "trainer.algorithm.advantage_estimator=grpo",
        "trainer.algorithm.use_kl_loss=false",
        "trainer.placement.colocate_all=false",
        "generator.inference_engine.run_engines_locally=false",
        f"generator.inference_engine.external_proxy_url=http://{address}",
        "generator.inference_engine.model_dtype=float32",
        "generator.inference_engine.enable_ray_prometheus_stats=false",
        "generator.n_samples_per_prompt=4",
        "generator.sampling_params.max_generate_length=12",
        "generator.sampling_params.logprobs=1",
        "trainer.max_prompt_length=16",
        "generator.max_input_length=16",
        "trainer.train_batch_size=4",
        "trainer.policy_mini_batch_size=4",
        "trainer.micro_train_batch_size_per_gpu=4",
        "trainer.micro_forward_batch_size_per_gpu=4",
        "trainer.epochs=1",
        "trainer.eval_before_train=false",
        "trainer.eval_interval=-1",
        "trainer.ckpt_interval=-1",
        "trainer.resume_mode=none",
        "trainer.flash_attn=false",
        "trainer.remove_microbatch_padding=false",
        "trainer.gradient_checkpointing=false",
        "trainer.enable_ray_gpu_monitor=false",
        f"{precision}.param_dtype=fp32",
        f"{precision}.reduce_dtype=fp32",
        "trainer.policy.optimizer_config.lr=0.001",
        "trainer.policy.optimizer_config.weight_decay=0.0",
        "trainer.policy.optimizer_config.max_grad_norm=1e9",
        "trainer.logger=console",
        *(f"trainer.{name}={folder / 'files'}" for name in ("log_path", "ckpt_path", "export_path")),
    ]


def prepare(folder: Path) -> None:
    """A model some of whose words are answers, and eight prompts of gsm8k's shape."""
    save(folder / "model")
    truth = {"method": "rule", "ground_truth": "5"}
    save_rows(folder / "rows.parquet", data_source="made", env_class="gsm8k", reward_spec=truth)


def run(folder: Path, name: str, *words: str) -> Run:
    """The command in a process of its own."""
    sent = {"SENT_WEIGHTS": str(folder / f"{name}.safetensors")}
    with served(folder / "model", **sent) as address:
        more = sent | {
            "PYTHONPATH": f"{TREE}:{Path(__file__).parent / 'skyrl_cpu'}",
            "KEPT_GRADIENTS": str(folder / name),
            "RAY_OVERRIDE_RESOURCES": json.dumps({"CPU": 8, "GPU": 1}),
            "SKYRL_DUMP_INFRA_LOG_TO_STDOUT": "1",
        }
        command = [sys.executable, "-m", "skyrl.train.entrypoints.main_base", *words, *words_of(folder, address)]
        said = finish("SkyRL", name, command, folder, more)
    return Run(kept_gradients(folder / name), numbers(said, KEPT))


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="trimtab-skyrl-"))
    prepare(folder)
    own = [f"trainer.algorithm.off_policy_correction.{key}={value}" for key, value in OWN.items()]
    read = trimtab.dialects.read("skyrl", {"trainer.algorithm.off_policy_correction": OWN}).correction
    assert read is not None
    plan = folder / "plan.yaml"
    plan.write_text(json.dumps({"correction": read.settings(), "metrics": "all"}))  # YAML too
    runs = {
        "documented": run(folder, "documented", *documented.words("SkyRL")),
        "theirs": run(folder, "theirs", *own),
        "ours": run(folder, "ours", *OURS, f"trainer.algorithm.trimtab={plan}"),
        "off": run(folder, "off"),
        "a rule SkyRL does not have": run(folder, "new", *OURS, *NEW),
    }
    code = judge("SkyRL", runs)
    if code == 0:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
