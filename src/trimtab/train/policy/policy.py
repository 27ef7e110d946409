"""What the run knows of its policy without its weights: how it reads prompts, writes responses and ends them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from trimtab.config.training import Task
from trimtab.errors import ConfigError
from trimtab.train.messages import Group, Ints, Problem


@dataclass(frozen=True, eq=False)
class Policy:
    """A tokenizer, the tokens that end a response, and the architecture. The weights are the learner's."""

    tokenizer: PreTrainedTokenizerBase
    stop: tuple[int, ...]
    """Tokens that end a response."""
    architecture: PretrainedConfig
    vocabulary: int
    """Token ids that the model knows: 0 … vocabulary − 1."""

    def prompt(self, task: Task, problem: Problem) -> Ints:
        """The tokens of a problem's prompt, through the chat template if the task asks for it."""
        return self.prompts(task, [problem])[0]

    def prompts(self, task: Task, problems: Sequence[Problem]) -> list[Ints]:
        """Those of several problems; together they cost the tokenizer little more than one."""
        if not problems:
            return []
        if task.chat:
            found: list[Any] = [self._chat(task, problem) for problem in problems]
        else:
            found = cast("Any", self.tokenizer([problem.prompt for problem in problems])).input_ids
        for ids, problem in zip(found, problems, strict=True):
            if not ids:
                raise ConfigError(
                    f"Problem {problem.id!r} needs a prompt with tokens, got none. Check the task's file."
                )
        return [np.asarray(ids, dtype=np.int32) for ids in found]

    def replies(self, task: Task, problem: Problem) -> tuple[Ints, ...]:
        """The tokens of what the environment says after each turn of the policy but the last."""
        if not problem.replies:
            return ()
        if task.chat:
            raise ConfigError(
                f"Problem {problem.id!r} needs task.chat=false, got replies between turns and a chat template. Templates have no "
                "way to say where a reply begins in the middle of a response."
            )
        found: list[Any] = cast("Any", self.tokenizer(list(problem.replies))).input_ids
        if not all(found):
            raise ConfigError(f"Problem {problem.id!r} needs replies with tokens, got an empty one. Check the task.")
        return tuple(np.asarray(ids, dtype=np.int32) for ids in found)

    def _chat(self, task: Task, problem: Problem) -> Any:
        if not self.tokenizer.chat_template:
            raise ConfigError(
                "task.chat needs a tokenizer with a chat template, got one without. Set task.chat=false, or take a model "
                "that was trained to chat."
            )
        system = [] if task.system is None else [{"role": "system", "content": task.system}]
        messages = [*system, {"role": "user", "content": problem.prompt}]
        try:
            return self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        except Exception as error:  # a template is a program of the model's author and raises what it likes
            raise ConfigError(
                f"task.chat needs a chat template that takes {' and '.join(each['role'] for each in messages)} messages, "
                f"got a problem: {error_line(error)}. Mend the template, or set task.chat=false."
            ) from error

    @property
    def travels(self) -> bool:
        """Whether another process can read its tokenizer: one that came with code of its own may not be found there."""
        return type(self.tokenizer).__module__.startswith("transformers.")

    def texts_of(self, group: Group) -> tuple[str, ...]:
        """The responses of a group as text; decoded here if its sampler did not.

        What the environment wrote is left out, so that no reward is paid for it; a line break stands between two turns.
        """
        if group.texts:
            return group.texts
        turns = [sample.turns for sample in group.samples]
        texts = iter(self.texts([each for some in turns for each in some]))
        return tuple("\n".join(next(texts) for _ in some) for some in turns)

    def texts(self, responses: Sequence[Ints]) -> list[str]:
        """Responses as text, without the tokens that ended them."""
        ids = [tokens[:-1] if len(tokens) and int(tokens[-1]) in self.stop else tokens for tokens in responses]
        plain: Any = [each.tolist() for each in ids]
        return self.tokenizer.batch_decode(plain, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def positions_of(architecture: PretrainedConfig) -> int | None:
    """How many tokens a model can place; None where it sets no limit."""
    return getattr(architecture.get_text_config(), "max_position_embeddings", None)


def error_line(error: Exception) -> str:
    """What a library raised, in one line."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = f"{type(error).__name__}: {line}" if line else type(error).__name__
    return (text if len(text) <= 300 else f"{text[:299]}…").rstrip(".:")
