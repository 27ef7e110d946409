"""How losses per token become one number."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from trimtab.config.base import Config, Number
from trimtab.errors import ConfigError

Mode = Literal[
    "token-mean",
    "token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
    "prompt-mean",
]


class Reduction(Config):
    """How losses per token become one number. Sequences and prompts without tokens never count."""

    mode: Mode = Field(
        description="token-mean: Σ / tokens. token-sum: Σ. seq-mean-token-mean: mean over sequences of the mean over tokens. "
        "seq-mean-token-sum: Σ / sequences. …-norm: also / constant. prompt-mean: mean over prompts of the mean over their tokens.",
    )
    constant: Number | None = Field(
        default=None, gt=0, description="A divisor that never changes; for …-norm (needed) and token-sum."
    )

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, settings: Any) -> Any:
        return {"mode": settings} if isinstance(settings, str) else settings

    @model_validator(mode="after")
    def _possible(self) -> Reduction:
        if self.mode == "seq-mean-token-sum-norm" and self.constant is None:
            raise ConfigError(
                "Reduction seq-mean-token-sum-norm needs a constant, got none. Use the longest answer allowed: the width "
                "of a batch would make the step depend on how it is split."
            )
        if self.constant is not None and self.mode not in ("seq-mean-token-sum-norm", "token-sum"):
            raise ConfigError(f"Reduction {self.mode} needs no constant, got {self.constant:g}. Drop it.")
        return self

    @classmethod
    def from_settings(cls, settings: object) -> Reduction:
        """The reduction that a name or plain settings describe."""
        return super().from_settings({"mode": settings} if isinstance(settings, str) else settings)


REDUCTIONS: dict[str, Reduction] = {
    mode: Reduction(mode=mode) for mode in get_args(Mode) if mode != "seq-mean-token-sum-norm"
}
"""Every reduction that its name says whole."""
