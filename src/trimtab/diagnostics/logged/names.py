"""`logged`: from our metrics to a framework's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from trimtab.core.observe import Metrics
from trimtab.diagnostics.logged import (
    areal,
    nemo_rl,
    open_instruct,
    openrlhf,
    prime_rl,
    roll,
    skyrl,
    slime,
    trl,
    verl,
)
from trimtab.diagnostics.logged.seen import Descended, Seen
from trimtab.dialects.reading import Reading
from trimtab.errors import InputError
from trimtab.losses.metrics import PolicyMetrics

CORRECTIONS: dict[str, Callable[[Seen], dict[str, Tensor]]] = {
    "verl": verl.correction,
    "areal": areal.correction,
    "skyrl": skyrl.correction,
    "trl": trl.trl_correction,
    "ms-swift": trl.swift_correction,
    "openrlhf": openrlhf.correction,
    "slime": slime.correction,
    "nemo-rl": nemo_rl.correction,
    "roll": roll.correction,
    "open-instruct": open_instruct.correction,
    "prime-rl": prime_rl.correction,
}
"""Framework → its scalars of a correction."""

LOSSES: dict[str, Callable[[Descended], dict[str, Tensor]]] = {
    "verl": verl.loss,
    "areal": areal.loss,
    "skyrl": skyrl.loss,
    "trl": trl.trl_loss,
    "ms-swift": trl.swift_loss,
    "openrlhf": openrlhf.loss,
    "nemo-rl": nemo_rl.loss,
}
"""Framework → its scalars of a loss."""


@torch.no_grad()
def logged(reading: Reading, metrics: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the framework would log, from the metrics of `correct` or of `policy_loss` on the same rows.

    As the frameworks compute them: of the rows at hand, on one rank. Nothing for a batch without tokens.
    """
    if isinstance(metrics, Metrics):
        return (
            CORRECTIONS[reading.framework](Seen(metrics.trace, reading.logged_kl))
            if metrics.trace.batch.valid.numel()
            else {}
        )
    if not isinstance(metrics, PolicyMetrics):
        raise InputError(
            f"logged needs the metrics of correct or policy_loss, got {type(metrics).__name__}. Pass them as they came."
        )
    if not metrics.terms.batch.valid.numel():
        return {}
    seen = Seen(metrics.correction.trace, reading.logged_kl) if isinstance(metrics.correction, Metrics) else None
    found = {} if seen is None else CORRECTIONS[reading.framework](seen)
    if reading.loss is None or reading.framework not in LOSSES:
        return found
    descended = Descended(reading.loss, metrics.terms, metrics.surrogate, metrics, seen)
    return found | LOSSES[reading.framework](descended)
