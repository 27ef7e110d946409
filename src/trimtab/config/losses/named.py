"""Losses by name, each made beforehand: nothing is validated while a step is compiled.

Importing this makes all of them, which what only reads settings has no use for.
"""

from __future__ import annotations

from trimtab.config.losses import LOSSES, Objective, loss_from

NAMED: dict[str, Objective] = {kind: each() for kind, each in LOSSES.items()}


def loss_named(name: str) -> Objective:
    """The loss of that name with its defaults."""
    return NAMED[name] if name in NAMED else loss_from(name)
