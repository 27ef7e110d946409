"""What a plug-in is asked to do inside another trainer: the keys of a `trimtab train` file that concern a step, each optional."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import Field, field_validator

from trimtab.config.advantages import AnyEstimator, Shaping
from trimtab.config.base import Config, excerpt, kind_of_name, term_of_coefficient, with_named_keys
from trimtab.config.correction import Correction
from trimtab.config.files import is_file_name, plain_settings
from trimtab.config.losses import EntropyBonus, KlPenalty, Loss, Objective, Reduction, reduction_of_mode
from trimtab.config.presets import correction_of_name
from trimtab.errors import ConfigError


class Plan(Config):
    """One step of training, as far as trimtab is asked to do it. What is left out stays the framework's own."""

    correction: Correction | None = Field(
        default=None,
        description="Off-policy correction: a preset's name, `preset: NAME` with its parameters, `off`, or its fields.",
    )
    loss: Loss | None = Field(default=None, description="The policy loss: its kind, or its settings with a kind.")
    reduction: Reduction | None = Field(default=None, description="From tokens to one number.")
    kl: KlPenalty | None = Field(default=None, description="KL to the reference in the loss: settings or coefficient.")
    entropy_bonus: EntropyBonus | None = Field(default=None, description="Entropy bonus: settings or coefficient.")
    advantage: AnyEstimator | None = Field(default=None, description="The advantage estimator.")
    shaping: Shaping | None = Field(default=None, description="From rewards to trained rewards; needs `advantage`.")
    metrics: Literal["few", "all"] = Field(
        default="few", description="How many metrics reach the framework's logger, under `trimtab/`."
    )
    record: str | None = Field(
        default=None, description="Folder to which batches are written with all log-probs; none if not set."
    )

    @classmethod
    def of(cls, source: object) -> Plan:
        """The plan that a mapping, a preset's name, a correction or the path of a YAML file describes; nothing: an empty plan."""
        if source is None or isinstance(source, Plan):
            return source or cls()
        if isinstance(source, Correction):
            return cls(correction=source)
        if isinstance(source, str | os.PathLike):
            return _of_name(os.fspath(cast("str | os.PathLike[str]", source)))
        if source is False:  # how YAML 1.1 reads a bare `off`
            return cls.from_settings({"correction": source})
        if not isinstance(source, Mapping):
            raise ConfigError(
                f"A plan needs settings, a preset's name or the path of a YAML file, got {excerpt(source)}. "
                "Write for example geo-rs+token-tis."
            )
        settings = with_named_keys(cast("Mapping[object, Any]", source))
        return cls.from_settings({"correction": settings} if "preset" in settings else settings)

    @property
    def asked(self) -> tuple[str, ...]:
        """The keys that were given a value, `metrics` left out: what a hook has to honour."""
        return tuple(name for name in type(self).model_fields if name != "metrics" and getattr(self, name) is not None)

    def doubts(self) -> list[str]:
        """A loss beside a correction or a reduction that it does not go with."""
        if self.loss is None:
            return []
        reduction = self.reduction or Reduction(mode=cast("Objective", self.loss).own_reduction)
        return self.loss.doubts_beside(self.correction, reduction)

    _short_correction = field_validator("correction", mode="before")(correction_of_name)
    _short_kinds = field_validator("loss", "advantage", mode="before")(kind_of_name)
    _short_terms = field_validator("kl", "entropy_bonus", mode="before")(term_of_coefficient)
    _short_reduction = field_validator("reduction", mode="before")(reduction_of_mode)


def _of_name(name: str) -> Plan:
    if not is_file_name(name):
        return Plan.from_settings({"correction": name})
    try:
        return Plan.of(plain_settings(name))
    except ConfigError as error:
        if str(error).startswith(name):
            raise
        raise type(error)(f"{name}: {error}") from None
