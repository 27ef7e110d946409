"""Sampler or trainer in few bits: named, with what that does to a ratio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trimtab.dialects import read
from trimtab.dialects.topics import speaks_of_bits

FEW = "in low precision"


def told(framework: str, settings: dict[str, Any] | Path) -> list[str]:
    return [each.key for each in read(framework, settings).findings if FEW in each.text]


@pytest.mark.parametrize(
    ("framework", "settings", "named"),
    [
        ("slime", {"eps_clip": 0.2, "int4_params_rollout": True}, "int4_params_rollout"),
        ("slime", {"eps_clip": 0.2, "sglang_kv_cache_dtype": "fp8_e4m3"}, "sglang_kv_cache_dtype"),
        ("verl", {"actor_rollout_ref.actor.clip_ratio": 0.2, "actor_rollout_ref.rollout.quantization": "fp8"},
         "actor_rollout_ref.rollout.quantization"),
        ("skyrl", {"trainer.algorithm.eps_clip_low": 0.2, "trainer.policy.megatron_config.fp8": "e4m3",
                   "generator.inference_engine.serialized_weight_sync_mode": "blockwise"},
         "trainer.policy.megatron_config.fp8, generator.inference_engine.serialized_weight_sync_mode"),
        ("nemo-rl", {"loss_fn.ratio_clip_min": 0.2, "policy.generation.vllm_cfg.precision": "fp8",
                     "policy.precision": "bfloat16"}, "policy.generation.vllm_cfg.precision"),
        ("open-instruct", {"beta": 0.0, "use_fp8_kv_cache": True}, "use_fp8_kv_cache"),
        ("slime", {"eps_clip": 0.2, "hf_checkpoint": "/root/Own-30B-FP8/", "ref_load": "/root/own"}, "hf_checkpoint"),
        ("prime-rl", {"trainer.loss.type": "ipo", "model.name": "own/model-AWQ"}, "model.name"),
        ("ms-swift", {"epsilon": 0.2, "quant_method": "bnb", "quant_bits": 4, "bnb_4bit_compute_dtype": "bfloat16",
                      "bnb_4bit_quant_type": "nf4"}, "quant_method, quant_bits, bnb_4bit_quant_type"),
        ("trl", {"epsilon": 0.2, "load_in_4bit": True, "use_peft": True}, "load_in_4bit"),
        ("ms-swift", {"epsilon": 0.2, "quant_bits": "8"}, "quant_bits"),
        ("openrlhf", {"eps_clip": 0.2, "ds.load_in_4bit": True}, "ds.load_in_4bit"),
    ],
)  # fmt: skip
def test_few_bits_are_named(framework: str, settings: dict[str, Any], named: str) -> None:
    assert told(framework, settings) == [named]


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("$BASE_DIR/Own-30B-FP8/", ["hf_checkpoint"]),
        ('"${BASE_DIR}"/own-fp8', ["hf_checkpoint"]),
        ("$FP8_MODEL", ["hf_checkpoint"]),  # a variable may say it too
        ("$BASE_DIR/own-30b/", []),
    ],
)
def test_a_variable_that_is_not_set_hides_nothing_beside_it(path: str, named: list[str], tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"python3 train.py --hf-checkpoint {path} --eps-clip 0.2 --advantage-estimator grpo\n")
    assert told("slime", script) == named


def test_how_a_base_would_be_quantised_is_no_word_that_it_is() -> None:
    assert told("trl", {"epsilon": 0.2, "bnb_4bit_quant_type": "nf4", "load_in_4bit": False}) == []


def test_a_section_that_is_switched_off_and_the_bits_of_a_judge_need_no_word() -> None:
    off = {"policy.megatron_cfg.fp8_cfg.enabled": False, "policy.megatron_cfg.fp8_cfg.fp8": "e4m3"}
    assert told("nemo-rl", {"loss_fn.ratio_clip_min": 0.2, **off}) == []
    assert told("nemo-rl", {"loss_fn.ratio_clip_min": 0.2, "env.judge.quantization": "fp8"}) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("optimizer.fp8_moments", True),
        ("use_fp8_kv_cache", False),
        ("rollout.quantization", None),
        ("rollout.quantization", "none"),
        ("rollout.dtype", "bfloat16"),
        ("policy.precision", "fp16"),
        ("model.fp8_cfg.router_dtype", "fp64"),
        ("lora.quantization", "int4"),
        ("kv_cache_dtype", "auto"),
        ("attention_softmax_in_fp32", True),
        ("experiment_name", "own-fp8"),
        ("model.name", "own/fp8less-model"),
        ("reward_model.path", "own/judge-fp8"),
        ("teacher_model", "own/teacher-fp8"),
        ("checkpointing.checkpoint_dir", "results/grpo-own-fp8-rollouts"),
        ("logger.log_dir", "logs/own-fp8"),
        ("model_save_path", "out/own-int4"),
        ("load_in_4bit", False),
        ("bnb_4bit_compute_dtype", "bfloat16"),
        ("quant_bits", 16),
        ("optim", "paged_adamw_8bit"),
        ("optim_bits", 8),
    ],
)
def test_sixteen_bits_and_more_optimizers_and_what_is_off_are_not_meant(key: str, value: Any) -> None:
    assert not speaks_of_bits(key, value)
