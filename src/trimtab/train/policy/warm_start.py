"""A tiny policy taught by demonstrations until it gets some answers right: where reinforcement learning can begin."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from trimtab.config.training import Task, Tiny, WarmStart
from trimtab.errors import RunError
from trimtab.train.devices import to_device
from trimtab.train.engines.hf.engine import HfEngine
from trimtab.train.evaluate import Evaluator, seed_of
from trimtab.train.messages import Group
from trimtab.train.policy.model import Pretrained
from trimtab.train.policy.policy import Policy
from trimtab.train.policy.tiny import tiny_policy
from trimtab.train.tasks.judge import Judge
from trimtab.train.tasks.protocol import Source

FIRST = 10**12
"""Number of the first problem demonstrated: far from those a run trains on."""
BETWEEN = 25
"""Steps between looks at the accuracy."""

Progress = Callable[[int, float | None], None]
"""Told the step and, where it was measured, the accuracy."""


def warm_policy(
    size: Tiny,
    config: WarmStart | None,
    task: Task,
    source: Source,
    *,
    seed: int,
    max_tokens: int,
    progress: Progress = lambda step, accuracy: None,
) -> Pretrained:
    """The tiny policy a run begins with, from the cache if it was made before."""
    assert source.characters is not None
    longest = max(len(source.problem(index).prompt) for index in range(8)) + max_tokens
    positions = 1 << max(longest - 1, 63).bit_length()
    made = tiny_policy(size, source.characters, positions, seed_of(seed, "weights"))
    if config is None:
        return made
    task = task.but(rewards=())  # judged by the task's own, so that runs with other rewards begin alike
    told = [each.model_dump(mode="json") for each in (size, config, task)]
    place = cache() / "warm-starts" / f"{_fingerprint([*_makers(), *told, seed, max_tokens])}.safetensors"
    if not _fill(made.model, place):
        _teach(made, config, task, source, seed, max_tokens, progress)
        _save(made.model, place)
    return made


def cache() -> Path:
    """Where warm starts are kept: TRIMTAB_CACHE, or the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("TRIMTAB_CACHE") or f"{base}/trimtab").expanduser()


def _teach(
    made: Pretrained, config: WarmStart, task: Task, source: Source, seed: int, max_tokens: int, progress: Progress
) -> None:
    """Supervised steps on fresh demonstrations until the sampled accuracy is reached."""
    rng = random.Random(f"{seed}/demonstrations")
    policy, model = made.policy, made.model
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    problems = [source.problem(FIRST - 1 - place) for place in range(256)]
    with Judge(task, source) as judge:
        engine = HfEngine(model, stop=policy.stop)  # whatever engine the run asks for: all begin alike
        look = Evaluator.of(policy, judge, task, problems, max_tokens=max_tokens, seed=seed)
        accuracy = 0.0
        for step in range(1, config.max_steps + 1):
            first = FIRST + step * config.batch
            made_up = _demonstrations(policy, task, source, range(first, first + config.batch), config.slips, rng)
            ids, targets = (to_device(each, model.device) for each in made_up)
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
            optimizer.zero_grad()
            cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100).backward()
            optimizer.step()
            if step % BETWEEN:
                progress(step, None)
                continue
            engine.load(model.state_dict(), step)
            engine.submit(look.jobs)
            groups: list[Group] = []
            while engine.pending:
                groups += engine.step()
            accuracy = look.accuracy(groups)
            progress(step, accuracy)
            if accuracy >= config.target:
                return
    raise RunError(
        f"The warm start needs a sampled accuracy of {config.target:g}, got {accuracy:.2f} after {config.max_steps} steps. "
        "Lower model.warm_start.target, allow more max_steps, or make the task smaller or the model larger."
    )


def _demonstrations(
    policy: Policy, task: Task, source: Source, numbers: range, slips: float, rng: random.Random
) -> tuple[Tensor, Tensor]:
    """Prompts with worked responses as ids, and what each position should predict: −100 where the policy does not write."""
    rows: list[list[list[int]]] = []
    for number in numbers:
        problem = source.problem(number)
        given = [policy.prompt(task, problem), *policy.replies(task, problem)]
        shown = source.demonstration(problem, slips, rng)
        turns: Any = policy.tokenizer(shown.split("\n") if problem.replies else [shown]).input_ids
        rows.append(
            [part for said, turn in zip(given, turns, strict=True) for part in (said.tolist(), [*turn, policy.stop[0]])]
        )
    width = max(sum(map(len, row)) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    targets = torch.full((len(rows), width - 1), -100)
    for place, row in enumerate(rows):
        end = 0
        for is_own, part in zip(cycle((False, True)), row, strict=False):
            begin, end = end, end + len(part)
            ids[place, begin:end] = torch.tensor(part)
            if is_own:
                targets[place, begin - 1 : end - 1] = ids[place, begin:end]
    return ids, targets


MAKERS = ("devices.py", "evaluate.py", "messages.py", "policy", "engines/hf", "tasks")
"""What of train makes a warm start: a change elsewhere leaves the cached ones as they are."""


def _makers() -> list[str]:
    """What makes weights out of settings: cached ones that other code or libraries made are not those a run would make."""
    folder = Path(__file__).parents[1]
    files = [file for each in MAKERS for file in sorted((folder / each).rglob("*.py")) or [folder / each]]
    code = b"".join(file.read_bytes() for file in files)
    return [hashlib.blake2b(code, digest_size=12).hexdigest(), torch.__version__, transformers.__version__]


def _fingerprint(told: object) -> str:
    return hashlib.blake2b(json.dumps(told, sort_keys=True, default=str).encode(), digest_size=12).hexdigest()


def _fill(model: PreTrainedModel, place: Path) -> bool:
    """Whether the cache had weights that fit; a file that cannot be read is made anew."""
    try:
        model.load_state_dict(load_file(place))
    except (OSError, SafetensorError, RuntimeError):
        return False
    return True


def _save(model: PreTrainedModel, place: Path) -> None:
    """Into the cache, whole or not at all; a cache that cannot be written costs only time."""
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        room = Path(tempfile.mkdtemp(dir=place.parent))
    except OSError:
        return
    try:
        save_file(weights, room / "weights")
        os.replace(room / "weights", place)
    except (OSError, SafetensorError):
        return
    finally:
        shutil.rmtree(room, ignore_errors=True)
