"""Samples trained per second: our back-ends and TRL's GRPOTrainer on the same model, prompts, lengths and group size.

    python benchmarks/train.py            # 5 rounds of 12 steps each: a few minutes
    python benchmarks/train.py --quick    # 2 rounds of 4 steps
    python benchmarks/train.py --model 24m --steps 2 --rounds 2    # the larger model

A step is 128 samples (16 prompts × 8) of the default task, answered by the default tiny policy, and four optimiser updates of 32
samples each, drawn from all groups as TRL draws them; the log-probs of the weights at the start of the step are worked out by a
pass of their own on both sides. `groups` is lockstep with minibatches of whole groups, whose prompts are worked out once. They take
turns in one run, each in a process of its own with one thread (`local` has two: learner and sampler), and the ratio is that of
the medians. TRL is measured where it is installed (`make bench` installs it); it generates with `model.generate`. `ray` is `local` with its
sampler as an actor of a cluster on this machine, where Ray is installed. Before that, weights of 1 GB are put into Ray's object store
and read by two actors of one node (`--publish GB`; 0: not).

`--model 24m` is a Qwen2 of 24 million parameters and a vocabulary of 32,768, made on the spot with random weights: a step is 32
samples (4 prompts × 8) in four updates of 8. What it says means nothing, so a response is worth 1 if its text has an even number of
characters, which about half have: nearly every row has a gradient, as in TRL, which works out all of them in any case.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAMPLES, LENGTH, MINIBATCHES = 8, 25, 4
WHO = ("trl", "lockstep", "groups", "local", "ray")


@dataclass(frozen=True)
class Size:
    """A policy to be trained."""

    groups: int
    """Prompts of a step."""
    is_made: bool
    """Whether it is made here; else it is the default tiny policy after its warm start."""

    @property
    def samples(self) -> int:
        """Samples of a step."""
        return self.groups * SAMPLES


SIZES = {"100k": Size(16, is_made=False), "24m": Size(4, is_made=True)}


def even(response: str, **_: Any) -> float:
    """What a response of the larger model is worth."""
    return float(len(response) % 2 == 0)


def make_policy(folder: Path) -> None:
    """Write a Qwen2 with 8 layers of 256 and 32,768 tokens, with random weights, and a tokenizer of characters and made-up words."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    names = ["<pad>", "<eos>", "<unk>", *(chr(code) for code in range(32, 127))]
    names += [f"word{number} " for number in range(32768 - len(names))]
    whole = Tokenizer(WordLevel({name: place for place, name in enumerate(names)}, unk_token="<unk>"))
    whole.pre_tokenizer = Split(Regex("[\\s\\S]"), "isolated")
    whole.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=whole, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    torch.manual_seed(0)
    settings = Qwen2Config(
        vocab_size=len(names),
        hidden_size=256,
        intermediate_size=896,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    Qwen2ForCausalLM(settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def ours(who: str, steps: int, size: Size) -> dict[str, float]:
    """Seconds per step by the clock of the run, after two steps to warm up, and where they went."""
    from trimtab.config.training import Train
    from trimtab.records.run import RunDirectory
    from trimtab.train.loop import train

    backend = who if who in ("local", "ray") else "lockstep"
    settings: dict[str, Any] = {
        "steps": steps + 2,
        "backend": backend,
        "learner": {"minibatches": MINIBATCHES, "minibatch_of": "groups" if who == "groups" else "rows"},
        "evaluate": None,
        "rollout": {"groups": size.groups, "max_staleness": 0 if backend == "lockstep" else 4},
        "correction": "token-tis",
        "checkpoint": {"every": 10_000},
        "record": {"rollouts": 0.0},
    }
    with tempfile.TemporaryDirectory() as folder:
        if size.is_made:
            make_policy(Path(folder) / "policy")
            settings["model"] = {"path": str(Path(folder) / "policy")}
            settings["task"] = {"rewards": [{"function": "train:even"}]}
        config = Train.from_settings(settings)
        train(config, Path(folder) / "run")
        lines = RunDirectory.read(Path(folder) / "run").metrics()[2:]
    parts = ("time/step", "time/wait", "time/proximal", "time/train")
    return {name: statistics.fmean(line[name] for line in lines) for name in parts} | {
        "samples": size.samples,
        "rows": statistics.fmean(line["train/rows"] for line in lines),
    }


def trl(steps: int, size: Size) -> dict[str, float]:
    """Seconds per step of TRL's GRPOTrainer: four optimiser steps on one generation."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback, logging
    from trl import GRPOConfig, GRPOTrainer

    from trimtab.config.training import Model, Task, Tiny, WarmStart
    from trimtab.train.policy.model import load_pretrained
    from trimtab.train.policy.warm_start import warm_policy
    from trimtab.train.tasks import source

    torch.set_num_threads(1)
    logging.disable_progress_bar()
    task = Task()
    problems = source(task, 0)
    if size.is_made:
        with tempfile.TemporaryDirectory() as folder:
            make_policy(Path(folder))
            policy = load_pretrained(Model(path=folder))
    else:
        policy = warm_policy(Tiny(), WarmStart(), task, problems, seed=0, max_tokens=LENGTH)
    drawn = [problems.problem(index) for index in range(size.groups * (steps + 4))]
    answers = {problem.prompt: problem for problem in drawn}

    def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        if size.is_made:
            return [even(said) for said in completions]
        return [problems.score(answers[asked], said).reward for asked, said in zip(prompts, completions, strict=True)]

    marks: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % MINIBATCHES == 0:
                marks.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=size.samples // MINIBATCHES,
            steps_per_generation=MINIBATCHES,
            num_generations=SAMPLES,
            max_completion_length=LENGTH,
            max_steps=MINIBATCHES * (steps + 2),
            learning_rate=1e-4,
            adam_beta2=0.95,
            beta=0.0,
            temperature=1.0,
            logging_steps=10_000,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            gradient_checkpointing=False,
            dataloader_num_workers=0,
        )
        trainer = GRPOTrainer(
            model=policy.model,
            args=settings,
            processing_class=policy.policy.tokenizer,
            train_dataset=Dataset.from_list([{"prompt": problem.prompt} for problem in drawn]),
            reward_funcs=reward,
            callbacks=[Clock()],
        )
        trainer.train()
    gaps = [after - before for before, after in itertools.pairwise(marks[1:])]
    return {"time/step": statistics.fmean(gaps), "samples": size.samples}


def published(size: float) -> None:
    """Print what it takes to publish weights of so many GB through Ray, and for two actors of one node to read them."""
    try:
        import ray
    except ImportError:
        print("publishing through Ray: not measured, it is not installed")
        return
    import torch

    from trimtab.config.rollout import Ray
    from trimtab.train.backends.ray.cluster import Connection
    from trimtab.train.weights.objects import ObjectWeights

    count = max(1, int(size * 2**30 / 4 / 2**24))
    weights = {str(number): torch.randn(2**24) for number in range(count)}

    def read(reader: Any) -> tuple[float, float]:
        begun = time.perf_counter()
        newest = reader.newest()
        return time.perf_counter() - begun, float(newest.weights["0"][0])

    with tempfile.TemporaryDirectory() as folder:
        connection = Connection(Ray(store=3 * size + 0.2), samplers=2, log=Path(folder) / "ray.log")
        try:
            actors = [ray.remote(Reader).remote() for _ in range(2)]
            ray.get([actor.call.remote(len, []) for actor in actors])
            publisher = ObjectWeights()
            begun = time.perf_counter()
            publisher.publish(weights.items(), 1)
            put = time.perf_counter() - begun
            found = ray.get([actor.call.remote(read, publisher.reader()) for actor in actors])
            assert all(value == float(weights["0"][0]) for _, value in found)
            times = ", ".join(f"{1e3 * seconds:.0f} ms" for seconds, _ in found)
            print(
                f"publishing {size:g} GB through Ray: put {put:.2f} s; read by two actors of the node, one copy, in {times}"
            )
            publisher.close()
        finally:
            connection.close()


class Reader:
    """An actor that calls what it is given."""

    def call(self, function: Any, *given: Any) -> Any:
        """What it returns."""
        return function(*given)


def measured(who: str, steps: int, model: str) -> dict[str, float] | None:
    """One turn in a process of its own; None where it cannot run."""
    child = subprocess.run(
        [sys.executable, __file__, "--child", who, "--steps", str(steps), "--model", model],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        env=os.environ
        | {
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent)]),
        },
    )
    if child.returncode:
        print(f"{who}: not measured: {(child.stderr.strip().splitlines() or ['no message'])[-1]}")
        return None
    return json.loads(child.stdout.splitlines()[-1])


def say(model: str, turns: dict[str, list[dict[str, float]]]) -> None:
    """Print what each did in its turns, beside TRL."""
    rates = {who: [one["samples"] / one["time/step"] for one in found] for who, found in turns.items() if found}
    speed = {who: statistics.median(found) for who, found in rates.items()}
    print(f"{model:10} {'samples/s':>10}  ratio to TRL: median  best  spread")
    for who, found in rates.items():
        ratios = "–"
        if "trl" in rates:
            ratios = f"{speed[who] / speed['trl']:20.2f}× {max(found) / max(rates['trl']):4.2f}×"
        print(f"{who:10} {speed[who]:10.0f}  {ratios}  {min(found):.0f}–{max(found):.0f}")
    if "ray" in speed and "local" in speed:
        print(f"ray against local: {speed['ray'] / speed['local']:.2f}×")
    if "local" in speed and "lockstep" in speed:
        print(f"local against lockstep: {speed['local'] / speed['lockstep']:.2f}×")
    if turns.get("lockstep"):
        one = turns["lockstep"][-1]
        rows = f"{one['rows']:.0f} of {one['samples']:.0f} rows had a gradient"
        rest = one["time/step"] - one["time/wait"] - one["time/proximal"] - one["time/train"]
        print(
            f"where a lockstep step goes: sampling and scoring {one['time/wait'] * 1e3:.0f} ms, "
            f"proximal {one['time/proximal'] * 1e3:.0f} ms, "
            f"updates {one['time/train'] * 1e3:.0f} ms, the rest {rest * 1e3:.0f} ms; {rows}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--who", nargs="*", choices=WHO, default=WHO, help="which of them; all if left out")
    parser.add_argument("--model", choices=SIZES, default="100k", help="which policy")
    parser.add_argument("--publish", type=float, default=1.0, help="GB of weights to publish through Ray; 0: none")
    parser.add_argument("--child", choices=WHO, help=argparse.SUPPRESS)
    given = parser.parse_args()
    steps = given.steps or (4 if given.quick else 12)
    if given.child:
        size = SIZES[given.model]
        print(json.dumps(trl(steps, size) if given.child == "trl" else ours(given.child, steps, size)))
        return
    if given.publish and "ray" in given.who:
        published(given.publish)
    turns: dict[str, list[dict[str, float]]] = {who: [] for who in given.who}
    for _ in range(given.rounds or (2 if given.quick else 5)):
        for who, found in turns.items():
            if (one := measured(who, steps, given.model)) is not None:
                found.append(one)
    say(given.model, turns)


if __name__ == "__main__":
    main()
