"""From settings to the parts of a run, put together and not begun."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import nn
from transformers import PreTrainedModel

from trimtab.config.training import Train
from trimtab.errors import ConfigError
from trimtab.train.backends.protocol import Backend
from trimtab.train.backends.table import backend_of
from trimtab.train.display import Display
from trimtab.train.engines.table import EngineRecipe
from trimtab.train.evaluate import Evaluator, seed_of
from trimtab.train.judging import JudgePool
from trimtab.train.learner.learner import Learner
from trimtab.train.learner.team import brief_others, learner_ranks
from trimtab.train.lengths import leave_out_long_rows, prompt_limit, short_enough
from trimtab.train.memory import keep_freed_memory
from trimtab.train.messages import Job, Problem, Sampling
from trimtab.train.policy.model import DTYPES, Pretrained, load_pretrained, load_teacher
from trimtab.train.policy.policy import Policy
from trimtab.train.policy.warm_start import warm_policy
from trimtab.train.provenance import World, world_of
from trimtab.train.tasks import Source, check_replies, source


@dataclass(eq=False)
class Parts:
    """What a run is made of. Each owns what is its own: the learner its model, the back-end its samplers."""

    source: Source
    judge: JudgePool
    policy: Policy
    world: World
    learner: Learner
    backend: Backend
    evaluator: Evaluator | None
    make: Callable[[Sequence[int]], list[tuple[Problem, Job]]]
    """The problem of each number and the job to sample it; the same whenever it is made, and whatever is made with it."""
    limit: int | None = None
    """Tokens that a prompt has to stay below; None where nothing sets a limit."""
    notes: tuple[str, ...] = ()
    """What the user should know about the task's prompts."""


def build(config: Train, folder: Path, display: Display, stack: ExitStack, stop: Callable[[], bool]) -> Parts:
    """The parts of a run; `stack` ends what has to be ended, `stop` says whether the run was asked to."""
    problems = source(config.task, config.seed)
    check_replies(config.rollout.engine, problems)
    max_tokens = longest(config, problems)
    judge = stack.enter_context(_judges(config, problems, stop))
    start = pretrained_of(config, problems, max_tokens, display)
    limit = prompt_limit(start.policy.architecture, config.rollout)
    notes = leave_out_long_rows(
        config.task, problems, start.policy, limit, config.evaluate.problems if config.evaluate else 0
    )
    reference = None if config.kl is None else pretrained_of(config, problems, max_tokens, display).model
    teacher = _teacher(config, start.policy, lambda: pretrained_of(config, problems, max_tokens, display).model)
    world = world_of(config, problems, start, teacher)
    policy, learner = start.policy, _learner(config, (start.model, reference, teacher), folder, stack)
    recipe = EngineRecipe.of(policy, config.model.dtype, config.rollout, evaluates=config.evaluate is not None)
    backend = backend_of(config, recipe, folder)
    stack.callback(backend.close)
    stack.callback(judge.close)  # first: judges may be guests of the back-end's cluster
    return Parts(
        source=problems,
        judge=judge,
        policy=policy,
        world=world,
        learner=learner,
        backend=backend,
        evaluator=_evaluator(config, problems, policy, judge, max_tokens, limit),
        make=partial(jobs_of, config, problems, policy, max_tokens),
        limit=limit,
        notes=tuple(notes),
    )


def _judges(config: Train, problems: Source, stop: Callable[[], bool]) -> JudgePool:
    """Beside the learner, or as actors of the cluster."""
    if not config.ray.verifiers:
        return JudgePool.of(config.task, problems, stop)
    from trimtab.train.backends.ray.cluster import check_installed
    from trimtab.train.backends.ray.judge import RayJudge

    check_installed()
    return JudgePool(RayJudge.several(config.ray.verifiers, config.task, config.seed, stop))


def _teacher(config: Train, policy: Policy, start: Callable[[], PreTrainedModel]) -> PreTrainedModel | None:
    """Whom the run follows: the model of a folder, or a copy of the policy as it begins."""
    if config.teacher is None:
        return None
    return start() if config.teacher.path is None else load_teacher(config.teacher, policy)


def _learner(
    config: Train,
    models: tuple[PreTrainedModel, PreTrainedModel | None, PreTrainedModel | None],
    folder: Path,
    stack: ExitStack,
) -> Learner:
    """The learner, on one process or on several; the others are let go at a good end, and fall with this one at any other."""
    model, reference, teacher = models
    ranks = stack.enter_context(learner_ranks(config.learner, folder))
    with ranks.watched():
        brief_others(config, models, ranks)
        learner = Learner(config, model, reference, ranks, teacher=teacher)

    def let_go(kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            learner.close()

    stack.push(let_go)
    return learner


def settle_process(threads: int) -> None:
    """How this process uses the machine: so many threads, and memory that it keeps."""
    torch.set_num_threads(threads)
    keep_freed_memory()


def _evaluator(
    config: Train, problems: Source, policy: Policy, judge: JudgePool, max_tokens: int, limit: int | None
) -> Evaluator | None:
    if config.evaluate is None:
        return None
    asked = short_enough(config.task, policy, problems.held_out(config.evaluate.problems), limit)
    if not asked:
        raise ConfigError(
            f"evaluate needs held-out problems with prompts shorter than {limit} tokens, got none. Set evaluate=null to go without."
        )
    return Evaluator.of(
        policy,
        judge,
        config.task,
        asked,
        max_tokens=max_tokens,
        seed=config.seed,
        temperature=config.evaluate.temperature,
        top_k=config.evaluate.top_k,
        top_p=config.evaluate.top_p,
    )


def jobs_of(
    config: Train, problems: Source, policy: Policy, max_tokens: int, numbers: Sequence[int]
) -> list[tuple[Problem, Job]]:
    """The problem of each number, and the job to sample it."""
    rollout = config.rollout
    sampling = Sampling(rollout.temperature, rollout.top_k, rollout.top_p)
    drawn = [problems.problem(number) for number in numbers]
    made: list[tuple[Problem, Job]] = []
    for number, problem, prompt in zip(numbers, drawn, policy.prompts(config.task, drawn), strict=True):
        seed = seed_of(config.seed, "group", number)
        asked = Job(
            number,
            prompt,
            rollout.samples,
            seed,
            max_tokens,
            sampling,
            head=rollout.head,
            head_size=rollout.head_size,
            replies=policy.replies(config.task, problem),
        )
        made.append((problem, asked))
    return made


def longest(config: Train, task: Source) -> int:
    """The longest response allowed."""
    found = config.rollout.max_tokens or task.max_tokens
    if found is None:
        raise ConfigError("rollout needs max_tokens, got none. The task does not say how long a response may be.")
    return found


def pretrained_of(config: Train, task: Source, max_tokens: int, display: Display) -> Pretrained:
    """The policy the run begins with."""
    if config.model.path is not None:
        torch.manual_seed(seed_of(config.seed, "weights"))  # for random weights
        return load_pretrained(config.model)
    if task.characters is None:
        raise ConfigError(
            f"Task {config.task.name!r} needs a model that reads any text, got none. Name one with model.path=FOLDER."
        )
    made = warm_policy(
        config.model.tiny,
        config.model.warm_start,
        config.task,
        task,
        seed=config.seed,
        max_tokens=max_tokens,
        progress=display.warm_start,
    )
    cast("nn.Module", made.model).to(DTYPES[config.model.dtype])
    return made
