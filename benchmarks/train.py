"""Samples trained per second: our back-ends and TRL's GRPOTrainer on the same model, prompts, lengths and group size.

    python benchmarks/train.py            # 5 rounds of 12 steps each: a few minutes
    python benchmarks/train.py --quick    # 2 rounds of 4 steps

A step is 128 samples (16 prompts × 8) of the default task, answered by the default tiny policy, and four optimiser updates of 32
samples each, drawn from all groups as TRL draws them; the log-probs of the weights at the start of the step are worked out by a
pass of their own on both sides. `groups` is lockstep with minibatches of whole groups, whose prompts are worked out once. They take
turns in one run, each in a process of its own with one thread (`local` has two: learner and sampler), and the ratio is that of
the medians. TRL is measured where it is installed (`make bench` installs it); it generates with `model.generate`. `ray` is `local` with its
sampler as an actor of a cluster on this machine, where Ray is installed. Before that, weights of 1 GB are put into Ray's object store
and read by two actors of one node (`--publish GB`; 0: not).
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
from pathlib import Path
from typing import Any

GROUPS, SAMPLES, LENGTH, MINIBATCHES = 16, 8, 25, 4
WHO = ("trl", "lockstep", "groups", "local", "ray")


def ours(who: str, steps: int) -> dict[str, float]:
    """Seconds per step by the clock of the run, after two steps to warm up, and where they went."""
    from trimtab.config.training import Train
    from trimtab.records.run import RunDirectory
    from trimtab.train.loop import train

    backend = who if who in ("local", "ray") else "lockstep"
    config = Train.from_settings(
        {
            "steps": steps + 2,
            "backend": backend,
            "learner": {"minibatches": MINIBATCHES, "minibatch_of": "groups" if who == "groups" else "rows"},
            "evaluate": None,
            "rollout": {"max_staleness": 0 if backend == "lockstep" else 4},
            "correction": "token-tis",
            "checkpoint": {"every": 10_000},
            "record": {"rollouts": 0.0},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder) / "run")
        lines = RunDirectory.read(Path(folder) / "run").metrics()[2:]
    parts = ("time/step", "time/wait", "time/proximal", "time/train")
    return {name: statistics.fmean(line[name] for line in lines) for name in parts} | {
        "samples": GROUPS * SAMPLES,
        "rows": statistics.fmean(line["train/rows"] for line in lines),
    }


def trl(steps: int) -> dict[str, float]:
    """Seconds per 128 samples of TRL's GRPOTrainer: four optimiser steps on one generation."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback, logging
    from trl import GRPOConfig, GRPOTrainer

    from trimtab.config.training import Task, Tiny, WarmStart
    from trimtab.train.policy.warm_start import warm_policy
    from trimtab.train.tasks import source

    torch.set_num_threads(1)
    logging.disable_progress_bar()
    task = Task()
    problems = source(task, 0)
    policy = warm_policy(Tiny(), WarmStart(), task, problems, seed=0, max_tokens=LENGTH)
    drawn = [problems.problem(index) for index in range(GROUPS * (steps + 4))]
    answers = {problem.prompt: problem for problem in drawn}

    def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
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
            per_device_train_batch_size=GROUPS * SAMPLES // MINIBATCHES,
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
    return {"time/step": statistics.fmean(gaps), "samples": GROUPS * SAMPLES}


def published(size: float) -> None:
    """Print what it takes to publish weights of so many GB through Ray, and for two actors of one node to read them."""
    try:
        import ray
    except ImportError:
        print("publishing through Ray: not measured, it is not installed")
        return
    import torch

    from trimtab.config.ray import Ray
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


def measured(who: str, steps: int) -> dict[str, float] | None:
    """One turn in a process of its own; None where it cannot run."""
    child = subprocess.run(
        [sys.executable, __file__, "--child", who, "--steps", str(steps)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    if child.returncode:
        print(f"{who}: not measured: {(child.stderr.strip().splitlines() or ['no message'])[-1]}")
        return None
    return json.loads(child.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--who", nargs="*", choices=WHO, default=WHO, help="which of them; all if left out")
    parser.add_argument("--publish", type=float, default=1.0, help="GB of weights to publish through Ray; 0: none")
    parser.add_argument("--child", choices=WHO, help=argparse.SUPPRESS)
    given = parser.parse_args()
    steps = given.steps or (4 if given.quick else 12)
    if given.child:
        print(json.dumps(trl(steps) if given.child == "trl" else ours(given.child, steps)))
        return
    if given.publish and "ray" in given.who:
        published(given.publish)
    turns: dict[str, list[dict[str, float]]] = {who: [] for who in given.who}
    for _ in range(given.rounds or (2 if given.quick else 5)):
        for who, found in turns.items():
            if (one := measured(who, steps)) is not None:
                found.append(one)
    speed = {
        who: statistics.median(one["samples"] / one["time/step"] for one in found)
        for who, found in turns.items()
        if found
    }
    print(f"{'':10} {'samples/s':>10}  ratio to TRL  spread")
    for who, value in speed.items():
        spread = [one["samples"] / one["time/step"] for one in turns[who]]
        ratio = f"{value / speed['trl']:.2f}×" if "trl" in speed else "–"
        print(f"{who:10} {value:10.0f}  {ratio:>12}  {min(spread):.0f}–{max(spread):.0f}")
    if "ray" in speed and "local" in speed:
        print(f"ray against local: {speed['ray'] / speed['local']:.2f}×")
    if "local" in speed and "lockstep" in speed:
        print(f"local against lockstep: {speed['local'] / speed['lockstep']:.2f}×")
    if turns.get("lockstep"):
        one = turns["lockstep"][-1]
        rest = one["time/step"] - one["time/wait"] - one["time/proximal"] - one["time/train"]
        print(
            f"where a lockstep step goes: sampling and scoring {one['time/wait'] * 1e3:.0f} ms, "
            f"proximal {one['time/proximal'] * 1e3:.0f} ms, "
            f"updates {one['time/train'] * 1e3:.0f} ms, the rest {rest * 1e3:.0f} ms; {one['rows']:.0f} of 128 rows had a gradient"
        )


if __name__ == "__main__":
    main()
