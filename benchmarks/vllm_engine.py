"""vLLM in process beside the engine hf on a CPU: the same jobs, tokens per second of processor time, and what an update costs.

Run in the environment of `make vllm-env`. Log-probs are compared with transformers' first; times of one process, so that neighbours
do not count.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from trimtab.config.training import Rollout
from trimtab.train.engines.hf.engine import HfEngine
from trimtab.train.engines.table import Engine
from trimtab.train.engines.vllm.engine import VllmEngine
from trimtab.train.messages import Group, Job

SIZES = {"0.1 M": (64, 2, 176), "1 M": (128, 4, 512), "5 M": (256, 5, 1024)}
PROMPT, TOKENS, GROUPS, SAMPLES, SLOTS = 24, 48, 32, 8, 128


def model_of(width: int, layers: int, mlp: int, seed: int) -> Any:
    torch.manual_seed(seed)
    heads = width // 32
    settings = Qwen2Config(
        vocab_size=64, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads,
        intermediate_size=mlp, max_position_embeddings=128, initializer_range=width**-0.5, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return Qwen2ForCausalLM(settings).eval()


def jobs(first: int) -> list[Job]:
    rng = np.random.default_rng(first)
    prompts = rng.integers(0, 64, (GROUPS, PROMPT)).astype(np.int32)
    return [Job(first + place, prompt, SAMPLES, first + place, TOKENS) for place, prompt in enumerate(prompts)]


def seconds(work: Callable[[], object]) -> tuple[float, object]:
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def sample(engine: Engine, first: int) -> list[Group]:
    engine.submit(jobs(first))
    groups: list[Group] = []
    while engine.pending:
        groups += engine.step()
    return groups


def mismatch(model: Any, groups: list[Group]) -> float:
    found: list[float] = []
    for group in groups[:4]:
        for one in group.samples:
            whole = torch.from_numpy(np.concatenate([group.job.prompt, one.tokens])).long().unsqueeze(0)
            with torch.no_grad():
                log_probs = model(whole).logits[0, PROMPT - 1 : -1].log_softmax(-1)
            chosen = log_probs.gather(-1, torch.from_numpy(one.tokens).long().unsqueeze(-1)).squeeze(-1).numpy()
            found.append(float(np.abs(chosen - one.behavior).mean()))
    return float(np.mean(found))


def measure(engine: Engine, models: list[Any], repeats: int) -> tuple[float, float, float]:
    """Tokens per second, seconds per update, mean difference of log-probs."""
    weights = [dict(model.named_parameters()) for model in models]
    engine.load(weights[0], 0)
    sample(engine, 0)
    rates, updates = [], []
    for turn in range(1, repeats + 1):
        spent, _ = seconds(lambda turn=turn: engine.load(weights[turn % 2], turn))
        updates.append(spent)
        spent, groups = seconds(lambda turn=turn: sample(engine, 1000 * turn))
        rates.append(sum(len(one.tokens) for group in groups for one in group.samples) / spent)  # type: ignore[attr-defined]
    return float(np.median(rates)), float(np.median(updates)), mismatch(models[repeats % 2], groups)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES)[:2])
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{GROUPS} groups of {SAMPLES} × {TOKENS} tokens, prompts of {PROMPT}, {SLOTS} slots, one thread, fp32")
    print(f"{'model':8} {'engine':6} {'tokens/s':>10} {'of hf':>6} {'update ms':>10} {'mean |Δ log-prob|':>18}")
    for name in given.sizes:
        models = [model_of(*SIZES[name], seed) for seed in (0, 1)]
        engines: dict[str, Callable[[], Engine]] = {
            "hf": lambda models=models: HfEngine(models[0], stop=[], slots=SLOTS),
            "vllm": lambda models=models: VllmEngine(models[0].config, Rollout(engine="vllm", slots=SLOTS), stop=[]),
        }
        base = 0.0
        for kind, build in engines.items():
            rate, update, off = measure(build(), models, given.repeats)
            base = base or rate
            print(f"{name:8} {kind:6} {rate:10,.0f} {rate / base:6.2f} {1000 * update:10.1f} {off:18.1e}", flush=True)


if __name__ == "__main__":
    main()
