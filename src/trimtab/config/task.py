"""Where prompts come from, and what an answer is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from trimtab.config.base import Config, Count, Flag, Number, Positive, excerpt
from trimtab.errors import ConfigError


class Reward(Config):
    """One reward: a verifier, or a function of the user's own."""

    verifier: Literal["exact", "numeric", "regex", "math"] | None = Field(
        default=None,
        description="exact: the response is the answer. numeric: its last number is. regex: `pattern` finds it. math: math-verify.",
    )
    function: str | None = Field(
        default=None,
        description="`module:function`, called with prompt, response, answer and the row's other fields; returns a number.",
    )
    executes: Flag = Field(
        default=False,
        description="Whether the function runs code from the response. Then each call has a process of its own, forked for it, without "
        "the network, and ended with all it began; what a call changes or keeps, the next does not see.",
    )
    pattern: str | None = Field(default=None, description="Regular expression whose first group is compared (regex).")
    weight: Number = Field(default=1.0, description="What it counts in the sum of rewards.")
    name: str | None = Field(default=None, description="How metrics call it. If not set: the verifier or function.")

    @model_validator(mode="after")
    def _possible(self) -> Reward:
        if (self.verifier is None) == (self.function is None):
            raise ConfigError("Reward needs either verifier or function, got both or neither. Name one.")
        if (self.verifier == "regex") != (self.pattern is not None):
            raise ConfigError("Reward needs pattern with verifier regex, and only with it. Add or drop it.")
        if self.executes and self.function is None:
            raise ConfigError("Reward needs function with executes, got a verifier. Verifiers run no code; drop it.")
        if self.function is not None and self.function.count(":") != 1:
            raise ConfigError(f"Reward needs function as module:function, got {excerpt(self.function)}.")
        return self

    @property
    def called(self) -> str:
        """How metrics call it."""
        return self.name or self.verifier or str(self.function).partition(":")[2]


class Task(Config):
    """Where prompts come from and what an answer is worth."""

    name: str = Field(
        default="chain",
        description="chain, ledger, sort, reverse, arithmetic; `gym:NAME`, a task of reasoning-gym; or `file`, with `path`.",
    )
    options: Mapping[str, Any] = Field(
        default={},
        description="Options of the task itself, such as `size: 24` (chain) or those of a reasoning-gym task.",
    )
    path: str | None = Field(
        default=None, description="JSONL, JSON, CSV or parquet file, or hub dataset id (name: file)."
    )
    split: str = Field(default="train", description="Split of a hub dataset.")
    held_out: str | None = Field(
        default=None, description="File of held-out problems. If not set: the last ones of `path`, never trained on."
    )
    prompt: str = Field(default="question", description="Field of the file that holds the prompt.")
    answer: str = Field(default="answer", description="Field of the file that holds the answer.")
    template: str | None = Field(
        default=None, description="Text with `{prompt}` around each prompt. If not set: the prompt as it stands."
    )
    chat: Flag = Field(default=False, description="Whether prompts go through the tokenizer's chat template.")
    system: str | None = Field(default=None, description="System message of the chat template.")
    rewards: tuple[Reward, ...] = Field(
        default=(), description="Their weighted sum is the reward; none: the task's own."
    )
    timeout: Positive = Field(
        default=10.0,
        description="Seconds a verifier may take for one sample before it counts as failed; a function of yours has five times as "
        "many more in all, for what its first calls load.",
    )
    workers: Count = Field(
        default=1,
        description="Responses scored at once by verifiers that have processes of their own (functions of yours, tasks that run code): "
        "each worker has its own processes. The learner does not wait for them.",
    )
    allow_eval: Flag = Field(
        default=False,
        description="Whether a task of reasoning-gym may run responses as Python code, which some do to score them: in a process forked "
        "for each, without keys and tokens of the environment and without the network, but with your rights to files.",
    )
