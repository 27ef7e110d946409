"""Tokens per second of the sampling engine beside `model.generate`, with the same sampling and both with log-probs.

    python benchmarks/sampling.py            # about two minutes
    python benchmarks/sampling.py --quick    # fewer turns: half a minute

The policy is the default tiny one (Qwen2, vocabulary 16, width 64, two layers) and, for the path of every other
architecture, a GPT-2 of the same size; prompts have 25 tokens, responses at most 25, 8 per prompt. `ragged`: token 0
stops, which random weights draw once in 16 tokens, so that the mean length is half the limit, and prompts have 15 to 35
tokens; four times as many responses as slots. `equal`: nothing stops.

The two take turns in one process with one thread. Time is CPU time: on an idle machine the time taken, and what other
processes take of a busy one does not count, though they still slow it through shared caches and cores. The ratio is
between the fastest turns of each; turns differ in nothing but what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from trimtab.train.engines.hf.engine import HfEngine
from trimtab.train.messages import Job

VOCABULARY, LIMIT, SAMPLES, SLOTS = 16, 25, 8, 128


def tiny_qwen2() -> PreTrainedModel:
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=176,
            max_position_embeddings=256,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()


def tiny_gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=64,
            n_layer=2,
            n_head=4,
            n_positions=256,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()


def jobs(count: int, sizes: tuple[int, int]) -> list[Job]:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(1, VOCABULARY, rng.integers(*sizes, endpoint=True)) for _ in range(count)]
    return [Job(i, prompt.astype(np.int32), SAMPLES, i, LIMIT) for i, prompt in enumerate(prompts)]


def by_engine(engine: HfEngine, work: list[Job]) -> int:
    """Tokens sampled."""
    engine.submit(work)
    tokens = 0
    while engine.pending:
        tokens += sum(len(sample.tokens) for group in engine.step() for sample in group.samples)
    return tokens


@torch.inference_mode()
def by_generate(model: Any, work: list[Job], stop: list[int]) -> int:
    """Tokens sampled, in batches of as many responses as the engine has slots; log-probs from the logits it gives."""
    tokens, size = 0, SLOTS // SAMPLES
    for begin in range(0, len(work), size):
        batch = work[begin : begin + size]
        width = max(len(job.prompt) for job in batch)
        prompts = torch.zeros(len(batch), width, dtype=torch.long)
        present = torch.zeros_like(prompts)
        for row, job in enumerate(batch):
            prompts[row, width - len(job.prompt) :] = torch.from_numpy(job.prompt)
            present[row, width - len(job.prompt) :] = 1
        made = model.generate(
            prompts,
            attention_mask=present,
            do_sample=True,
            top_k=0,
            max_new_tokens=LIMIT,
            num_return_sequences=SAMPLES,
            eos_token_id=stop or None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        response = made.sequences[:, width:]
        torch.stack(made.logits, 1).float().log_softmax(-1).gather(-1, response.unsqueeze(-1))
        ended = (response == stop[0]).cumsum(1) if stop else torch.zeros_like(response)
        tokens += int((ended - (response == stop[0]).long() if stop else ended).eq(0).sum())
    return tokens


def rate(work: Callable[[], int]) -> float:
    """Tokens per second of CPU time."""
    start = time.process_time()
    tokens = work()
    return tokens / (time.process_time() - start)


def turns(ways: dict[str, Callable[[], int]], repeats: int) -> dict[str, list[float]]:
    """Rates of each way, taken in turn after one turn that does not count."""
    for way in ways.values():
        way()
    result: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            result[name].append(rate(way))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5 turns in place of 20")
    repeats = 5 if parser.parse_args().quick else 20
    torch.set_num_threads(1)
    cases = {"equal": ([], (25, 25), 16, 1.0), "ragged": ([0], (15, 35), 64, 1.5)}
    print(f"{'':16}{'engine':>20}{'generate':>20}{'ratio':>8}   tokens/s of CPU time, best (median)")
    for kind, make in (("Qwen2", tiny_qwen2), ("GPT-2", tiny_gpt2)):
        torch.manual_seed(0)
        model = make()
        for name, (stop, sizes, count, target) in cases.items():
            work = jobs(count, sizes)
            engine = HfEngine(model, stop=stop, slots=SLOTS)
            ways = {
                "engine": lambda engine=engine, work=work: by_engine(engine, work),
                "generate": lambda model=model, work=work, stop=stop: by_generate(model, work, stop),
            }
            rates = turns(ways, repeats)
            cells = "".join(f"{f'{max(each):,.0f} ({statistics.median(each):,.0f})':>20}" for each in rates.values())
            ratio = max(rates["engine"]) / max(rates["generate"])
            print(f"{kind + ', ' + name:16}{cells}{ratio:>7.2f}×   ", end="")
            print(f"{'met' if ratio >= target else 'MISSED'} (target: {target}×)", end="")
            if (kind, name) == ("Qwen2", "equal"):
                met = max(rates["engine"]) >= 60_000
                print(f"; {'met' if met else 'MISSED'} (target: 60,000 tokens/s)", end="")
            print(flush=True)


if __name__ == "__main__":
    main()
