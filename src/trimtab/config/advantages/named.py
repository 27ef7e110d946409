"""Advantage estimators by name, each made beforehand: nothing is validated while a step is compiled.

Importing this makes all of them, which what only reads settings has no use for.
"""

from __future__ import annotations

from trimtab.config.advantages import ESTIMATORS, Estimator, estimator
from trimtab.config.base import of_kind

NAMED = {
    kind: each()
    for kind, each in ESTIMATORS.items()
    if not any(field.is_required() for field in each.model_fields.values())
}


def estimator_from(value: object) -> Estimator:
    """An estimator as it is, or the one of that name."""
    if isinstance(value, str):
        return NAMED[value] if value in NAMED else estimator(value)
    return of_kind(Estimator, value, "advantages needs an estimator or its name", 'trimtab.Grpo() or "grpo"')
